package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/gateway/proxy"
)

// A service's HTTP server refuses no head that the gateway forwards, and other callers notice nothing.
func TestHeads(t *testing.T) {
	forBothTransports(t, respond, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		wantOthersServed := func() {
			t.Helper()
			d.want(200, key, "/port-speed")
		}
		headers := func(n int, line string) string { return strings.Repeat(line, n) }
		for name, head := range map[string]string{
			"a host of raw bytes":      "GET http://\xff\xfe/port-speed HTTP/1.1\r\nHost: x\r\n",
			"a host of raw bytes, 1.0": "GET /port-speed HTTP/1.0\r\nHost: \xff\r\n",
			"a path of raw bytes":      "GET /port-speed/" + strings.Repeat("\xff", 10<<10) + " HTTP/1.1\r\nHost: x\r\n",
			"a query of raw bytes":     "GET /port-speed?" + strings.Repeat("\xff", 30<<10) + " HTTP/1.1\r\nHost: x\r\n",
			"many headers":             "GET /port-speed HTTP/1.1\r\nHost: x\r\n" + headers(8000, "a:\r\n"),
			"many that are handed on":  "GET /port-speed HTTP/1.1\r\nHost: x\r\n" + headers(3000, "range:\r\n"),
			"a long one":               "GET /port-speed HTTP/1.1\r\nHost: x\r\nIf-Match: " + strings.Repeat("x", 31<<10) + "\r\n",
			"raw bytes in one":         "GET /port-speed HTTP/1.1\r\nHost: x\r\nAccept: " + strings.Repeat("\xff", 10<<10) + "\r\n",
			"names that are ours": "GET /port-speed HTTP/1.1\r\nHost: x\r\nIronplane-Call: x\r\nConnection: " +
				"Ironplane-Call\r\nTransfer-Encoding: identity\r\n",
			"no path":  "OPTIONS * HTTP/1.1\r\nHost: x\r\n",
			"a tunnel": "CONNECT port-speed:80 HTTP/1.1\r\nHost: x\r\n",
		} {
			for _, credentials := range []string{"", "X-Api-Key: " + key + "\r\n"} {
				for range 10 { // more than the breaker bears
					if got := requestStatus(t, ask, head+credentials+"Connection: close\r\n\r\n"); got == 0 || got >= 500 && got != 505 && got != 501 {
						t.Errorf("%s: got %d, want a status below 500, 501 or 505", name, got)
					}
				}
				wantOthersServed()
			}
		}
	})
}

func TestRandomHeads(t *testing.T) {
	forBothTransports(t, respond, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		printable := rapid.StringMatching(`[!-~]{0,40}`)
		text := rapid.OneOf(
			printable,
			printable,
			printable,
			rapid.StringN(0, 40, 40),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }),
		)
		names := append(
			[]string{"Host", "Connection", "Te", "Trailer", "Upgrade", "Ironplane-Call", "Traceparent", "X"},
			proxy.ForwardedHeaders...)
		served := 0
		rapid.Check(t, func(rt *rapid.T) {
			sample := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, name) }
			head := sample("method", "GET", "HEAD", "DELETE", "OPTIONS", "X") + " " + sample("form", "", "http://", "http://\xff") +
				"/port-speed" + sample("separator", "", "/", "?") + text.Draw(rt, "target") + " HTTP/1." + sample("version", "0", "1") + "\r\n"
			for range rapid.IntRange(0, 6).Draw(rt, "headers") {
				line := rapid.SampledFrom(names).Draw(rt, "name") + ":" + text.Draw(rt, "value") + "\r\n"
				head += strings.Repeat(line, rapid.SampledFrom([]int{1, 1, 1, 2, 300}).Draw(rt, "times"))
			}
			got := requestStatus(t, ask, head+"X-Api-Key: "+key+"\r\nConnection: close\r\n\r\n")
			if got == http.StatusOK {
				served++
			}
			if got == 0 || got >= 500 && got != 505 && got != 501 {
				rt.Fatalf("got %d, want a status below 500, 501 or 505", got)
			}
			d.want(200, key, "/port-speed")
		})
		if served == 0 {
			t.Error("got no request with a random head at the service, want some")
		}
	})
}

func respond(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "here")
}

// requestStatus sends a request and returns the response's status, or 0 if there is no response.
func requestStatus(t *testing.T, ask func(string) (net.Conn, *bufio.Reader), request string) (status int) {
	t.Helper()
	c, in := ask(request)
	defer c.Close()
	line, _ := in.ReadString('\n')
	_, _ = fmt.Sscanf(line, "HTTP/1.%d %d", new(int), &status)
	return status
}
