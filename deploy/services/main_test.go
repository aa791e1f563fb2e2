package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
)

const root = "../.."

// Every file that names the services has what follows from their definitions.
func TestFilesAreInStep(t *testing.T) {
	t.Parallel()
	files, err := derive(root, product.Services)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Errorf("%s is out of step with product.Services: run make services, and commit what it writes", name)
	}
}
