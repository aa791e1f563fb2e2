package main

import (
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/tour"
)

// The README's tour gives the answers that it prints.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")})
	tour.Take(t, "../../README.md", r.URL, r.key())
}
