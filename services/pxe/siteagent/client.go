package siteagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Client asks an agent.
type Client struct {
	URL  string        // https://files.fra1.example.net:8443
	Key  secret.String // its API key, or a token that was granted
	HTTP *http.Client  // whose requests have no deadline of their own
}

// Refusal is what an agent answered that did not do what it was asked.
type Refusal struct {
	Status int
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

// IsRefusal tells whether an agent answered with this status.
func IsRefusal(err error, status int) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Status == status
}

const (
	askTime = 20 * time.Second
	// stallTime is how long at most nothing arrives, or is taken, of what goes on for longer.
	stallTime      = 30 * time.Second
	mostAnswer     = 1 << 20
	longestLine    = 8 << 10
	mostManifest   = int64(MostFiles) * 1500
	manifestTime   = 30 * time.Minute // an agent may have to read all of its files for it
	shownOfRefusal = 500
	readAtOnce     = 128 << 10
)

var errStalled = errors.New("nothing has arrived for too long")

// Health asks how it is.
func (c *Client) Health(ctx context.Context) (h Health, err error) {
	return h, c.ask(ctx, http.MethodGet, "/v1/health", nil, &h)
}

// Feed asks for what it has to say behind a number.
func (c *Client) Feed(ctx context.Context, after int64) (f Feed, err error) {
	return f, c.ask(ctx, http.MethodGet, "/v1/feed?after="+strconv.FormatInt(after, 10), nil, &f)
}

// Grant lets whoever knows a token read its files.
func (c *Client) Grant(ctx context.Context, g Grant) error {
	return c.ask(ctx, http.MethodPost, "/v1/grant", g, nil)
}

// Order has it pull.
func (c *Client) Order(ctx context.Context, o Order) error {
	return c.ask(ctx, http.MethodPost, "/v1/pull", o, nil)
}

// Pull asks what became of an order.
func (c *Client) Pull(ctx context.Context, id string) (p Pull, err error) {
	return p, c.ask(ctx, http.MethodGet, "/v1/pull/"+url.PathEscape(id), nil, &p)
}

// Received asks how much it has of a content.
func (c *Client) Received(ctx context.Context, sha256 string) (int64, error) {
	var r Received
	return r.Offset, c.ask(ctx, http.MethodGet, "/v1/content/"+sha256, nil, &r)
}

// Delete has it delete a file.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.ask(ctx, http.MethodDelete, "/v1/file/"+escape(path), nil, nil)
}

// Put gives it the rest of a file, from an offset of its content on. It is seen once it is whole.
func (c *Client) Put(ctx context.Context, f File, offset int64, rest io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := watch(rest, cancel)
	defer body.stop()
	query := url.Values{"sha256": {f.SHA256}, "size": {strconv.FormatInt(f.Size, 10)}, "offset": {strconv.FormatInt(offset, 10)}}
	r, err := c.request(ctx, http.MethodPut, "/v1/file/"+escape(f.Path)+"?"+query.Encode(), io.NopCloser(body))
	if err != nil {
		return err
	}
	r.ContentLength = f.Size - offset
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	response, err := c.do(r)
	if err != nil {
		return caused(ctx, err)
	}
	return response.Body.Close()
}

// Open reads a file from an offset on. What arrives is not verified.
func (c *Client) Open(ctx context.Context, f File, offset int64) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, "/v1/file/"+escape(f.Path), nil, func(r *http.Request) (want int) {
		r.Header.Set("If-Match", `"`+f.SHA256+`"`)
		if offset == 0 {
			return http.StatusOK
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		return http.StatusPartialContent
	})
}

// open reads what is answered.
func (c *Client) open(ctx context.Context, method, path string, body io.Reader, prepare func(*http.Request) (want int)) (*download, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := c.request(ctx, method, path, body)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	want := prepare(r)
	late := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	response, err := c.do(r)
	late.Stop()
	if err != nil {
		err = caused(ctx, err)
		cancel(nil)
		return nil, err
	}
	if response.StatusCode != want {
		_ = response.Body.Close()
		cancel(nil)
		return nil, fmt.Errorf("it answered %d instead of %d", response.StatusCode, want)
	}
	return &download{watch(response.Body, cancel), response.Body, ctx, cancel}, nil
}

