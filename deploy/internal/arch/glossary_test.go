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
	var words []string
	for line := range strings.Lines(string(page)) {
		if word, ok := strings.CutPrefix(line, "| "); ok {
			word, _, _ = strings.Cut(word, " |")
			words = append(words, word)
		}
	}
	words = words[1:] // without the heading
	if len(words) < 20 || len(words) > maxGlossaryEntries {
		t.Errorf("got %d entries, want 20 to %d: rather use a word that the field knows", len(words), maxGlossaryEntries)
	}
	if !slices.IsSorted(words) {
		t.Error("got entries out of order, want them sorted")
	}
}
