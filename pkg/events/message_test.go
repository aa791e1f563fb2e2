package events_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// messageFixture sends messages from the owner's outbox to the user's inbox.
type messageFixture struct {
	*fixture
	outbox *events.Outbox
	box    *seal.Box
	mesh.Peers
	lost atomic.Int32 // how many of the next responses are lost
}

func newMessageFixture(t *testing.T) *messageFixture {
	s := newFixture(t)
	key, err := seal.Derive(seal.NewMasterKey(), "owner", seal.Sealing(events.MessageKey("user")))
	if err != nil {
		t.Fatal(err)
	}
	box, err := key.Box(events.MessageKey("user"))
	if err != nil {
		t.Fatal(err)
	}
	p := &messageFixture{fixture: s, box: box, outbox: &events.Outbox{Receiver: "user", Box: box}}
	owner := rest.NewHandler("owner", s.owner, slog.New(slog.DiscardHandler), []rest.Route{events.MessageRoute(s.owner, "user")})
	p.Peers = peers.New("user", map[string]http.Handler{"owner": owner})
	return p
}

// Ask sends the question, and loses the response if lost says so.
func (p *messageFixture) Ask(ctx context.Context, service, path string, into any) error {
	err := p.Peers.Ask(ctx, service, path, into)
	if p.lost.Add(-1) >= 0 {
		return mesh.ErrUnavailable
	}
	return err
}

// send sends a message in the unit of work of a change, which after ends.
func (p *messageFixture) send(kind, content, confidential string, after func(*pg.Tx, int64) error) {
	p.Helper()
	p.change(func(tx *pg.Tx, id int64) error {
		if err := p.outbox.Send(p.Context(), tx, kind, map[string]string{"text": content}, secret.New(confidential)); err != nil {
			return err
		}
		return after(tx, id)
	})
}

// startInbox starts an instance of the user's inbox, which stores the text and the secret of each note.
func (p *messageFixture) startInbox() {
	inbox := &events.Inbox{
		Source:   "owner",
		Box:      p.box,
		Interval: lookInterval,
		Handlers: map[string]events.MessageHandler{"note": func(ctx context.Context, tx *pg.Tx, m events.Message) error {
			var content struct{ Text string }
			if err := json.Unmarshal(m.Content, &content); err != nil {
				return err
			}
			if content.Text == "poison" {
				return errors.New("poison")
			}
			_, err := tx.Exec(ctx, "INSERT INTO applied (seq, type, item, version) VALUES ($1, $2, 0, 0)", m.N, content.Text+m.Secret.Reveal())
			return err
		}},
	}
	p.repeat(func(ctx context.Context) error { return inbox.Run(ctx, p.user, p, nil) })
}

// received returns the stored texts, sorted.
func (p *messageFixture) received() (all string) {
	p.Helper()
	if err := p.user.QueryRow(p.Context(), "SELECT coalesce(string_agg(type, ' ' ORDER BY type), '') FROM applied").Scan(&all); err != nil {
		p.Fatal(err)
	}
	return all
}

