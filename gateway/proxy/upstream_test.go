package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

// testTimeout is how long tests wait for something, also on a busy machine.
const testTimeout = 2 * time.Minute

func request(t testing.TB, method, url string, body io.Reader, headers ...string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		r.Header.Add(headers[n], headers[n+1])
	}
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(client.CloseIdleConnections)
	return client.Do(r)
}

// readResponse reads a response, and returns its status and body.
func readResponse(t testing.TB, response *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(response.StatusCode, " ", string(body))
}

// requestRaw sends bytes to a URL's server and returns the connection.
func requestRaw(t testing.TB, url, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func wantWithin(t testing.TB, event string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatalf("got nothing in %v, want %s", testTimeout, event)
	}
}

func TestRequestArrives(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		describeCall(w, r)
		body, err := io.ReadAll(r.Body)
		fmt.Fprint(w, "|", r.Method, " ", r.RequestURI, " ", r.Host, " ", r.ContentLength, " ", string(body), " ", err)
	})
	call := "200 gateway|" + string(peers.AppendCall(nil, caller)) + "||"
	for _, c := range []struct {
		method, path string
		body         io.Reader
		want         string
	}{
		{"GET", "/a/%31%2f%20b//c?q=%20x&y", nil, "GET /a/%31%2f%20b//c?q=%20x&y network 0  <nil>"},
		{"GET", "//a?", nil, "GET //a? network 0  <nil>"},
		{"POST", "/", strings.NewReader("x=y"), "POST / network 3 x=y <nil>"},
		{"POST", "/", io.MultiReader(strings.NewReader("x="), strings.NewReader("y")), "POST / network -1 x=y <nil>"},
		{"POST", "/", nil, "POST / network 0  <nil>"},
		{"DELETE", "/", strings.NewReader("x"), "DELETE / network 1 x <nil>"},
	} {
		response, err := request(t, c.method, url+c.path, c.body)
		if got := readResponse(t, response, err); got != call+c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.path, got, call+c.want)
		}
	}
	response, err := request(t, "HEAD", url, nil)
	if got := readResponse(t, response, err); got != "200 " || response.ContentLength <= 0 {
		t.Errorf("HEAD: got %q with the length %d, want 200 with more than 0", got, response.ContentLength)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	var got http.Header
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		if len(r.TransferEncoding) > 0 || r.Close {
			t.Errorf("got the encoding %v and close %t, want neither", r.TransferEncoding, r.Close)
		}
		for name, value := range map[string]string{
			"Connection": "X-Hop", "X-Hop": "1", "Keep-Alive": "9", "Proxy-Authenticate": "x", "Upgrade": "x", "Trailer": "X-Late",
		} {
			w.Header().Set(name, value)
		}
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header().Set("ETag", `"7"`)
		w.WriteHeader(http.StatusNonAuthoritativeInfo)
		w.Header().Set("X-Late", "1")
	})
	forged := string(
		peers.AppendCall(
			nil,
			&principal.Call{
				RequestID: "forged",
				Principal: &principal.Principal{KeyID: 1, Owner: principal.Owner{Type: principal.Admin, ID: 1}, Grants: principal.All},
			},
		),
	)
	response, err := request(
		t,
		"GET",
		url,
		nil,
		"Connection",
		"X-Hop, x-other",
		"X-Hop",
		"1",
		"X-Other",
		"1",
		"Keep-Alive",
		"9",
		"Proxy-Connection",
		"x",
		"Proxy-Authorization",
		"x",
		"Te",
		"trailers",
		"Trailer",
		"X-Late",
		"Upgrade",
		"websocket",
		peers.CallHeader,
		forged,
		"Ironplane-Anything",
		"1",
		"Forwarded",
		"for=1",
		"X-Forwarded-For",
		"1.1.1.1",
		"X-Forwarded-Client-Cert",
		"x",
		"X-Real-Ip",
		"1",
		"X-Request-Id",
		"x",
		"If-Match",
		"1",
		"If-Match",
		"2",
		"User-Agent",
		"me",
		"Accept",
		"x",
	)
	if readResponse(t, response, err) != "203 " {
		t.Errorf("got %d, want 203", response.StatusCode)
	}
	want := http.Header{"If-Match": {"1", "2"}, "User-Agent": {"me"}, "Accept": {"x"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v at the service, want %v", got, want)
	}
	response.Header.Del("Date")
	if want := (http.Header{"Etag": {`"7"`}, "Set-Cookie": {"a=1", "b=2"}, "Content-Length": {"0"}}); fmt.Sprint(
		response.Header,
	) != fmt.Sprint(
		want,
	) {
		t.Errorf("got %v at the caller, want %v", response.Header, want)
	}
}

