package field

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The cost of checking a text is linear in its length.
func TestFieldsAreResolvedInLinearTime(t *testing.T) {
	for name, c := range map[string]struct {
		part string
		body func(text string) fieldBody
	}{
		"options": {"ab|", func(text string) fieldBody {
			return fieldBody{Slug: "x", TargetType: "client", Type: "select", Options: &text, Default: new("none")}
		}},
		"a slug": {"a-", func(text string) fieldBody { return fieldBody{Slug: text, Type: "text"} }},
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) string { return work.Fill(c.part, n) }, func(text string) {
				body := c.body(text)
				body.Resolve(&problem.Fields{})
			})
		})
	}
}

// FuzzFieldValue checks that an accepted value has one spelling: it is accepted again as it is stored.
func FuzzFieldValue(f *testing.F) {
	for _, text := range []string{
		"", " ", "\x00", "\xff", " 12", "12 ", "12", "012", "-0", "+1", "1_000", "９", "2026-02-30", "2026-2-3", "TRUE", "true", "a|b", "a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []string{"checkbox", "date", "integer", "select"} {
			if valueCheck(kind, new("a|b c"))(text) == "" && strings.TrimSpace(text) != text {
				t.Fatalf("got %q accepted as a value of type %s, want it refused", text, kind)
			}
		}
	})
}
