package main

import (
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/tour"
)

// TestReadmeTour runs the tours of the README and of the docs, and compares the output with these pages.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")})
	tour.Take(t, "../..", r.URL, r.key())
}
