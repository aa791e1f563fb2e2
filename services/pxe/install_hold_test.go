package pxe_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// awaitPushed waits until the agent knows the present state of an install.
func (b *bootSite) awaitPushed(m target) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("the agent knows the state of install %d", m.id), func() bool {
		var revision int64
		if err := b.DB.QueryRow(b.Context(), "SELECT revision FROM install WHERE id = $1", m.id).Scan(&revision); err != nil {
			b.Fatal(err)
		}
		return slices.Contains(b.agent.Agent.Machines().Revisions(), siteagent.MachineRevision{ID: m.id, Revision: revision})
	})
}

// A waiting install of a suspended client gives its machine no boot script, says why, and does not lapse. It goes on when the
// suspension is lifted. Installs that have begun go on.
func TestInstallOfSuspendedClient(t *testing.T) {
	t.Parallel()
	b := newBootWith(t, service.Tuning{PollInterval: time.Second}) // nothing wakes the task when an install expires
	suspend := func(suspended bool) {
		b.Clients.Set(credentials.Account{ID: b.client, Name: "Ben Miller", Email: "ben@example.org", Disabled: suspended})
	}
	ofClient := fmt.Sprintf(`, "client": %d`, b.client)
	begun, waiting, own := b.install(ofClient), b.install(ofClient), b.install("")
	b.bootToken(begun)
	suspend(true)
	created := b.install(ofClient)
	reason := fmt.Sprintf("Client %d (Ben Miller) is suspended. The install waits until that is lifted.", b.client)
	for _, m := range []target{waiting, created} {
		testkit.Eventually(t, "the install is held", func() bool {
			i := b.view(m)
			return i.Status == install.Waiting && i.Reason != nil && *i.Reason == reason
		})
		b.awaitPushed(m)
		if script := b.bootUntil(m, "is suspended"); strings.Contains(script, "kernel") {
			t.Errorf("got %s, want no kernel", script)
		}
	}
	if i := b.view(begun); i.Status != install.Booting || i.Reason != nil {
		t.Errorf("got %s, want it booting without a reason", testkit.JSON(i))
	}

	testkit.Execute(t, b.DB, "UPDATE install SET stage_at = now() - interval '30 days' WHERE status = 'waiting'")
	b.awaitStatus(own, install.Failed)
	for _, m := range []target{waiting, created} {
		if i := b.view(m); i.Status != install.Waiting {
			t.Errorf("got %s, want it waiting", testkit.JSON(i))
		}
	}
	suspend(false)
	for _, m := range []target{waiting, created} {
		b.bootToken(m)
	}
}
