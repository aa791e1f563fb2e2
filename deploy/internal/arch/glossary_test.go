package arch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const maxGlossaryEntries = 40

// The glossary is short enough to be read in one go, and sorted.
func TestGlossary(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	var terms []string
	for line := range strings.Lines(string(page)) {
		if word, ok := strings.CutPrefix(line, "| "); ok {
			word, _, _ = strings.Cut(word, " |")
			terms = append(terms, word)
		}
	}
	terms = terms[1:] // without the heading
	if len(terms) < 20 || len(terms) > maxGlossaryEntries {
		t.Errorf("got %d entries, want 20 to %d: rather use a word that the field knows", len(terms), maxGlossaryEntries)
	}
	if !slices.IsSorted(terms) {
		t.Error("got entries out of order, want them sorted")
	}
}
