package product_test

import (
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
)

// The API document is compressed for callers that accept gzip, and the same for others.
func TestDocumentIsCompressed(t *testing.T) {
	t.Parallel()
	_, c := producttest.Shared(t)
	plain := c.Do("GET", "/-/openapi.json", nil, "Accept-Encoding", "identity").Want(200)
	compressed := c.Do("GET", "/-/openapi.json", nil, "Accept-Encoding", "gzip").Want(200)
	if got := compressed.Header.Get("Content-Encoding"); got != "gzip" || plain.Header.Get("Content-Encoding") != "" {
		t.Fatalf("got the encodings %q with gzip and %q without, want gzip and none", got, plain.Header.Get("Content-Encoding"))
	}
	reader, err := gzip.NewReader(strings.NewReader(compressed.Text))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil || string(text) != plain.Text {
		t.Errorf("got another document with gzip (%v), want the same", err)
	}
}
