package arch

import (
	"regexp"
	"testing"
)

// TestNamedArguments says that a statement with more than eight arguments names them: of numbered ones two are easily swapped
// when a column is added.
func TestNamedArguments(t *testing.T) {
	t.Parallel()
	ninth, comment := regexp.MustCompile(`\$(9|[1-9][0-9])\b`), regexp.MustCompile(`//.*`)
	for _, folder := range []string{"pkg", "services"} {
		sources(t, folder, func(path string, text []byte) {
			if found := ninth.Find(comment.ReplaceAll(text, nil)); found != nil {
				t.Errorf("%s has a statement with the argument %s: name its arguments, and give them as pgx.StrictNamedArgs", path, found)
			}
		})
	}
}
