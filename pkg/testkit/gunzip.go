package testkit

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// Gunzip returns the uncompressed content of a gzip file.
func Gunzip(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
