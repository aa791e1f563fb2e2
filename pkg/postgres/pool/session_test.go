package pool_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// A role that lacks settings is found by the statements that it needs, and gets them when its service migrates. What an
// administrator has set stays.
func TestRoleWithoutSettings(t *testing.T) {
	t.Parallel()
	const schema = "settled"
	added := map[string]string{"jit": "off"}
	url := testkit.Databases(t, testkit.Service{Name: schema})[schema]
	administrator, _ := administrate(t, url)
	check := func() error {
		t.Helper()
		p, err := pool.Open(t.Context(), url.Reveal(), 1, pool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return pool.CheckSession(t.Context(), p.DB, schema, added)
	}
	ensure := func() {
		p, err := pool.Open(t.Context(), url.Reveal(), 1, pool.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		conn, err := p.Connect(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(t.Context())
		if err := pool.EnsureSession(t.Context(), conn, schema, added); err != nil {
			t.Error(err)
		}
	}
	administrator("ALTER ROLE test_settled RESET jit")
	administrator("ALTER ROLE test_settled RESET lock_timeout")
	administrator("ALTER ROLE test_settled SET statement_timeout = '90s'")
	err := check()
	for _, want := range []string{
		`jit is "on"`, `lock_timeout is "0"`, `ALTER ROLE "test_settled" SET jit = 'off';`, `ALTER ROLE "test_settled" SET lock_timeout = '10000';`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "statement_timeout") {
		t.Errorf("got %v, want nothing about a timeout that the administrator has set", err)
	}
	var ensuring sync.WaitGroup
	for range 4 { // instances that migrate at once
		ensuring.Go(ensure)
	}
	ensuring.Wait()
	if err := check(); err != nil {
		t.Errorf("after a migration: got %v, want no error", err)
	}
	administrator("ALTER ROLE test_settled RESET search_path")
	if err := check(); err == nil || !strings.Contains(err.Error(), `SET search_path = "settled", ext;`) {
		t.Errorf("without a search_path: got %v, want an error with the statement", err)
	}
	administrator("ALTER ROLE test_settled SET search_path = settled, ext")
}