func TestBothWaysStream(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		_ = connection.EnableFullDuplex()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "got "+line)
			_ = connection.Flush()
			_ = connection.SetReadDeadline(time.Time{}) // it goes on to read
		}
	})
	from, to := io.Pipe()
	headed := make(chan *http.Response, 1)
	go func() {
		response, err := request(t, "POST", url, from)
		if err != nil {
			t.Error(err)
		}
		headed <- response
	}()
	_, _ = io.WriteString(to, "0\n")
	response := <-headed
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for n := range 5 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("got %d\n", n) {
			t.Fatalf("got %q, %v, want \"got %d\"", line, err, n)
		}
		_, _ = fmt.Fprintf(to, "%d\n", n+1)
	}
	to.Close()
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "got 5\n" {
		t.Fatalf("got %q, %v, want \"got 5\"", rest, err)
	}
}

// Pieces of a response of known length are passed on before its end.
func TestKnownLengthStreams(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	seen := make(chan struct{})
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		wantWithin(t, "the first piece", seen)
		_, _ = io.WriteString(w, "b")
	})
	response, err := request(t, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.ReadFull(response.Body, make([]byte, 1))
	close(seen)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "b" {
		t.Fatalf("got %q, %v, want \"b\"", rest, err)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		connection := http.NewResponseController(w)
		_ = connection.EnableFullDuplex()
		if r.ContentLength > 0 {
			w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
		}
		w.WriteHeader(http.StatusOK)
		_ = connection.SetReadDeadline(time.Time{}) // it goes on to read
		_, _ = io.Copy(w, r.Body)
	})
	sent := make([]byte, 3<<20+7)
	_, _ = rand.Read(sent)
	for _, body := range []io.Reader{bytes.NewReader(sent), io.MultiReader(bytes.NewReader(sent))} {
		response, err := request(t, "POST", url, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("got %d bytes back, %v, want the %d that were sent", len(got), err, len(sent))
		}
	}
}

// A service that refuses early gets no more of the body, and the caller gets the refusal.
func TestEarlyAnswer(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})
	for range 20 {
		response, err := request(t, "POST", url, bytes.NewReader(make([]byte, 1<<20)))
		if got := readResponse(t, response, err); got != "413 too large\n" {
			t.Fatalf("got %q, want 413 too large", got)
		}
	}
	// The rest of the body is not taken for a request.
	_, answers := requestRaw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
	all, err := io.ReadAll(answers)
	if err != nil || strings.Count(string(all), "HTTP/1.1") != 1 || !strings.Contains(string(all), "Connection: close") {
		t.Fatalf("got %s, %v, want one answer that closes the connection", all, err)
	}
}

// A service that refuses early is done with the request, even if the caller goes on to send a little now and then.
func TestTricklingBody(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	for _, answer := range []string{"", strings.Repeat("long ", 1000)} {
		url := i.serveThrough(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		c, answers := requestRaw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(drainTimeout / 5)
			}
		}()
		if line, err := answers.ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
			t.Errorf("got %q, %v, want HTTP/1.1 200 OK", line, err)
		}
		wantWithin(t, "the connection's end", ended)
	}
}

