package pxe_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// awaitKnown waits until the agent knows of the end of an install.
func (b *bootSite) awaitKnown(m target) {
	b.Helper()
	testkit.Eventually(b.T, fmt.Sprintf("the agent knows of the end of install %d", m.id), func() bool { return b.view(m).Reason == nil })
}

// wantDisk boots a machine, which must boot its disk.
func (b *bootSite) wantDisk(name string, m target) {
	b.Helper()
	if script := b.agent.Boot(m.mac, m.address); !strings.Contains(script, "sanboot") || strings.Contains(script, "kernel") {
		b.Errorf("%s: got the script\n%s\nwant one that boots the disk", name, script)
	}
}

// A machine whose install was cancelled or has failed never boots an installer again by itself: not at its next boots, not after a
// restart of its agent, and not while the control plane is away.
func TestEndedInstallsBootTheDisk(t *testing.T) {
	t.Parallel()
	b := newBootWith(t, service.Tuning{PollInterval: time.Second}) // nothing wakes the task when an install expires
	tokens := map[string]string{}
	boot := func(name string, m target) {
		tokens[name] = b.bootToken(m)
		b.awaitStatus(m, "booting")
	}
	begin := func(name string, m target) {
		boot(name, m)
		b.agent.PostEvent(tokens[name], "progress", m.address, "step=disk")
		b.awaitStatus(m, "installing")
	}
	cancel := func(m target) { b.Do("POST", path("/pxe/install/%d/cancel", m.id), nil).Want(200) }
	ways := map[string]func(name string, m target){
		"cancelled while it waits":    func(_ string, m target) { b.bootUntil(m, "kernel"); cancel(m) },
		"cancelled while it boots":    func(name string, m target) { boot(name, m); cancel(m) },
		"cancelled while it installs": func(name string, m target) { begin(name, m); cancel(m) },
		"failed by its installer": func(name string, m target) {
			begin(name, m)
			b.agent.PostEvent(tokens[name], "failed", m.address, "error=no+disk")
		},
		"took too long": func(name string, m target) {
			begin(name, m)
			testkit.Execute(t, b.DB, fmt.Sprintf("UPDATE install SET stage_at = now() - interval '1 day' WHERE id = %d", m.id))
		},
		"its IP entity was deleted": func(name string, m target) { boot(name, m); b.Network.DeleteMachine(m.entity) },
	}
	ended := map[string]target{}
	for name, end := range ways {
		m := b.install("")
		end(name, m)
		ended[name] = m
	}
	for name, m := range ended {
		want := "failed"
		if strings.HasPrefix(name, "cancelled") {
			want = "cancelled"
		}
		b.awaitStatus(m, want)
		b.awaitKnown(m)
		b.wantDisk(name, m)
		if token := tokens[name]; token != "" {
			if got := b.agent.Request("GET", "/i/"+token+"/preseed", m.address, ""); got.Code != 404 {
				t.Errorf("%s: got the status %d for the preseed, want 404", name, got.Code)
			}
		}
	}
	b.agent.IsDown.Store(true)
	b.agent.Restart()
	for name, m := range ended {
		b.wantDisk(name+", after a restart of the agent", m)
	}
}

// Until the agent knows that an install was cancelled, the install says that the machine may start its installer.
func TestCancelWhileTheAgentIsAway(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	m := b.install("")
	b.bootUntil(m, "kernel")
	b.awaitStatus(m, "booting")
	b.agent.IsDown.Store(true)
	b.Do("POST", path("/pxe/install/%d/cancel", m.id), nil).Want(200)
	want := fmt.Sprintf("The agent of DHCP server %d (Berlin) does not know of this yet. "+
		"Until then the machine may start its installer.", b.dhcp)
	if i := b.view(m); i.Status != "cancelled" || i.Reason == nil || *i.Reason != want {
		t.Errorf("got %+v, want it cancelled with the reason %q", i, want)
	}
	b.agent.IsDown.Store(false)
	b.awaitKnown(m)
	b.wantDisk("cancelled", m)
}

// An agent that was restored from a snapshot does not install a machine again, and none of its later reports is lost or counted twice.
func TestAgentFromSnapshot(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	done, waiting := b.install(""), b.install("")
	token := b.bootToken(done)
	b.awaitStatus(done, "booting")
	testkit.Eventually(t, "the agent knows the second machine", func() bool { return len(b.agent.Agent.Machines().Revisions()) == 2 })
	restore := b.agent.Snapshot()
	b.agent.PostEvent(token, "progress", done.address, "step=disk")
	b.agent.PostEvent(token, "done", done.address, "")
	b.awaitStatus(done, "installed")
	b.bootUntil(done, "sanboot")
	b.awaitKnown(done)

	b.agent.IsDown.Store(true)
	restore()
	for _, m := range []target{done, waiting} {
		if script := b.agent.Boot(m.mac, m.address); !strings.Contains(script, "has not confirmed this install") {
			t.Errorf("got the script\n%s\nwant one that waits for the control plane", script)
		}
	}
	// More entries than the restore has lost, so that the feed goes beyond the last entry that was read.
	files := []string{"preseed", "nocloud/user-data", "nocloud/meta-data", "during", "after"}
	for _, file := range files {
		b.agent.MustRequest("GET", "/i/"+token+"/"+file, done.address, "")
	}
	b.agent.IsDown.Store(false)
	b.bootUntil(done, "sanboot")
	b.agent.PostEvent(b.bootToken(waiting), "done", waiting.address, "")
	b.awaitStatus(waiting, "installed")
	i := b.view(done)
	if i.Status != "installed" {
		t.Errorf("got %+v, want it installed", i)
	}
	for kind, want := range map[string]int{
		siteagent.EventBooted: 1, siteagent.EventDone: 1, siteagent.EventRead: len(files), siteagent.EventWaiting: 1,
	} {
		got := 0
		for _, request := range i.Requests {
			if request.Kind == kind {
				got++
			}
		}
		if got != want {
			t.Errorf("got %d requests of the kind %s, want %d: %+v", got, kind, want, i.Requests)
		}
	}
}

// The clock of an agent may be wrong: its reports have the time of the control plane.
func TestClockOfAnAgent(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	for _, offset := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		b.agent.ClockOffset.Store(int64(offset))
		m := b.install("")
		b.bootToken(m)
		i := b.awaitStatus(m, "booting")
		times := []time.Time{i.SeenAt.Time}
		for _, request := range i.Requests {
			times = append(times, request.At.Time)
		}
		if slices.ContainsFunc(times, func(at time.Time) bool { return time.Since(at).Abs() > time.Hour }) {
			t.Errorf("got the times %v with a clock that is %s ahead, want about %s", times, offset, time.Now())
		}
	}
}

// The slots of an agent that cannot be reached stay in use, and installs that wait for them say so, until the others are cancelled.
func TestSlotsOfADeadAgent(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.Do("PATCH", path("/pxe/file/%d", b.fileServer), `{"install_max_concurrent": 1}`).Want(200)
	first, second := b.install(""), b.install("")
	const hint = "Waiting installs whose agent cannot be reached hold 1 of the slots until they are cancelled."
	if reason := *b.view(second).Reason; strings.Contains(reason, hint) {
		t.Errorf("got the reason %q of an agent that answers, want it without %q", reason, hint)
	}
	b.agent.IsDown.Store(true)
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(*b.view(second).Reason, text) }
	}
	testkit.Eventually(t, "the second install says what holds the slot", says(hint))
	b.Do("POST", path("/pxe/install/%d/cancel", first.id), nil).Want(200)
	testkit.Eventually(t, "the second install has the slot", says("cannot be reached."))
}