// Together reads small files. What arrives is not verified.
func (c *Client) Together(ctx context.Context, files []File) (*Bundle, error) {
	var asked Together
	for _, f := range files {
		asked.Paths = append(asked.Paths, f.Path)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	body, err := c.open(ctx, http.MethodPost, "/v1/files", bytes.NewReader(text), func(*http.Request) int { return http.StatusOK })
	if err != nil {
		return nil, err
	}
	return &Bundle{body: body, from: bufio.NewReaderSize(body, SmallFile)}, nil
}

// Bundle are files that arrive one behind the other.
type Bundle struct {
	body io.Closer
	from *bufio.Reader
	last io.LimitedReader
}

// Next reads the next one, whatever was read of the last; none where it does not arrive.
func (b *Bundle) Next() (io.Reader, error) {
	if _, err := b.from.Discard(int(b.last.N)); err != nil {
		return nil, err
	}
	b.last = io.LimitedReader{}
	line, err := b.from.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read what arrives next: %w", err)
	}
	var is Bundled
	if err := json.Unmarshal(line, &is); err != nil {
		return nil, fmt.Errorf("read what arrives next: %w", err)
	}
	if is.LeftOut {
		return nil, nil
	}
	if is.Size < 0 || is.Size > SmallFile {
		return nil, fmt.Errorf("a file of %d bytes arrives together with others", is.Size)
	}
	b.last = io.LimitedReader{R: b.from, N: is.Size}
	return &b.last, nil
}

// Close ends it.
func (b *Bundle) Close() error { return b.body.Close() }

type download struct {
	*watched
	body   io.Closer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.watched.Read(p)
	if err != nil && err != io.EOF {
		err = caused(d.ctx, err)
	}
	return n, err
}

func (d *download) Close() error {
	d.stop()
	err := d.body.Close()
	d.cancel(nil)
	return err
}

// watched ends a request once nothing has been read for a while.
type watched struct {
	io.Reader
	late *time.Timer
}

func watch(r io.Reader, cancel context.CancelCauseFunc) *watched {
	return &watched{r, time.AfterFunc(stallTime, func() { cancel(errStalled) })}
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.late.Reset(stallTime)
	return n, err
}

func (w *watched) stop() { w.late.Stop() }

// caused is why a request ended, where that was decided here.
func caused(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// ask is a request that is answered soon.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	r, err := c.request(ctx, method, path, sent)
	if err != nil {
		return err
	}
	response, err := c.do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, mostAnswer)).Decode(into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key.Reveal())
	return r, nil
}

// do answers what was answered, if that is a success.
func (c *Client) do(r *http.Request) (*http.Response, error) {
	response, err := c.HTTP.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok { // without the address, which the caller knows
			err = failed.Err
		}
		return nil, err
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	var said struct {
		Detail string `json:"detail"`
	}
	_ = json.NewDecoder(io.LimitReader(response.Body, mostAnswer)).Decode(&said) // what is no agent says something else
	if said.Detail = strings.ToValidUTF8(said.Detail, ""); said.Detail == "" {
		said.Detail = fmt.Sprintf("it answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return nil, &Refusal{response.StatusCode, said.Detail[:min(len(said.Detail), shownOfRefusal)]}
}

// escape writes a path as it stands in a URL.
func escape(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, "/")
}

// NewHTTP is how an agent asks another one, which it was told to ask.
func NewHTTP(fingerprint string) (*http.Client, error) {
	config, err := Pinned(fingerprint)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: askTime}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &ahead{conn, bufio.NewReaderSize(conn, readAtOnce)}, nil
	}
	return &http.Client{
		Transport: &http.Transport{DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: askTime, ResponseHeaderTimeout: manifestTime,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: stallTime, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it was redirected") },
	}, nil
}

// ahead reads as much as there is, where TLS asks for one record after the other.
type ahead struct {
	net.Conn
	from *bufio.Reader
}

func (c *ahead) Read(p []byte) (int, error) { return c.from.Read(p) }