func TestExpectContinue(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	response, err := request(t, "PUT", url, strings.NewReader("body"), "Expect", "100-continue")
	if got := readResponse(t, response, err); got != "200 body" {
		t.Errorf("got %q, want \"200 body\"", got)
	}
	var asked atomic.Bool
	response, err = request(t, "PUT", url+"/refused", readerFunc(func([]byte) (int, error) {
		asked.Store(true)
		return 0, io.EOF
	}), "Expect", "100-continue")
	if got := readResponse(t, response, err); got != "403 " || asked.Load() {
		t.Errorf("got %q and the body read: %t, want 403 without it", got, asked.Load())
	}
	response, err = request(t, "GET", url, nil)
	if got := readResponse(t, response, err); got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	for name, sent := range map[string]string{
		"nothing":               "",
		"no HTTP":               "SSH-2.0-OpenSSH\r\n\r\n",
		"half a head":           "HTTP/1.1 200 OK\r\nContent-",
		"no length":             "HTTP/1.1 200 OK\r\n\r\nbody",
		"HTTP/1.0":              "HTTP/1.0 200 OK\r\n\r\nbody",
		"another protocol":      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"announcements":         strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInterimResponses+1),
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"a head without an end": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 200),
	} {
		upstream := New(i.gateway, "network", []string{i.serveRaw(i.network, func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, sent)
		})}, i.log)
		response, err := request(t, "GET", i.serveGateway(upstream), nil)
		if got := readResponse(
			t,
			response,
			err,
		); !strings.HasPrefix(got, "503 ") || response.Header.Get("Retry-After") == "" ||
			strings.Contains(got, "127.0.0.1") {
			t.Errorf("%s: got %v %s, want 503 with Retry-After and no address", name, response.Header, got)
		}
	}
	for name, sent := range map[string]string{
		"a body cut short":   "Content-Length: 9\r\n\r\nbody",
		"chunks cut short":   "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
		"a chunk cut short":  "Transfer-Encoding: chunked\r\n\r\n9\r\nbody",
		"chunks of nonsense": "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nx\r\n",
	} {
		var logged syncbuf.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil))
		upstream := New(i.gateway, "network", []string{i.serveRaw(i.network, func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+problem.RouteHeader+": /thing/{token}\r\n"+sent)
		})}, log)
		response, err := request(t, "GET", i.serveGateway(upstream)+"/thing/secret", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil {
			t.Errorf("%s: got the whole body %q, want an error", name, body)
		}
		if text := logged.String(); strings.Count(text, "route=/thing/{token}") != 1 || strings.Contains(text, "secret") {
			t.Errorf("%s: got the log %s, want the route once and no path", name, text)
		}
	}
}

// The service is slow with the head, with the response, or with reading the body.
func TestSlowService(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	const step, steps = 500 * time.Millisecond, 20 // of what moves
	over := make(chan struct{})
	address := i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/takes-nothing":
			<-over
			return
		case "/moves":
			_, _ = io.Copy(io.Discard, r.Body)
			for range steps {
				time.Sleep(step)
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
			return
		case "/stalls":
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(func() { close(over) })
	upstream := New(i.gateway, "network", []string{address}, i.log)
	upstream.progressTimeout = 3 * time.Second
	url := i.serveGateway(upstream)

	response, err := request(t, "GET", url, nil)
	if got := readResponse(t, response, err); !strings.HasPrefix(got, "503 ") || response.Header.Get("Retry-After") == "" {
		t.Errorf("got %q %v, want 503 with Retry-After", got, response.Header)
	}
	const size = 64 << 20
	sending, in := requestRaw(t, url, fmt.Sprintf("POST /takes-nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size))
	go func() { _, _ = sending.Write(make([]byte, size)) }() // http.Client would report the failed write instead of the response
	if line, err := in.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 503 ") {
		t.Errorf("got %q, %v for a body that the service does not read, want 503", line, err)
	}
	response, err = request(t, "GET", url+"/stalls", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("got the whole of an answer that stalls, want an error")
	}
	response.Body.Close()

	// Both sides are slow, but make progress, for longer than either may be silent. A busy machine may stall for seconds.
	patient := New(i.gateway, "network", []string{address}, i.log)
	patient.progressTimeout = steps * step * 4 / 5
	response, err = request(t, "POST", i.serveGateway(patient)+"/moves", &slowBody{pieces: steps, interval: step})
	if got := readResponse(t, response, err); got != "200 "+strings.Repeat("x", steps) {
		t.Errorf("got %q, want 200 and %d bytes", got, steps)
	}
}

// slowBody is a body that arrives piece by piece.
type slowBody struct {
	pieces   int
	interval time.Duration
}

func (s *slowBody) Read(p []byte) (int, error) {
	if s.pieces == 0 {
		return 0, io.EOF
	}
	s.pieces--
	time.Sleep(s.interval)
	p[0] = 'x'
	return 1, nil
}

func TestSlowCaller(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	ended := make(chan error, 1)
	address := i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			for piece := make([]byte, 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					ended <- err
					panic(http.ErrAbortHandler)
				}
			}
		}
		_, err := io.ReadAll(r.Body)
		ended <- err
	}))
	upstream := New(i.gateway, "network", []string{address}, i.log)
	upstream.progressTimeout = 3 * time.Second
	url := i.serveGateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(upstream.progressTimeout / 2)) // as the gateway's bodies do
		upstream.ServeHTTP(w, r)
	}))
	cutOff := func(event string) {
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("got %s whole at the service, want an error", event)
			}
		case <-time.After(testTimeout):
			t.Fatalf("got %s still waited for after %v, want it cut off", event, testTimeout)
		}
	}

	_, answers := requestRaw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	if response, err := http.ReadResponse(answers, nil); err != nil || response.StatusCode != http.StatusBadRequest || !response.Close {
		t.Errorf("got %+v, %v, want 400 that closes the connection", response, err)
	}
	cutOff("half a body")
	requestRaw(t, url, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	cutOff("an answer that nobody takes")
	c, _ := requestRaw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
	c.Close()
	cutOff("a body of a caller who is gone")
}

