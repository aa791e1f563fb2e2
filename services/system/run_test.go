package system_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/system"
)

// running is the system service with doubles of its neighbours. Its Client is an admin with all permissions.
type running struct {
	*testkit.RunningService
	*neighbours.All

	t      testing.TB
	admins int64
	groups int64
}

func run(t testing.TB, settings service.Settings) *running {
	t.Helper()
	s, all := neighbours.Run(t, system.Definition, testkit.ServiceOptions{Settings: settings})
	all.Identity.SetAdmin(1, keycache.Owner{Active: true, Grants: principal.All})
	return &running{RunningService: s, All: all, t: t, admins: 1}
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// addAdmin returns the id and a client of a new admin with these permissions.
func (r *running) addAdmin(grants ...string) (int64, *testkit.Client) {
	r.admins++
	holds := principal.ParseGrants(grants)
	r.Identity.SetAdmin(r.admins, keycache.Owner{Active: true, Grants: holds})
	return r.admins, r.As(newPrincipal(principal.Admin, r.admins, holds))
}

// newPrincipal returns a principal with these permissions.
func newPrincipal(ownerType principal.OwnerType, id int64, grants principal.Grants) *principal.Principal {
	return &principal.Principal{KeyID: 100 + id, Owner: principal.Owner{Type: ownerType, ID: id}, Name: "someone", Grants: grants}
}

// createGroup creates an IP group in the network service, whose event the system service receives.
func (r *running) createGroup(name string) int64 {
	r.t.Helper()
	r.groups++
	r.Network.SetGroup(r.groups, name)
	return r.groups
}

// editGroup renames an IP group in the network service.
func (r *running) editGroup(id int64, name string) {
	r.t.Helper()
	r.Network.SetGroup(id, name)
}

// changeGroup edits or deletes an IP group in the network service.
func (r *running) changeGroup(id int64, action pg.Action, before, after any) {
	r.t.Helper()
	r.Network.Change("group", action, before, after, pg.Target{Type: "group", Noun: "IP group", ID: id, Name: "a group", Version: 2})
}

// awaitLog waits until the log has as many items for a query as wanted, and returns them.
func (r *running) awaitLog(query string, want int) []system.LogItem {
	r.t.Helper()
	return testkit.Await(r.t, fmt.Sprintf("the log has %d items of %s", want, query), func() []system.LogItem {
		return testkit.Decode[[]system.LogItem](r.Do("GET", "/log?"+query, nil).Want(200))
	}, func(items []system.LogItem) bool { return len(items) == want })
}

// The service fulfils the same contract as its double in other services' tests.
func TestContract(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	id := s.Do("POST", "/integration", `{"name": "Shop"}`).Want(200).ID()
	s.Do("POST", "/email/template", `{"name": "welcome", "subject": "Hi", "body": "Hi"}`).Want(200)
	neighbours.SystemContract(t, s.Handler(), id, "Shop", "welcome")
}
