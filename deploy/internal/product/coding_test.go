package product_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
)

// zipped returns the text, compressed with gzip.
func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	to := gzip.NewWriter(&b)
	_, _ = to.Write([]byte(text))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A compressed body is read like the plain one, has the same limits, and is the same request for an idempotency key.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	speed := func(name string) string { return `{"name": "` + name + `", "speed": 1000, "billing_id": null}` }
	id := c.Do("POST", "/port-speed", zipped(t, speed("one")), "Content-Encoding", "gzip").Want(200).ID()
	c.Do("PATCH", path("/port-speed/%d", id), zipped(t, speed("two")), "Content-Encoding", "GZIP").Want(200)
	c.Do("POST", "/port-speed", speed("plain"), "Content-Encoding", "identity").Want(200)

	first := c.Do("POST", "/port-speed", zipped(t, speed("kept")), "Content-Encoding", "gzip", "Idempotency-Key", "one").Want(200)
	if plain := c.Do("POST", "/port-speed", speed("kept"), "Idempotency-Key", "one").Want(200); plain.Text != first.Text {
		t.Errorf("got %s for the plain body, want the compressed one's %s", plain.Text, first.Text)
	}
	c.Do("POST", "/port-speed", zipped(t, speed("other")), "Content-Encoding", "gzip", "Idempotency-Key", "one").Want(409)

	whole := zipped(t, speed("broken"))
	for name, body := range map[string]string{
		"plain": speed("broken"), "half": whole[:len(whole)/2], "without its sum": whole[:len(whole)-8],
		"of another sum": whole[:len(whole)-8] + "12345678", "with more behind it": whole + "x", "nothing": "",
	} {
		if got := c.Do("POST", "/port-speed", body, "Content-Encoding", "gzip").Want(400); body != "" && !strings.Contains(got.Text, "gzip") {
			t.Errorf("%s: got %s, want gzip in it", name, got.Text)
		}
	}
	c.Do("POST", "/port-speed", zipped(t, speed("long")+strings.Repeat(" ", 1<<20-len(speed("long")))), "Content-Encoding", "gzip").Want(200)
	for _, size := range []int{1<<20 + 1, 64 << 20} {
		c.Do("POST", "/port-speed", zipped(t, strings.Repeat(" ", size)), "Content-Encoding", "gzip").Want(413)
	}
	for _, coding := range []string{"deflate", "br", "zstd", "gzip, gzip", "aes128gcm"} {
		if got := c.Do("POST", "/port-speed", whole, "Content-Encoding", coding).
			Want(415); got.Header.Get("Accept-Encoding") != "gzip" ||
			!strings.Contains(got.Text, "gzip") {
			t.Errorf("%s: got %v %s, want Accept-Encoding gzip and gzip in the text", coding, got.Header, got.Text)
		}
	}
	c.Do("GET", "/port-speed", nil, "Content-Encoding", "br").Want(200)
}

// A body in a charset other than UTF-8 is refused, and the error says so.
func TestCharsets(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	for n, kind := range []string{"application/json", "application/json; charset=utf-8", `application/json;charset="UTF-8"`, "Application/JSON; Charset=utf8"} {
		c.Do("POST", "/port-speed", `{"name": "é`+kind[:n]+`", "speed": 1, "billing_id": null}`, "Content-Type", kind).Want(200)
	}
	for _, kind := range []string{
		"application/json; charset=iso-8859-1", "application/json; charset=utf-16", "text/csv; charset=windows-1252",
	} {
		if got := c.Do("POST", "/port-speed", "{}", "Content-Type", kind).Want(415); !strings.Contains(got.Text, "UTF-8") {
			t.Errorf("%s: got %s, want UTF-8 in it", kind, got.Text)
		}
	}
}