// A caller that stops within its body is at fault itself: however many do, the instance does not rest.
func TestSilentCallersAreNotInstanceFailures(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	upstream := New(i.gateway, "network", []string{i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))}, i.log)
	upstream.progressTimeout = 3 * time.Second
	url := i.serveGateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, from := http.NewResponseController(w), r.Body
		r.Body = io.NopCloser(readerFunc(func(p []byte) (int, error) {
			_ = caller.SetReadDeadline(
				time.Now().Add(upstream.progressTimeout + 50*time.Millisecond),
			) // as the gateway's bodies do, on a busy machine
			return from.Read(p)
		}))
		upstream.ServeHTTP(w, r)
	}))
	var silent []*bufio.Reader
	for n := range 2 * (maxFailures + 2) {
		_, answers := requestRaw(t, url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"+strings.Repeat("half", n%2))
		silent = append(silent, answers)
	}
	for _, answers := range silent {
		if response, err := http.ReadResponse(answers, nil); err != nil || response.StatusCode != http.StatusBadRequest || !response.Close {
			t.Errorf("got %+v, %v, want 400 that closes the connection", response, err)
		}
	}
	response, err := request(t, "GET", url, nil)
	if got := readResponse(t, response, err); got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
}

func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	begun, left := make(chan struct{}), make(chan struct{})
	url := i.serveThrough(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(left)
	})
	c, _ := requestRaw(t, url, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	wantWithin(t, "the request", begun)
	c.Close()
	wantWithin(t, "the service to notice", left)
}

func TestTooLongBodies(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	upstream := New(i.gateway, "network", []string{i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("got all of the body at the service, want an error")
		}
	}))}, i.log)
	upstream.maxBody = 1 << 20
	url := i.serveGateway(upstream)
	for _, body := range []io.Reader{bytes.NewReader(make([]byte, 1<<20+1)), io.MultiReader(bytes.NewReader(make([]byte, 1<<20+1)))} {
		response, err := request(t, "POST", url, body)
		if got := readResponse(t, response, err); !strings.HasPrefix(got, "413 ") {
			t.Errorf("got %q, want 413", got)
		}
	}
}

