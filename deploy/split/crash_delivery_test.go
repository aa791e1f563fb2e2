package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// eventKinds are the kinds of items whose events the webhook subscribes to.
var eventKinds = []string{"client", "entity", "group", "port-speed", "pxe.dhcp", "auth.key"}

// subject is the subject of the mails that callers request.
const subject = "Welcome"

// post has the servers that receive mails and events during the crashes, and that misbehave on purpose.
type post struct {
	t        *testing.T
	box      *mailbox.Server
	receiver *receiver.Server
	hook     int64

	mu        sync.Mutex
	requested map[string]int  // the number of requested mails, by address
	maybe     map[string]bool // addresses whose mails may be lost with the system service's schema
}

func newPost(t *testing.T) *post {
	return &post{t: t, requested: map[string]int{}, maybe: map[string]bool{},
		box: mailbox.Start(t, mailbox.Options{TLS: true,
			Refuse: func(attempt int, to string) error {
				switch {
				case isRefused(to):
					return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody of that name"}
				case attempt == 1:
					return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted"}
				}
				return nil
			},
			Cut: func(int) (cut, accepted bool) { return rand.IntN(10) == 0, rand.IntN(2) == 0 },
		}),
		receiver: receiver.Start(t, func(n int, r *receiver.Received, _ http.ResponseWriter) int {
			switch {
			case n%100 == 7:
				return http.StatusGone
			case n%500 == 50 && *full: // the response never comes, so the sender gives up or dies
				<-r.Left
				return http.StatusInternalServerError
			case n%50 == 20:
				panic(http.ErrAbortHandler) // cuts the connection
			case rand.IntN(3) == 0:
				return http.StatusInternalServerError
			}
			return http.StatusNoContent
		}),
	}
}

// isRefused reports whether the SMTP server always refuses an address.
func isRefused(to string) bool { return strings.HasSuffix(to, "7@example.com") }

// environment returns the variables that connect the system service to these servers.
func (p *post) environment() []string {
	file := filepath.Join(p.t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, p.box.Certificate, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return []string{
		"IRONPLANE_SMTP=smtps://" + p.box.Addr,
		"IRONPLANE_MAIL_FROM=noreply@example.com",
		"IRONPLANE_ALLOWED_NETWORKS=127.0.0.1",
		"SSL_CERT_FILE=" + file,
	}
}

// open creates the webhook, and the template for the mails to clients.
func (p *post) open(c *testkit.Client) {
	var types []string
	for _, kind := range eventKinds {
		types = append(types, kind+".*")
	}
	created := testkit.Decode[webhook.Webhook](c.Do("POST", "/webhook", map[string]any{"url": p.receiver.URL, "types": types}).Want(200))
	p.receiver.Trust(created.Secret)
	p.hook = created.ID
	c.Do("POST", "/email/template", map[string]any{"name": "welcome", "subject": subject, "body": "Welcome to {{.Site.Name}}."}).Want(200)
}

// addMail records that a mail was requested.
func (p *post) addMail(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requested[to]++
}

// addLost records that all mails requested so far may be lost.
func (p *post) addLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for to := range p.requested {
		p.maybe[to] = true
	}
}

// speedUp makes delayed retries due at once and enables the webhook again after its receiver answered 410, until
// ctx ends. It ignores errors, because the services it needs may be down.
func (p *post) speedUp(ctx context.Context, f *fleet, c *testkit.Client) {
	url, err := os.ReadFile(f.file(system.Name + ".database-url"))
	if err != nil {
		p.t.Error(err)
		return
	}
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		_, _ = c.Try("PATCH", fmt.Sprintf("/webhook/%d", p.hook), `{"enabled": true}`)
		conn, err := pgx.Connect(ctx, string(url))
		if err != nil {
			continue
		}
		_, _ = conn.Exec(ctx, "UPDATE webhook_delivery SET next_at = now() WHERE status = 'waiting' AND next_at < 'infinity' AND next_at > now()")
		_, _ = conn.Exec(ctx, "UPDATE webhook SET paused_until = NULL WHERE paused_until IS NOT NULL")
		_, _ = conn.Exec(ctx, "UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state = 'retryable' AND kind = 'mail'")
		_ = conn.Close(ctx)
	}
}

// event is a change that the webhook must receive.
type event struct {
	source, kind, item string
	seq                int64
}

