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

// told are the kinds of items of whose events the webhook of the crashes is told.
var told = []string{"client", "entity", "group", "port-speed", "pxe.dhcp", "auth.key"}

// subject is that of the mails that callers ask for.
const subject = "Welcome"

// post is where mails and events go during the crashes: to servers that misbehave.
type post struct {
	t        *testing.T
	box      *mailbox.Server
	receiver *receiver.Server
	hook     int64

	mu    sync.Mutex
	asked map[string]int  // mails by address
	maybe map[string]bool // addresses whose mails may be lost with the system service's schema
}

func newPost(t *testing.T) *post {
	return &post{t: t, asked: map[string]int{}, maybe: map[string]bool{},
		box: mailbox.Start(t, mailbox.Options{TLS: true,
			Refuse: func(attempt int, to string) error {
				switch {
				case refused(to):
					return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody of that name"}
				case attempt == 1:
					return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted"}
				}
				return nil
			},
			Cut: func(int) (cut, taken bool) { return rand.IntN(10) == 0, rand.IntN(2) == 0 },
		}),
		receiver: receiver.Start(t, func(n int, r *receiver.Received, _ http.ResponseWriter) int {
			switch {
			case n%100 == 7:
				return http.StatusGone
			case n%500 == 50 && *full: // it hangs, until it is given up or its sender dies
				<-r.Left
				return http.StatusInternalServerError
			case n%50 == 20:
				panic(http.ErrAbortHandler) // the connection is cut
			case rand.IntN(3) == 0:
				return http.StatusInternalServerError
			}
			return http.StatusNoContent
		}),
	}
}

// refused tells whether the SMTP server will never take a mail to an address.
func refused(to string) bool { return strings.HasSuffix(to, "7@example.com") }

// environment is what the system service needs for it.
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

// open makes the webhook, and the template by which clients are written to.
func (p *post) open(c *testkit.Client) {
	var types []string
	for _, kind := range told {
		types = append(types, kind+".*")
	}
	made := testkit.Decode[webhook.Webhook](c.Do("POST", "/webhook", map[string]any{"url": p.receiver.URL, "types": types}).Want(200))
	p.receiver.Trust(made.Secret)
	p.hook = made.ID
	c.Do("POST", "/email/template", map[string]any{"name": "welcome", "subject": subject, "body": "Welcome to {{.Site.Name}}."}).Want(200)
}

// mailed notes that a mail was asked for.
func (p *post) mailed(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[to]++
}

// lost notes that mails which were asked for so far may be lost.
func (p *post) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for to := range p.asked {
		p.maybe[to] = true
	}
}

// hurry has tried now what is to be tried later, and enables the webhook again when its receiver has said that it is gone, until
// ctx ends. What it needs may be away.
func (p *post) hurry(ctx context.Context, f *fleet, c *testkit.Client) {
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

// event is a change that the webhook is to be told of.
type event struct {
	source, kind, item string
	seq                int64
}

func (p *post) events(databases map[string]*pg.DB) map[string]event {
	t := p.t
	t.Helper()
	var since time.Time // to which answers are not exact enough
	if err := databases[system.Name].QueryRow(t.Context(), "SELECT created_at FROM webhook WHERE id = $1", p.hook).Scan(&since); err != nil {
		t.Fatal(err)
	}
	all := map[string]event{}
	for source, db := range databases {
		rows, err := db.Query(
			t.Context(),
			"SELECT uuid::text, type, targets -> 0 ->> 'type' || '/' || (targets -> 0 ->> 'id'), seq FROM change WHERE kind = ANY ($1) AND at > $2",
			withParts(told),
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

// withParts are kinds, and those of what is below them.
func withParts(kinds []string) []string {
	return append([]string{"client.sub", "client.super"}, kinds...)
}

// check waits until everybody has been told of everything, and compares.
func (p *post) check(databases map[string]*pg.DB) {
	p.t.Helper()
	p.checkEvents(p.events(databases))
	p.checkMails()
	p.until("jobs and deliveries end", func() (left []string) {
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
		AND (status <> 'failed' OR error NOT LIKE '%nobody of that name%' AND error NOT LIKE 'the account was told%' AND error <> 'it was in progress when the backup was made, and may have been sent')`,
	)
	if err != nil {
		p.t.Fatal(err)
	}
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(others) > 0 {
		p.t.Errorf("got the mails %q (%v), want all mails to refused addresses failed because of the address", others, err)
	}
}

// until waits until nothing is left of what is to come, as long as there is progress.
func (p *post) until(what string, missing func() []string) (all bool) {
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
		if time.Since(since) > patience {
			p.t.Errorf("%s: got %d left: %s, want none", what, len(left), strings.Join(left[:min(len(left), 10)], "; "))
			return false
		}
	}
}

func (p *post) checkEvents(wanted map[string]event) {
	p.t.Helper()
	var all []receiver.Received
	var first map[string]int
	come := p.until("all events have come", func() (missing []string) {
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
	if !come {
		return
	}
	said := map[string][]byte{}
	doubles, last := 0, map[string]event{}
	for n := range all {
		r := &all[n]
		if before, seen := said[r.ID]; seen && !bytes.Equal(before, r.Body) {
			p.t.Errorf("event %s, sent again: got %s, want %s", r.ID, r.Body, before)
		}
		said[r.ID] = r.Body
		e, known := wanted[r.ID]
		switch {
		case !r.Accepted, !known: // it was lost with the schema that was restored
		case first[r.ID] != n:
			doubles++
		default:
			if before, there := last[e.item]; there && before.seq > e.seq {
				p.t.Errorf("%s: got change %d before %d, want them in order", e.item, before.seq, e.seq)
			}
			last[e.item] = e
		}
	}
	p.t.Logf("%d events were taken, of %d items, after %d attempts; %d were taken once more", len(first), len(last), len(all), doubles)
}

func (p *post) checkMails() {
	p.t.Helper()
	p.until("all mails have come", func() (wrong []string) {
		came := map[string]map[string]bool{}
		for _, m := range p.box.Mails() {
			read, err := netmail.ReadMessage(bytes.NewReader(m.Data))
			if err != nil || !m.Encrypted {
				p.t.Errorf("got the mail %s, encrypted %t (%v), want an encrypted one that parses", m.Data, m.Encrypted, err)
				continue
			}
			if read.Header.Get("Subject") != subject { // what accounts are told of changes
				continue
			}
			if came[m.To[0]] == nil {
				came[m.To[0]] = map[string]bool{}
			}
			came[m.To[0]][read.Header.Get("Message-Id")] = true
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for to, n := range p.asked {
			got := len(came[to])
			if refused(to) {
				n = 0
			}
			if got > n || got < n && !p.maybe[to] {
				wrong = append(wrong, fmt.Sprintf("%s has %d mails of %d", to, got, n))
			}
			delete(came, to)
		}
		for to := range came {
			wrong = append(wrong, to+" has mails that nobody asked for")
		}
		return wrong
	})
	p.t.Logf("%d addresses were mailed to, which took %d mails", len(p.asked), p.box.Accepted())
}