func TestDialRetry(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	unused := closedPort(t)
	impostor := i.serve(i.identity("identity"), http.NotFoundHandler())
	right := i.serve(i.network, http.HandlerFunc(describeCall))
	url := i.serveGateway(New(i.gateway, "network", []string{unused, impostor, right}, i.log))
	for range 10 {
		response, err := request(t, "POST", url, strings.NewReader("x"))
		if got := readResponse(t, response, err); !strings.HasPrefix(got, "200 ") {
			t.Fatalf("got %q, want 200", got)
		}
	}
	// If no instance can be reached, the 503 comes at once.
	url = i.serveGateway(New(i.gateway, "network", []string{unused, impostor}, i.log))
	var durations []time.Duration
	for range 10 {
		began := time.Now()
		response, err := request(t, "GET", url, nil)
		if got := readResponse(
			t,
			response,
			err,
		); !strings.HasPrefix(got, "503 ") || response.Header.Get("Retry-After") != "1" ||
			strings.Contains(got, unused) {
			t.Fatalf("got %q %v, want 503 with Retry-After 1 and no address", got, response.Header)
		}
		durations = append(durations, time.Since(began))
	}
	if slices.Sort(durations); durations[0] > time.Second { // single ones may take longer on a busy machine
		t.Errorf("got %v, want the shortest at most 1s", durations)
	}
}

// closedPort returns an address on which nothing listens.
func closedPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A request on which an instance dies is sent to no instance again.
func TestNoRetry(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	var arrived atomic.Int64
	dies := func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			arrived.Add(1)
		}
	}
	url := i.serveGateway(New(i.gateway, "network", []string{i.serveRaw(i.network, dies), i.serveRaw(i.network, dies)}, i.log))
	for n, method := range []string{"POST", "GET"} {
		response, err := request(t, method, url, strings.NewReader("x"))
		if got := readResponse(
			t,
			response,
			err,
		); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "may or may not have been completed") ||
			arrived.Load() != int64(n+1) {
			t.Errorf("%s: got %q after %d arrivals, want 503 that says so after %d", method, got, arrived.Load(), n+1)
		}
	}
}

// Connections are used again, except those that the service has closed meanwhile.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	var mu sync.Mutex
	var connections []string
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		connections = append(connections, r.RemoteAddr)
	})
	server := httptest.NewUnstartedServer(mtls.Receive(handler, i.log))
	server.Listener = i.network.Listener(server.Listener)
	server.Start()
	defer server.Close()
	upstream := New(i.gateway, "network", []string{server.Listener.Addr().String()}, i.log)
	upstream.progressTimeout = 3 * time.Second
	url := i.serveGateway(upstream)
	send := func() {
		for _, body := range []io.Reader{nil, strings.NewReader("x"), io.MultiReader(strings.NewReader("x"))} {
			response, err := request(t, "POST", url, body)
			if got := readResponse(t, response, err); got != "200 " {
				t.Fatalf("got %q, want 200", got)
			}
		}
	}
	send()
	time.Sleep(upstream.progressTimeout + 100*time.Millisecond) // an idle connection owes no progress
	send()
	if slices.Sort(connections); len(slices.Compact(connections)) != 1 {
		t.Errorf("got %d connections, want 1", len(slices.Compact(connections)))
	}
	for range 20 {
		server.CloseClientConnections()
		send()
	}
	idle := (*upstream.pool.instances.Load())[0].idleConnections
	if len(idle) != 1 || len(upstream.pool.slots) != 0 {
		t.Errorf("got %d idle connections and %d in use, want 1 and 0", len(idle), len(upstream.pool.slots))
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	p := newPool("network", func() *tls.Config { return i.gateway.ClientConfig("network") }, i.log)
	p.setAddresses([]string{i.serve(i.network, http.NotFoundHandler())})
	p.slots = make(chan struct{}, 2)
	var all []*connection
	for range 2 {
		c, err := p.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
	}
	go p.release(all[0], true)
	c, err := p.connect(t.Context())
	if err != nil || c != all[0] {
		t.Fatalf("got connection %p, %v, want %p", c, err, all[0])
	}
	p.release(c, true)
	c.idleSince = time.Now().Add(-2 * idleTimeout)
	p.release(all[1], true)
	first := (*p.instances.Load())[0]
	if idle := first.idleConnections; len(idle) != 1 || idle[0] != all[1] {
		t.Errorf("got %d idle connections, want the last one released", len(idle))
	}
	for range maxIdleConnections {
		first.putIdle(&connection{tcp: c.tcp, createdAt: time.Now()})
	}
	if first.putIdle(&connection{tcp: c.tcp, createdAt: time.Now()}) {
		t.Errorf("got one more than %d connections kept idle, want it closed", len(first.idleConnections))
	}
}