// A message is received once if its unit of work was committed, and is deleted then. A message that cannot be received does not
// block others.
func TestMessages(t *testing.T) {
	t.Parallel()
	p := newMessageFixture(t)
	p.send("note", "poison", "", commit)
	p.send("unknown", "x", "", commit)
	p.send("note", "undone", "", rollBack)
	p.send("note", "a", ":token", commit)
	var sealed []byte
	if err := p.owner.QueryRow(t.Context(), "SELECT sealed FROM message WHERE sealed IS NOT NULL").
		Scan(&sealed); err != nil ||
		bytes.Contains(sealed, []byte("token")) {
		t.Errorf("got the message %q, %v, want it sealed", sealed, err)
	}
	p.startInbox()
	p.startInbox() // another instance
	for range 250 {
		p.send("note", "b", "", commit)
	}
	testkit.Eventually(p, "all messages are received except the two that fail", func() bool { return count(p, p.owner, "message") == 2 })
	if got := p.received(); got != "a:token"+strings.Repeat(" b", 250) {
		t.Errorf("got the messages %s, want a:token and 250 times b", got)
	}

	var id string
	if err := p.owner.QueryRow(t.Context(), "SELECT id FROM message WHERE kind = 'unknown'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	skip := func(name, text string) error {
		t.Helper()
		var skipped events.Span
		if err := skipped.UnmarshalText([]byte(text)); err != nil || skipped.String() != text {
			t.Fatalf("got the span %s, %v, want %s", skipped.String(), err, text)
		}
		return host.SkipChange(t.Context(), service.Definition{Name: name}, service.Deps{DB: p.owner}, skipped)
	}
	for name, text := range map[string]string{"user": "owner:" + id, "owner": "owner:00000000-0000-0000-0000-000000000000"} {
		if err := skip(name, text); !errors.Is(err, host.ErrNotStopped) {
			t.Errorf("%s skips %s: got %v, want %v", name, text, err, host.ErrNotStopped)
		}
	}
	if err := skip("owner", "owner:"+id); err != nil || count(t, p.owner, "message") != 1 {
		t.Errorf("got %d messages left, %v, want 1", count(t, p.owner, "message"), err)
	}
	var record string
	if err := p.owner.QueryRow(t.Context(), "SELECT type || ' ' || (targets->0->>'name') FROM change WHERE type = 'event.skipped'").
		Scan(&record); err != nil ||
		record != "event.skipped owner:"+id {
		t.Errorf("got the record %q, %v, want event.skipped owner:%s", record, err, id)
	}
}

// A message is received once, also if the response that confirms it is lost, or if its sender is restored from a backup and
// sends it again.
func TestMessageSentTwice(t *testing.T) {
	t.Parallel()
	p := newMessageFixture(t)
	p.send("note", "a", ":token", commit)
	testkit.Execute(p, p.owner, "CREATE TABLE backup AS SELECT * FROM message")
	p.lost.Store(3)
	p.startInbox()
	testkit.Eventually(p, "the message is confirmed", func() bool { return count(p, p.owner, "message") == 0 })
	testkit.Execute(p, p.owner, "INSERT INTO message OVERRIDING SYSTEM VALUE SELECT * FROM backup")
	testkit.Eventually(p, "the message is confirmed again", func() bool { return count(p, p.owner, "message") == 0 })
	if got := p.received(); got != "a:token" {
		t.Errorf("got the messages %s, want a:token", got)
	}
	for _, age := range []string{"80 days", "100 days"} {
		testkit.Execute(p, p.user, "INSERT INTO message_taken (id, at) VALUES (gen_random_uuid(), now() - $1::interval)", age)
	}
	if err := host.Sweep(t.Context(), p.user); err != nil || count(t, p.user, "message_taken") != 2 {
		t.Errorf("got %d known messages, %v, want 2", count(t, p.user, "message_taken"), err)
	}
}

// A message that was sealed with an older key can be opened.
func TestMessageOfOlderKey(t *testing.T) {
	t.Parallel()
	p := newMessageFixture(t)
	first, second := seal.NewMasterKey(), seal.NewMasterKey()
	newBox := func(text string) *seal.Box {
		key, err := seal.Derive(secret.New(text), "owner", seal.Sealing(events.MessageKey("user")))
		if err != nil {
			t.Fatal(err)
		}
		box, err := key.Box(events.MessageKey("user"))
		if err != nil {
			t.Fatal(err)
		}
		return box
	}
	p.outbox.Box = newBox(first.Reveal())
	p.send("note", "a", ":token", commit)
	p.outbox.Box = newBox(second.Reveal() + "," + first.Reveal())
	p.send("note", "b", ":token", commit)
	p.box = p.outbox.Box
	p.startInbox()
	testkit.Eventually(p, "both messages are received", func() bool { return p.received() == "a:token b:token" })
}
