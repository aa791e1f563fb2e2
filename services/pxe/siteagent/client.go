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

// Client calls the HTTP interface of one agent.
type Client struct {
	URL  string        // https://files.fra1.example.net:8443
	Key  secret.String // the agent's API key, or a granted token
	HTTP *http.Client  // must not set a deadline for whole requests: transfers take longer
}

// Refusal is an error response of an agent.
type Refusal struct {
	Status int
	Detail string
}

// Error returns the agent's detail.
func (r *Refusal) Error() string { return r.Detail }

// IsRefusal reports whether err is a refusal with this status.
func IsRefusal(err error, status int) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Status == status
}

const (
	requestTimeout = 20 * time.Second
	// stallTimeout is the longest time without progress in a transfer. Transfers have no other deadline.
	stallTimeout     = 30 * time.Second
	maxResponseSize  = 1 << 20
	maxLineLength    = 8 << 10
	maxManifestSize  = int64(MaxFiles) * 1500
	maxPathSum       = 64 << 20         // bytes of the paths that GetManifest returns
	manifestTimeout  = 30 * time.Minute // the agent may have to hash all of its files
	maxRefusalLength = 500
	readBufferSize   = 128 << 10
)

var errStalled = errors.New("the transfer has stalled")

// GetHealth returns the agent's version, free space and URLs.
func (c *Client) GetHealth(ctx context.Context) (h Health, err error) {
	return h, c.call(ctx, http.MethodGet, "/v1/health", nil, &h)
}

// GetFeed returns the feed's entries with a number above after.
func (c *Client) GetFeed(ctx context.Context, after int64) (f Feed, err error) {
	return f, c.call(ctx, http.MethodGet, "/v1/feed?after="+strconv.FormatInt(after, 10), nil, &f)
}

// FindMissing returns those of some files that the agent lacks. An agent of an earlier version refuses with 404.
func (c *Client) FindMissing(ctx context.Context, paths []string) ([]string, error) {
	var missing Missing
	err := c.call(ctx, http.MethodPost, "/v1/missing", MissingRequest{paths}, &missing)
	return missing.Paths, err
}

// Grant lets a caller read the agent's files with a token, until the grant expires.
func (c *Client) Grant(ctx context.Context, g Grant) error {
	return c.call(ctx, http.MethodPost, "/v1/grant", g, nil)
}

// OrderPull starts a pull. It replaces a pull that is still running.
func (c *Client) OrderPull(ctx context.Context, o PullOrder) error {
	return c.call(ctx, http.MethodPost, "/v1/pull", o, nil)
}

// GetPull returns the state of a pull.
func (c *Client) GetPull(ctx context.Context, id string) (p Pull, err error) {
	return p, c.call(ctx, http.MethodGet, "/v1/pull/"+url.PathEscape(id), nil, &p)
}

// GetReceived returns how many bytes of a content the agent has. Put can continue from there.
func (c *Client) GetReceived(ctx context.Context, sha256 string) (int64, error) {
	var r Received
	return r.Offset, c.call(ctx, http.MethodGet, "/v1/content/"+sha256, nil, &r)
}

// Delete deletes a file. It is no error if the file is missing.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, "/v1/file/"+escapePath(path), nil, nil)
}

// Put uploads a file's content from an offset on. The file becomes visible once its content is complete and verified.
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

// Open reads a file from an offset on. The caller has to verify the content.
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

// open sends a request and returns the response's body. prepare may change the request, and returns the expected status.
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
		return nil, fmt.Errorf("got status %d, want %d", response.StatusCode, want)
	}
	return &download{newStallReader(response.Body, cancel), response.Body, ctx, cancel}, nil
}

// OpenBundle requests several small files at once. The caller has to verify their contents.
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

// Bundle reads the files of a bundle one after the other.
type Bundle struct {
	body    io.Closer
	reader  *bufio.Reader
	current io.LimitedReader
}

// Next returns the next file's content, or nil if the agent left the file out. It skips the unread rest of the file before.
func (b *Bundle) Next() (io.Reader, error) {
	if _, err := b.reader.Discard(int(b.current.N)); err != nil {
		return nil, err
	}
	b.current = io.LimitedReader{}
	line, err := b.reader.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	var header BundleHeader
	if err := json.Unmarshal(line, &header); err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	if header.LeftOut {
		return nil, nil
	}
	if header.Size < 0 || header.Size > MaxBundledSize {
		return nil, fmt.Errorf("the bundle has a file of %d bytes", header.Size)
	}
	b.current = io.LimitedReader{R: b.reader, N: header.Size}
	return &b.current, nil
}

// Close ends the request.
func (b *Bundle) Close() error { return b.body.Close() }

// download is a response's body. Reading it fails with errStalled after a stall.
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

// stallReader cancels a request after stallTimeout without a read.
type stallReader struct {
	io.Reader
	timer *time.Timer
}

// newStallReader returns a reader that cancels its request after a stall. The caller stops it in the end.
func newStallReader(r io.Reader, cancel context.CancelCauseFunc) *stallReader {
	return &stallReader{r, time.AfterFunc(stallTimeout, func() { cancel(errStalled) })}
}

func (w *stallReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.timer.Reset(stallTimeout)
	return n, err
}

func (w *stallReader) stop() { w.timer.Stop() }

// cause returns errStalled if a stall ended the request, and err otherwise.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// call sends a request that the agent answers at once, and decodes the response into into. A nil into ignores the response.
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
		return fmt.Errorf("decode the response: %w", err)
	}
	return nil
}

// request returns a request with the client's key.
func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key.Reveal())
	return r, nil
}

// do sends a request. It returns a Refusal for any status from 300 on.
func (c *Client) do(r *http.Request) (*http.Response, error) {
	response, err := c.HTTP.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok { // drop the URL, which the caller knows
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
	_ = json.NewDecoder(io.LimitReader(response.Body, maxResponseSize)).Decode(&problem) // a proxy's response may be no JSON
	if problem.Detail = strings.ToValidUTF8(problem.Detail, ""); problem.Detail == "" {
		problem.Detail = fmt.Sprintf("the agent responded with %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return nil, &Refusal{response.StatusCode, problem.Detail[:min(len(problem.Detail), maxRefusalLength)]}
}

// escapePath escapes the names in a path for a URL.
func escapePath(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, "/")
}

// NewHTTPClient returns an HTTP client for a Client, which accepts the certificate with this fingerprint. See PinnedTLSConfig.
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
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the agent redirects the request") },
	}, nil
}

// bufferedConn reads ahead, because TLS reads a connection record by record.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