func (p *post) events(databases map[string]*pg.DB) map[string]event {
	t := p.t
	t.Helper()
	var since time.Time // read from the database, because the API rounds times
	if err := databases[system.Name].QueryRow(t.Context(), "SELECT created_at FROM webhook WHERE id = $1", p.hook).Scan(&since); err != nil {
		t.Fatal(err)
	}
	all := map[string]event{}
	for source, db := range databases {
		rows, err := db.Query(
			t.Context(),
			"SELECT uuid::text, type, targets -> 0 ->> 'type' || '/' || (targets -> 0 ->> 'id'), seq FROM change WHERE kind = ANY ($1) AND at > $2",
			addSubKinds(eventKinds),
			since,
		)
		if err != nil {
			t.Fatal(err)
		}
		e := event{source: source}
		var id string
		if _, err := pgx.ForEachRow(rows, []any{&id, &e.kind, &e.item, &e.seq}, func() error { all[id] = e; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// addSubKinds returns the kinds with those of items below them.
func addSubKinds(kinds []string) []string {
	return append([]string{"client.sub", "client.super"}, kinds...)
}

// check waits until all mails and events have arrived, and compares them with the changes.
func (p *post) check(databases map[string]*pg.DB) {
	p.t.Helper()
	p.checkEvents(p.events(databases))
	p.checkMails()
	p.awaitNone("unfinished jobs and deliveries", func() (left []string) {
		rows, err := databases[system.Name].Query(
			p.t.Context(),
			"SELECT kind || ' ' || args FROM river_job WHERE finalized_at IS NULL UNION ALL SELECT 'delivery ' || id FROM webhook_delivery "+
				"WHERE status = 'waiting'",
		)
		if err == nil {
			left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			p.t.Fatal(err)
		}
		return left
	})
	rows, err := databases[system.Name].Query(
		p.t.Context(),
		`SELECT template || ' to ' || to_email || ' is ' || status || ': ' || coalesce(error, '') FROM email_message WHERE to_email LIKE '%7@example.com'
		AND (status <> 'failed' OR error NOT LIKE '%nobody of that name%' AND error NOT LIKE 'the account was already notified%' AND error <> 'it was in progress when the backup was made, and may have been sent')`,
	)
	if err != nil {
		p.t.Fatal(err)
	}
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(others) > 0 {
		p.t.Errorf("got the mails %q (%v), want all mails to refused addresses failed because of the address", others, err)
	}
}

// awaitNone waits until missing returns nothing. It fails the test after waitTimeout without progress.
func (p *post) awaitNone(condition string, missing func() []string) (all bool) {
	p.t.Helper()
	fewest, since := -1, time.Now()
	for ; ; time.Sleep(100 * time.Millisecond) {
		left := missing()
		if len(left) == 0 {
			return true
		}
		if fewest < 0 || len(left) < fewest {
			fewest, since = len(left), time.Now()
		}
		if time.Since(since) > waitTimeout {
			p.t.Errorf("%s: got %d left: %s, want none", condition, len(left), strings.Join(left[:min(len(left), 10)], "; "))
			return false
		}
	}
}

func (p *post) checkEvents(wanted map[string]event) {
	p.t.Helper()
	var all []receiver.Received
	var first map[string]int
	complete := p.awaitNone("missing events", func() (missing []string) {
		all, first = p.receiver.All(), map[string]int{}
		for n := range all {
			if _, seen := first[all[n].ID]; all[n].Accepted && !seen {
				first[all[n].ID] = n
			}
		}
		for id, e := range wanted {
			if _, seen := first[id]; !seen {
				missing = append(missing, fmt.Sprintf("%s of %s, change %d of %s", e.kind, e.item, e.seq, e.source))
			}
		}
		return missing
	})
	if !complete {
		return
	}
	bodies := map[string][]byte{}
	doubles, last := 0, map[string]event{}
	for n := range all {
		r := &all[n]
		if before, seen := bodies[r.ID]; seen && !bytes.Equal(before, r.Body) {
			p.t.Errorf("event %s, sent again: got %s, want %s", r.ID, r.Body, before)
		}
		bodies[r.ID] = r.Body
		e, known := wanted[r.ID]
		switch {
		case !r.Accepted, !known: // an unknown event was lost with the restored schema
		case first[r.ID] != n:
			doubles++
		default:
			if before, seen := last[e.item]; seen && before.seq > e.seq {
				p.t.Errorf("%s: got change %d before %d, want them in order", e.item, before.seq, e.seq)
			}
			last[e.item] = e
		}
	}
	p.t.Logf("accepted %d events of %d items after %d attempts; %d were duplicates", len(first), len(last), len(all), doubles)
}

func (p *post) checkMails() {
	p.t.Helper()
	p.awaitNone("missing or unexpected mails", func() (unexpected []string) {
		received := map[string]map[string]bool{}
		for _, m := range p.box.Mails() {
			read, err := netmail.ReadMessage(bytes.NewReader(m.Data))
			if err != nil || !m.Encrypted {
				p.t.Errorf("got the mail %s, encrypted %t (%v), want an encrypted one that parses", m.Data, m.Encrypted, err)
				continue
			}
			if read.Header.Get("Subject") != subject { // other mails notify accounts of changes
				continue
			}
			if received[m.To[0]] == nil {
				received[m.To[0]] = map[string]bool{}
			}
			received[m.To[0]][read.Header.Get("Message-Id")] = true
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for to, n := range p.requested {
			got := len(received[to])
			if isRefused(to) {
				n = 0
			}
			if got > n || got < n && !p.maybe[to] {
				unexpected = append(unexpected, fmt.Sprintf("%s has %d mails, want %d", to, got, n))
			}
			delete(received, to)
		}
		for to := range received {
			unexpected = append(unexpected, to+" has mails that no caller requested")
		}
		return unexpected
	})
	p.t.Logf("%d addresses accepted %d mails", len(p.requested), p.box.Accepted())
}
