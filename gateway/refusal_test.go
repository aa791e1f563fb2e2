package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
)

// readResponse reads the next response of a connection, and checks the headers that every response has and the internal ones that
// none has.
func readResponse(t *testing.T, in *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	got, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Api-Version": "1", "X-Content-Type-Options": "nosniff"} {
		if got.Header.Get(name) != want {
			t.Errorf("%d: got %s %q, want %q", got.StatusCode, name, got.Header.Get(name), want)
		}
	}
	if got.Header.Get("X-Request-Id") == "" || got.Header.Get("Cache-Control") == "" || got.Header["Ironplane-Route"] != nil {
		t.Errorf("%d: got %v, want X-Request-Id, Cache-Control and no Ironplane-Route", got.StatusCode, got.Header)
	}
	return got, string(body)
}

// Every error has the same body, also if net/http responds before the gateway sees the request.
func TestEveryErrorIsAProblem(t *testing.T) {
	forBothTransports(t, respond, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := "X-Api-Key: " + d.identity.issue(1) + "\r\n"
		for request, want := range map[string]struct {
			status int
			detail string
		}{
			"nonsense\r\n\r\n":                                      {400, "not valid HTTP"},
			"GET /port-speed HTTP/1.1\r\n\r\n":                      {400, "missing required Host header"},
			"GET /port-speed HTTP/1.1\r\nHost: a b\r\n\r\n":         {400, "Host"},
			"GET /port-speed HTTP/1.1\r\nHost: x\r\na b: c\r\n\r\n": {400, "not valid HTTP"},
			"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n":                  {400, "not valid HTTP"},
			"POST /port-speed HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab": {400, "not valid HTTP"},
			"POST /port-speed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n":                 {501, "Transfer-Encoding"},
			"POST /port-speed HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\na":   {417, "Expect"},
			"GET /port-speed HTTP/3.0\r\nHost: x\r\n\r\n":                                              {505, "version"},
			"GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Y: " + strings.Repeat("z", 64<<10) + "\r\n\r\n":  {431, "too large"},
			"GET /-/docs/nothing HTTP/1.1\r\nHost: x\r\n\r\n":                                          {404, "no such path"},
			"GET /-/docs/nothing/ HTTP/1.1\r\nHost: x\r\n\r\n":                                         {404, "no such path"},
			"GET /-/nothing HTTP/1.1\r\nHost: x\r\n\r\n":                                               {404, "no such path"},
			"POST /-/docs HTTP/1.1\r\nHost: x\r\n\r\n":                                                 {405, "POST"},
			"POST /-/docs/swagger-ui.css HTTP/1.1\r\nHost: x\r\n\r\n":                                  {405, "POST"},
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                                                        {404, "no such path"},
			"GET //port-speed HTTP/1.1\r\nHost: x\r\n\r\n":                                             {404, "no such path"},
			"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                                                    {404, "no such path"},
			"CONNECT port-speed:80 HTTP/1.1\r\nHost: port-speed:80\r\n\r\n":                            {404, "no such path"},
		} {
			for _, before := range []string{"", "GET /port-speed HTTP/1.1\r\nHost: x\r\n" + key + "\r\n"} {
				_, in := ask(before + request)
				if before != "" {
					if got, _ := readResponse(t, in, "GET"); got.StatusCode != 200 {
						t.Errorf("before %.50q: got %d, want 200", request, got.StatusCode)
					}
				}
				got, body := readResponse(t, in, "GET")
				var p problem.Problem
				if err := json.Unmarshal([]byte(body), &p); err != nil {
					t.Errorf("%.50q: got %d %q, %v, want a problem in JSON", request, got.StatusCode, body, err)
					continue
				}
				if got.StatusCode != want.status || p.Status != want.status || !strings.Contains(p.Detail, want.detail) ||
					got.Header.Get("Content-Type") != "application/json" || p.RequestID != got.Header.Get("X-Request-Id") {
					t.Errorf("%.50q: got %d %v %s, want %d with %q", request, got.StatusCode, got.Header, body, want.status, want.detail)
				}
			}
		}
	})
}

// A handler's own response is passed on although its body looks like one of net/http's.
func TestAnswersAreNotMistaken(t *testing.T) {
	text := "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	sizes := map[string]int{"/port-speed/short": len(text), "/port-speed/long": 10_000, "/port-speed/longer": 100_000}
	long := func(path string) string { return text + strings.Repeat("x", sizes[path]-len(text)) }
	forBothTransports(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(sizes[r.URL.Path])) // else the chunks' sizes stand before it
		_ = http.NewResponseController(w).Flush()                         // the head: what follows is a write of its own
		_, _ = io.WriteString(w, long(r.URL.Path))
	}, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		for path := range sizes {
			_, in := ask("GET " + path + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n\r\n")
			if got, body := readResponse(t, in, "GET"); got.StatusCode != 200 || body != long(path) {
				t.Errorf("got %d %.100q, want 200 %.100q", got.StatusCode, body, long(path))
			}
		}
	})
}

// The header with the route is removed from every response.
func TestRoutesDoNotLeave(t *testing.T) {
	forBothTransports(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Ironplane-Route"] = []string{"/port-speed/{port_speed_id}"}
		switch r.URL.Path {
		case "/port-speed/304":
			w.WriteHeader(http.StatusNotModified)
		case "/port-speed/204":
			w.WriteHeader(http.StatusNoContent)
		case "/port-speed/103":
			w.WriteHeader(http.StatusEarlyHints)
		case "/port-speed/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		case "/port-speed/aborted":
			_, _ = io.WriteString(w, "[1")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		for _, request := range []string{"GET /port-speed", "HEAD /port-speed", "GET /port-speed/304", "GET /port-speed/204",
			"GET /port-speed/103", "GET /port-speed/long", "HEAD /port-speed/long",
			"GET /port-speed/aborted", "GET /-/health", "HEAD /-/health", "GET /-/docs", "GET /-/docs/swagger-ui.css", "GET /-/nothing",
			"GET /nothing", "GET /client/5"} {
			for _, credentials := range []string{"", "X-Api-Key: " + key + "\r\n", "X-Api-Key: wrong\r\n"} {
				for _, expect := range []string{"", "Expect: 100-continue\r\nContent-Length: 1\r\n"} {
					c, in := ask(request + " HTTP/1.1\r\nHost: x\r\n" + credentials + expect + "\r\n")
					if expect != "" {
						_, _ = io.WriteString(c, "x")
					}
					_ = c.(*net.TCPConn).CloseWrite() // a caller that closes its half may still read
					all, _ := io.ReadAll(in)
					if text := strings.ToLower(string(all)); strings.Contains(text, "ironplane-route") || strings.Contains(text, "{port_speed_id}") {
						t.Errorf("%s: got %s, want no route of the service in it", request, all)
					}
				}
			}
		}
	})
}

// A caller that closes its half of the connection gets no success for a request that was not done.
func TestHalfClosedIsNoSuccess(t *testing.T) {
	forBothTransports(t, nil, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		hold := make(chan struct{})
		t.Cleanup(func() { close(hold) })
		d.identity.set(func(http.ResponseWriter) bool { <-hold; return false }, nil)
		c, in := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n\r\n")
		_ = c.(*net.TCPConn).CloseWrite()
		if line, _ := in.ReadString('\n'); line != "" {
			t.Errorf("got %q, want no answer", line)
		}
	})
}
