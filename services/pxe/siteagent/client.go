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
	requestTimeout = 20 * time.Second
	// stallTimeout is how long at most nothing arrives, or is taken, of what goes on for longer.
	stallTimeout     = 30 * time.Second
	maxResponseSize  = 1 << 20
	maxLineLength    = 8 << 10
	maxManifestSize  = int64(MaxFiles) * 1500
	manifestTimeout  = 30 * time.Minute // an agent may have to read all of its files for it
	maxRefusalLength = 500
	readBufferSize   = 128 << 10
)

var errStalled = errors.New("nothing has arrived for too long")

// GetHealth asks how it is.
func (c *Client) GetHealth(ctx context.Context) (h Health, err error) {
	return h, c.call(ctx, http.MethodGet, "/v1/health", nil, &h)
}

// GetFeed asks for what it has to say behind a number.
func (c *Client) GetFeed(ctx context.Context, after int64) (f Feed, err error) {
	return f, c.call(ctx, http.MethodGet, "/v1/feed?after="+strconv.FormatInt(after, 10), nil, &f)
}

// Grant lets whoever knows a token read its files.
func (c *Client) Grant(ctx context.Context, g Grant) error {
	return c.call(ctx, http.MethodPost, "/v1/grant", g, nil)
}

// PullOrder has it pull.
func (c *Client) OrderPull(ctx context.Context, o PullOrder) error {
	return c.call(ctx, http.MethodPost, "/v1/pull", o, nil)
}

// GetPull asks what became of an order.
func (c *Client) GetPull(ctx context.Context, id string) (p Pull, err error) {
	return p, c.call(ctx, http.MethodGet, "/v1/pull/"+url.PathEscape(id), nil, &p)
}

// GetReceived asks how much it has of a content.
func (c *Client) GetReceived(ctx context.Context, sha256 string) (int64, error) {
	var r Received
	return r.Offset, c.call(ctx, http.MethodGet, "/v1/content/"+sha256, nil, &r)
}

// Delete has it delete a file.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, "/v1/file/"+escapePath(path), nil, nil)
}

// Put gives it the rest of a file, from an offset of its content on. It is seen once it is whole.
func (c *Client) Put(ctx context.Context, f File, offset int64, rest io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := newStallReader(rest, cancel)
	defer body.stop()
	query := url.Values{"sha256": {f.SHA256}, "size": {strconv.FormatInt(f.Size, 10)}, "offset": {strconv.FormatInt(offset, 10)}}
	r, err := c.request(ctx, http.MethodPut, "/v1/file/"+escapePath(f.Path)+"?"+query.Encode(), io.NopCloser(body))
	if err != nil {
		return err
	}
	r.ContentLength = f.Size - offset
	if r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	response, err := c.do(r)
	if err != nil {
		return cause(ctx, err)
	}
	return response.Body.Close()
}

// Open reads a file from an offset on. What arrives is not verified.
func (c *Client) Open(ctx context.Context, f File, offset int64) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, "/v1/file/"+escapePath(f.Path), nil, func(r *http.Request) (want int) {
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
	timer := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	response, err := c.do(r)
	timer.Stop()
	if err != nil {
		err = cause(ctx, err)
		cancel(nil)
		return nil, err
	}
	if response.StatusCode != want {
		_ = response.Body.Close()
		cancel(nil)
		return nil, fmt.Errorf("it answered %d instead of %d", response.StatusCode, want)
	}
	return &download{newStallReader(response.Body, cancel), response.Body, ctx, cancel}, nil
}

// OpenBundle reads small files. What arrives is not verified.
func (c *Client) OpenBundle(ctx context.Context, files []File) (*Bundle, error) {
	var request BundleRequest
	for _, f := range files {
		request.Paths = append(request.Paths, f.Path)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	body, err := c.open(ctx, http.MethodPost, "/v1/files", bytes.NewReader(text), func(*http.Request) int { return http.StatusOK })
	if err != nil {
		return nil, err
	}
	return &Bundle{body: body, reader: bufio.NewReaderSize(body, MaxBundledSize)}, nil
}

// Bundle are files that arrive one behind the other.
type Bundle struct {
	body    io.Closer
	reader  *bufio.Reader
	current io.LimitedReader
}

// Next reads the next one, whatever was read of the last; none where it does not arrive.
func (b *Bundle) Next() (io.Reader, error) {
	if _, err := b.reader.Discard(int(b.current.N)); err != nil {
		return nil, err
	}
	b.current = io.LimitedReader{}
	line, err := b.reader.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read what arrives next: %w", err)
	}
	var header BundleHeader
	if err := json.Unmarshal(line, &header); err != nil {
		return nil, fmt.Errorf("read what arrives next: %w", err)
	}
	if header.LeftOut {
		return nil, nil
	}
	if header.Size < 0 || header.Size > MaxBundledSize {
		return nil, fmt.Errorf("a file of %d bytes arrives together with others", header.Size)
	}
	b.current = io.LimitedReader{R: b.reader, N: header.Size}
	return &b.current, nil
}

// Close ends it.
func (b *Bundle) Close() error { return b.body.Close() }

type download struct {
	*stallReader
	body   io.Closer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.stallReader.Read(p)
	if err != nil && err != io.EOF {
		err = cause(d.ctx, err)
	}
	return n, err
}

func (d *download) Close() error {
	d.stop()
	err := d.body.Close()
	d.cancel(nil)
	return err
}

// stallReader ends a request once nothing has been read for a while.
type stallReader struct {
	io.Reader
	timer *time.Timer
}

func newStallReader(r io.Reader, cancel context.CancelCauseFunc) *stallReader {
	return &stallReader{r, time.AfterFunc(stallTimeout, func() { cancel(errStalled) })}
}

func (w *stallReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.timer.Reset(stallTimeout)
	return n, err
}

func (w *stallReader) stop() { w.timer.Stop() }

// cause is why a request ended, where that was decided here.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// call is a request that is answered soon.
func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	r, err := c.request(ctx, method, path, reader)
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
	if err := json.NewDecoder(io.LimitReader(response.Body, maxResponseSize)).Decode(into); err != nil {
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
	var problem struct {
		Detail string `json:"detail"`
	}
	_ = json.NewDecoder(io.LimitReader(response.Body, maxResponseSize)).Decode(&problem) // what is no agent says something else
	if problem.Detail = strings.ToValidUTF8(problem.Detail, ""); problem.Detail == "" {
		problem.Detail = fmt.Sprintf("it answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return nil, &Refusal{response.StatusCode, problem.Detail[:min(len(problem.Detail), maxRefusalLength)]}
}

// escapePath writes a path as it stands in a URL.
func escapePath(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, "/")
}

// NewHTTPClient is how an agent asks another one, which it was told to ask.
func NewHTTPClient(fingerprint string) (*http.Client, error) {
	config, err := PinnedTLSConfig(fingerprint)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: requestTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &bufferedConn{conn, bufio.NewReaderSize(conn, readBufferSize)}, nil
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           dial,
			TLSClientConfig:       config,
			TLSHandshakeTimeout:   requestTimeout,
			ResponseHeaderTimeout: manifestTimeout,
			MaxIdleConnsPerHost:   8,
			IdleConnTimeout:       stallTimeout,
			DisableCompression:    true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it was redirected") },
	}, nil
}

// bufferedConn reads as much as there is, where TLS asks for one record after the other.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
