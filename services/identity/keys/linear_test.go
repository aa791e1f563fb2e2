package keys

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The time to check a body grows no faster than its length.
func TestBodiesAreResolvedInLinearTime(t *testing.T) {
	for name, resolve := range map[string]func(text string){
		"a key":    func(text string) { (&Body{Key: secret.New(text)}).Resolve(&problem.Fields{}) },
		"an owner": func(text string) { b := Body{}; b.Owner.URL = "/admin/" + text; b.Resolve(&problem.Fields{}) },
		"an owner's path": func(text string) {
			b := Body{}
			b.Owner.URL = work.Fill("/", len(text))
			b.Resolve(&problem.Fields{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) string { return work.Fill("a1", n) }, resolve)
		})
	}
}
