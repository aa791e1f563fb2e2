package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func compress(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	to := gzip.NewWriter(&b)
	_, _ = to.Write(text)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A body that is larger than the gateway buffers arrives inflated, too, and no service learns that it was compressed.
func TestCompressedUploads(t *testing.T) {
	forBothTransports(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x %v %q", n, sum.Sum(nil), err, r.Header["Content-Encoding"])
	}, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		for _, size := range []int{1, maxBufferedBody, maxBufferedBody + 1, 3 << 20} {
			sent := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
			body := compress(t, sent)
			_, in := ask(
				fmt.Sprintf(
					"POST /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s",
					key,
					len(body),
					body,
				),
			)
			if _, got := readResponse(t, in, "POST"); got != fmt.Sprintf("%d %x <nil> []", size, sha256.Sum256(sent)) {
				t.Errorf("got %s, want %d bytes with the sum %x", got, size, sha256.Sum256(sent))
			}
		}
	})
}

// A compressed body that is far larger than allowed is inflated only until that is clear.
func TestBombsEndEarly(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	d.gateway.upstreams["network"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, maxBufferedBody+1)); n > maxBufferedBody {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	bomb := compress(t, make([]byte, 64<<20))
	for _, key := range []string{d.identity.issue(1), ""} {
		left := bytes.NewReader(bomb)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/port-speed", io.MultiReader(left))
		r.Header.Set("Content-Encoding", "gzip")
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		w := httptest.NewRecorder()
		d.gateway.ServeHTTP(w, r)
		if read := len(bomb) - left.Len(); w.Code != http.StatusRequestEntityTooLarge || read > len(bomb)/4 {
			t.Errorf("got %d after %d of %d bytes, want 413 after at most a quarter", w.Code, read, len(bomb))
		}
	}
}
