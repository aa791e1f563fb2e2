package admin

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The time to check a body grows no faster than its length.
func TestBodiesAreResolvedInLinearTime(t *testing.T) {
	for name, resolve := range map[string]func(text string){
		"an email address":      func(text string) { (&adminBody{Email: text + "@example.com"}).Resolve(&problem.Fields{}) },
		"a quoted address":      func(text string) { (&adminBody{Email: `"` + text + `"@example.com`}).Resolve(&problem.Fields{}) },
		"comments":              func(text string) { (&adminBody{Email: work.Fill("(", len(text))}).Resolve(&problem.Fields{}) },
		"a username":            func(text string) { (&adminBody{Username: text}).Resolve(&problem.Fields{}) },
		"a password":            func(text string) { (&adminBody{Password: secret.New(text)}).Resolve(&problem.Fields{}) },
		"a password's strength": func(text string) { account.CheckStrength(secret.New(text), nil, nil, &problem.Fields{}) },
		"an account's words": func(text string) {
			account.CheckStrength(secret.New(text[:64]), nil, []string{text}, &problem.Fields{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 16<<10, func(n int) string { return work.Fill("a1", n) }, resolve)
		})
	}
}
