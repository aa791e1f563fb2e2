package pxe_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agenttest"
)

// A file server serves a limited number of installs at a time. A machine that asks comes before one that does not.
func TestConcurrentInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second, third := b.install(""), b.install(""), b.install("")
	if i := b.view(third); i.Status != "waiting" || i.Reason == nil || !strings.Contains(*i.Reason, "is full: it serves at most 1 at a time") {
		t.Errorf("got %+v, want it waiting because the file server is full", i)
	}
	b.bootUntil(third, "full")
	token := b.bootToken(third) // its machine has asked, and the first one's has not
	b.awaitStatus(third, "booting")
	b.bootUntil(second, "full")
	b.agent.PostEvent(token, "done", third.address, "")
	b.awaitStatus(third, "installed")
	b.bootToken(second)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 2}`).Want(200)
	b.bootToken(first)
	testkit.Execute(
		t,
		b.DB,
		fmt.Sprintf("UPDATE install SET password = '\\x00', revision = nextval('install_revision') WHERE id = %d", first.id),
	)
	if i := b.awaitStatus(first, "failed"); *i.Error != "Its password cannot be unsealed." {
		t.Errorf("got %+v, want the error that its password cannot be unsealed", i)
	}
}

// A machine may receive its boot script just when its slot is revoked. It goes on, and the install that was to get the
// slot waits.
func TestSlotRevokedDuringBoot(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	scripts := make(chan string, 1)
	boots := sync.OnceFunc(func() { scripts <- b.agent.Boot(first.mac, first.address) })
	b.agent.OnRequest(func(r *http.Request, body string) {
		if r.Method == "PUT" && r.URL.Path == path("/v1/machine/%d", first.id) && strings.Contains(body, "is full") {
			boots()
		}
	})
	b.bootUntil(second, "full")
	token := agenttest.Token(<-scripts)
	reads := func() {
		t.Helper()
		if preseed := b.agent.MustRequest("GET", "/i/"+token+"/preseed", first.address, ""); !strings.Contains(preseed, first.address) {
			t.Errorf("got the preseed %s, want it with %s", preseed, first.address)
		}
	}
	reads()
	b.awaitStatus(first, "booting")
	reads()
	for range 3 {
		b.bootUntil(second, "full")
		if i := b.view(second); i.Reason == nil || !strings.Contains(*i.Reason, "is full: it serves at most 1 at a time") {
			t.Errorf("got %+v for the second install, want it waiting because the file server is full", i)
		}
		time.Sleep(time.Second) // slots are assigned again meanwhile
	}
	b.agent.PostEvent(token, "done", first.address, "")
	b.awaitStatus(first, "installed")
	b.bootToken(second)
}

// A machine whose agent was never reached holds no slot.
func TestSlotOfUnreachableAgent(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	body := `{"install_max_concurrent": 1, "name": "` + strings.Repeat("\u0436", 250) + `"}`
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), body).Want(200)
	unreachable := b.create("/pxe/dhcp", map[string]any{"name": "unreachable", "host": "127.0.0.1", "port": 1, "api_key": agentKey})
	b.forcedInstall("agent_unreachable", fmt.Sprintf(`, "dhcp_server": %d`, unreachable))
	second := b.install("")
	b.bootUntil(second, "File server")
	b.bootToken(second)
}

// A machine that has not asked for five minutes loses its slot to one that asks.
func TestSlotOfSilentMachine(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	hasSlot := func(m target) bool { return b.view(m).Reason == nil }
	b.bootUntil(second, "full")
	testkit.Eventually(t, "it has the slot, because the first did not ask", func() bool { return hasSlot(second) })
	silent := func(minutes int) {
		testkit.Execute(
			t,
			b.DB,
			fmt.Sprintf("UPDATE install SET seen_at = now() - interval '%d minutes' WHERE id = %d", minutes, second.id),
		)
	}
	silent(4)
	testkit.Eventually(t, "the agent knows that the first lost the slot", func() bool {
		var revision int64
		if err := b.DB.QueryRow(t.Context(), "SELECT revision FROM install WHERE id = $1", first.id).
			Scan(&revision); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(b.agent.Agent.Machines().Revisions(), siteagent.MachineRevision{ID: first.id, Revision: revision})
	})
	b.bootUntil(first, "full")
	testkit.Eventually(t, "the first is seen", func() bool { return b.view(first).SeenAt != nil })
	third := b.install("") // which assigns the slots again
	if !hasSlot(second) || hasSlot(first) || hasSlot(third) {
		t.Error("got the slot moved or lost within four minutes of silence, want the second install to keep it")
	}
	silent(6)
	b.bootToken(first)
	if text := *b.view(second).Reason; !strings.Contains(text, "is full: it serves at most 1 at a time") {
		t.Errorf("got the reason %s, want that the file server is full", text)
	}
}

// Of twenty machines at once, each gets its own address and files, and cannot read those of another. If the file server
// has five slots, the others wait, with the reason.
func TestTwentyInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	const all = 20
	ask := func() (machines []target) {
		for range all {
			machines = append(machines, b.install(""))
		}
		return machines
	}
	end := func(m target, token string) {
		b.agent.PostEvent(token, "progress", m.address, "step=disk&progress=50")
		b.agent.PostEvent(token, "done", m.address, "")
	}
	machines, tokens := ask(), make([]string, all)
	for n, m := range machines {
		tokens[n] = b.bootToken(m)
	}
	for n, m := range machines {
		if preseed := b.agent.MustRequest("GET", "/i/"+tokens[n]+"/preseed", m.address, ""); !strings.Contains(preseed, " "+m.address+" ") {
			t.Errorf("machine %d: got the preseed %s, want it with %s", n, preseed, m.address)
		}
		if status := b.agent.Request("GET", "/i/"+tokens[(n+1)%all]+"/preseed", m.address, "").Code; status != http.StatusNotFound {
			t.Errorf("machine %d: got %d for another machine's preseed, want %d", n, status, http.StatusNotFound)
		}
		end(m, tokens[n])
	}
	for _, m := range machines {
		b.awaitStatus(m, "installed")
	}

	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 5}`).Want(200)
	machines = ask()
	for installed := 0; installed < all; installed += 5 {
		var waiting, granted []target
		for _, i := range testkit.Decode[[]install.Install](b.Do("GET", "/pxe/install?status=waiting", nil).Want(200)) {
			m := machines[slices.IndexFunc(machines, func(m target) bool { return m.id == i.ID })]
			if i.Reason == nil {
				granted = append(granted, m)
			} else if waiting = append(waiting, m); !strings.Contains(*i.Reason, "is full: it serves at most 5 at a time") {
				t.Errorf("got the reason %s, want that the file server is full", *i.Reason)
			}
		}
		if len(granted) != 5 || len(waiting) != all-installed-5 {
			t.Fatalf("got %d installs with a slot and %d that wait, want 5 and %d", len(granted), len(waiting), all-installed-5)
		}
		for _, m := range waiting[:min(1, len(waiting))] {
			b.bootUntil(m, "full")
		}
		for _, m := range granted {
			end(m, b.bootToken(m))
		}
		for _, m := range granted {
			b.awaitStatus(m, "installed")
		}
		testkit.Eventually(t, "the next installs have slots", func() bool {
			still := testkit.Decode[[]install.Install](b.Do("GET", "/pxe/install?status=waiting", nil).Want(200))
			return len(slices.DeleteFunc(still, func(i install.Install) bool { return i.Reason != nil })) == min(5, len(waiting))
		})
	}
}
