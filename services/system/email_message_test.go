package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	netmail "net/mail"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/system"
	systemmail "github.com/ironplane/ironplane/services/system/mail"
)

// mailFixture is the system service with its jobs, on its own database.
type mailFixture struct {
	*testkit.Client
	testing.TB
	pool  *pool.Pool
	deps  service.Deps
	parts service.Parts
	away  atomic.Bool
	stop  func()
}

func newMailFixture(t testing.TB, smtp string) *mailFixture {
	t.Helper()
	opened, err := pool.Open(
		t.Context(),
		testkit.Databases(t, testkit.Service{Name: system.Name, Migrations: system.Definition.Migrations})[system.Name].Reveal(),
		10,
		pool.Options{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	o := &mailFixture{TB: t, pool: opened, stop: func() {}}
	o.deps = service.Deps{DB: opened.DB, Box: mustBox(t, seal.NewMasterKey().Reveal()), Peers: o, Log: slog.New(slog.DiscardHandler),
		Wakes: testkit.Wakes(system.Name, opened.DB)}
	t.Cleanup(func() { o.stop() })
	o.start(smtp)
	return o
}

func (*mailFixture) Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, timeout)
}

// Ask answers like identity: with the recipients of copies, and with an admin's permissions.
func (o *mailFixture) Ask(_ context.Context, _, _ string, into any) error {
	if o.away.Load() {
		return errors.New("identity is away")
	}
	switch into := into.(type) {
	case *[]string:
		*into = []string{"ann@example.com"}
	case *[]mail.AdminWriter:
		*into = []mail.AdminWriter{{ID: 1, Name: "admin", Email: "admin@example.com"}, {ID: 4, Name: "zoe", Email: "zoe@example.com"}}
	case *keycache.Owner:
		*into = keycache.Owner{Active: true, Grants: principal.All}
	}
	return nil
}

// start starts the service. It first stops one that runs.
func (o *mailFixture) start(smtp string) {
	o.Helper()
	o.stop()
	o.deps.SMTP, o.deps.MailFrom, o.deps.AllowedNetworks = smtp, "noreply@example.com", "127.0.0.1"
	o.parts = system.Definition.New(o.deps)
	o.Client = testkit.NewClient(
		o.TB,
		testkit.As(rest.NewHandler(system.Name, o.deps.DB, slog.New(slog.DiscardHandler), o.parts.Routes), testkit.AdminWith(principal.All)),
	)
	working, end := context.WithCancel(o.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := jobs.NewRunner(system.Name, o.deps.DB, o.pool.Connections(), o.deps.Wakes, o.parts.Jobs, slog.New(slog.DiscardHandler)).
			Work(working); err != nil &&
			working.Err() == nil {
			o.Error(err)
		}
	})
	for _, loop := range o.parts.Tasks {
		if loop.Name == "deliver-webhooks" {
			done.Go(func() {
				if err := loop.Run(working); err != nil && working.Err() == nil {
					o.Error(err)
				}
			})
		}
	}
	o.stop = sync.OnceFunc(func() {
		end()
		done.Wait()
	})
}

func (o *mailFixture) inTx(do func(tx *pg.Tx) error) {
	o.Helper()
	if err := o.deps.DB.InTx(o.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return do(tx)
	}); err != nil {
		o.Fatal(err)
	}
}

func (o *mailFixture) execute(sql string) {
	o.Helper()
	o.inTx(func(tx *pg.Tx) error { _, err := tx.Exec(o.Context(), sql); return err })
}

// send sends a mail as if another service had asked for it, and returns its id.
func (o *mailFixture) send(template string, content mail.Content) (id int64) {
	o.Helper()
	return o.receive(o.newMessage(template, content))
}

// newMessage returns the message with which another service asks for a mail.
func (o *mailFixture) newMessage(template string, content mail.Content) (m events.Message) {
	o.Helper()
	var to mail.To
	to.To.Name, to.To.First, to.To.Email = "Ben Miller", "Ben", "ben@example.org"
	key, err := seal.Derive(seal.NewMasterKey(), "clients", seal.Sealing(events.MessageKey(system.Name)))
	if err != nil {
		o.Fatal(err)
	}
	box, err := key.Box(events.MessageKey(system.Name))
	if err != nil {
		o.Fatal(err)
	}
	o.inTx(func(tx *pg.Tx) error {
		if err := mail.SendTemplate(
			o.Context(),
			tx,
			&events.Outbox{Receiver: system.Name, Box: box},
			template,
			"/client/5",
			to,
			content,
		); err != nil {
			return err
		}
		err := tx.QueryRow(o.Context(), "DELETE FROM message RETURNING n, id::text, content, sealed").Scan(&m.N, &m.ID, &m.Content, &m.Sealed)
		if err == nil && m.Sealed != nil {
			m.Secret, err = box.Open(seal.Location{Table: "message", Column: "sealed", ID: m.N}, m.Sealed)
		}
		return err
	})
	return m
}

// receive receives a message, and returns the mail's id.
func (o *mailFixture) receive(m events.Message) (id int64) {
	o.Helper()
	o.inTx(func(tx *pg.Tx) error {
		if err := o.parts.MessageHandlers[mail.MessageKind](o.Context(), tx, m); err != nil {
			return err
		}
		return tx.QueryRow(o.Context(), "SELECT max(id) FROM email_message").Scan(&id)
	})
	return id
}

func (o *mailFixture) getMail(id int64) systemmail.EmailMessage {
	o.Helper()
	return testkit.Decode[systemmail.EmailMessage](o.Do("GET", fmt.Sprintf("/email/message/%d", id), nil).Want(200))
}

// awaitStatus waits until a mail has a status. Retries happen immediately.
func (o *mailFixture) awaitStatus(id int64, status string) systemmail.EmailMessage {
	o.Helper()
	return o.awaitMail("mail is "+status, id, func(m systemmail.EmailMessage) bool { return m.Status == status })
}

func (o *mailFixture) awaitMail(condition string, id int64, isTrue func(systemmail.EmailMessage) bool) systemmail.EmailMessage {
	o.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		m := o.getMail(id)
		if isTrue(m) {
			return m
		}
		if time.Now().After(deadline) {
			o.Fatalf("got %+v, want that %s", m, condition)
		}
		o.retryNow()
	}
}

// retryNow makes all jobs that wait for a retry due.
func (o *mailFixture) retryNow() {
	o.Helper()
	o.execute("UPDATE river_job SET state = 'available', scheduled_at = now() WHERE state = 'retryable'")
}

// countSecrets returns how many mails have a sealed secret.
func (o *mailFixture) countSecrets() (n int) {
	o.Helper()
	if err := o.deps.DB.QueryRow(o.Context(), "SELECT count(*) FROM email_message WHERE sealed IS NOT NULL").Scan(&n); err != nil {
		o.Fatal(err)
	}
	return n
}

const token = "s3cr3t-t0ken"

// sampleContents returns a content of each kind. Secrets contain the token.
func sampleContents() []mail.Content {
	soon := time.Now().Add(time.Hour)
	link := secret.New("https://panel.example.com/auth/password-reset/7#token=" + token)
	return []mail.Content{
		mail.ClientAccountCreated{Link: link, Expires: soon},
		mail.ClientLinked{By: "Ann", Relation: "sub"},
		mail.AccountChanged{
			Changes: []string{"The password was changed."},
			By:      "ann",
			At:      time.Now(),
			IP:      "192.0.2.7",
		},
		mail.KeyExpires{Key: "shop", Expires: soon},
		mail.PasswordReset{Link: link, Expires: soon, IP: "192.0.2.7"},
		mail.TwoFactorCode{Code: secret.New(token), Expires: soon},
		mail.FailedLogins{Count: 10, At: time.Now(), IP: "192.0.2.7"},
		mail.FailedSecondFactor{At: time.Now(), IP: "192.0.2.7"},
		mail.InstallFinished{Hostname: "web1", Address: "192.0.2.10", Profile: "Debian 13", Status: "installed"},
		mail.ClientAdoption{By: "Shop", Link: link, Expires: soon},
	}
}

// Each built-in template is rendered, sent and received with its secret. Operators and recipients of copies do not see the
// secret.
func TestBuiltInMailsArrive(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	secrets := 0
	for _, content := range sampleContents() {
		id := o.send(content.Kind(), content)
		m := o.awaitStatus(id, "sent")
		if m.SentAt == nil || m.Error != nil || m.Attempts != 1 || m.To.Email != "ben@example.org" || m.Template != content.Kind() ||
			m.Account != "/client/5" {
			t.Errorf("%s: got %+v, want it sent to Ben at the first attempt", content.Kind(), m)
		}
		shown := o.Do("GET", "/email/message", nil).Want(200).Text
		if strings.Contains(shown, token) {
			t.Errorf("%s: got the secret in the list, want it hidden", content.Kind())
		}
		var received *mailbox.Mail
		for _, got := range box.Mails() {
			if got.To[0] == "ben@example.org" {
				received = &got
			}
		}
		if received == nil {
			t.Fatalf("%s: got no mail, want one", content.Kind())
		}
		parsed, err := netmail.ReadMessage(bytes.NewReader(received.Data))
		if err != nil || parsed.Header.Get("Subject") == "" || !strings.HasPrefix(parsed.Header.Get("Content-Type"), "multipart/alternative") {
			t.Errorf("%s: got %v, %s, want a multipart/alternative mail with a subject", content.Kind(), err, received.Data)
		}
		plain := bytes.ReplaceAll(received.Data, []byte("=\r\n"), nil)
		has := bytes.Count(plain, []byte(token))
		if strings.Contains(m.Text, "[secret]") {
			secrets++
			if has != 2 || !strings.Contains(m.HTML, "[secret]") { // in both parts
				t.Errorf("%s: got the secret %d times, want 2, and hidden in the HTML shown", content.Kind(), has)
			}
		} else if has != 0 {
			t.Errorf("%s: got the secret %d times, want 0", content.Kind(), has)
		}
	}
	if secrets != 4 || o.countSecrets() != 0 {
		t.Errorf("got %d mails with a secret and %d secrets kept, want 4 and 0", secrets, o.countSecrets())
	}
	// Mails with a secret have no copies.
	o.eventually("the copies are sent", func() bool { return box.Accepted() == 10+6 })
	for _, got := range box.Mails() {
		if got.To[0] == "ann@example.com" && bytes.Contains(got.Data, []byte(token)) {
			t.Error("got a copy with a secret, want none")
		}
	}
}

func (o *mailFixture) eventually(condition string, isTrue func() bool) {
	o.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !isTrue(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.Fatalf("got no change within 5 minutes, want that %s", condition)
		}
		o.retryNow()
	}
}

// runUntil runs a task until a condition is true.
func (o *mailFixture) runUntil(loop, condition string, isTrue func() bool) {
	o.Helper()
	n := slices.IndexFunc(o.parts.Tasks, func(l service.Task) bool { return l.Name == loop })
	working, end := context.WithCancel(o.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = o.parts.Tasks[n].Run(working) })
	o.eventually(condition, isTrue)
	end()
	done.Wait()
}

// Without an SMTP server, mails are held. Once there is one, an operator can send them, with their secrets.
func TestMailsAreHeld(t *testing.T) {
	t.Parallel()
	o := newMailFixture(t, "")
	id := o.send("password-reset", sampleContents()[4])
	if m := o.awaitStatus(id, "held"); strings.Contains(m.Text+m.HTML, token) || !strings.Contains(m.Text, "[secret]") {
		t.Errorf("got %+v, want the secret hidden", m)
	}
	sendPath := fmt.Sprintf("/email/message/%d/send", id)
	if m := testkit.Decode[systemmail.EmailMessage](o.Do("POST", sendPath, nil).Want(200)); m.Status != "held" {
		t.Errorf("got %+v, want it held", m)
	}
	box := mailbox.Start(t, mailbox.Options{})
	o.start("smtp+plain://" + box.Addr)
	if m := testkit.Decode[systemmail.EmailMessage](o.Do("POST", sendPath, nil).Want(200)); m.Status != "queued" {
		t.Errorf("got %+v, want it queued", m)
	}
	o.awaitStatus(id, "sent")
	if got := box.Mails(); len(got) != 1 || !bytes.Contains(bytes.ReplaceAll(got[0].Data, []byte("=\r\n"), nil), []byte(token)) {
		t.Errorf("got %+v, want one mail with the secret", got)
	}
	o.Do("POST", sendPath, nil).Want(409) // the secret is deleted
	o.Do("POST", "/email/message/999/send", nil).Want(404)

	// An expired mail is not sent, and its secret is deleted.
	o.start("")
	late := o.send("two-factor-code", sampleContents()[5])
	o.execute("UPDATE email_message SET expires_at = now() - interval '1 second' WHERE status = 'held'")
	o.Do("POST", fmt.Sprintf("/email/message/%d/send", late), nil).Want(409)
	o.runUntil("delete-old-mails", "the secret is deleted", func() bool { return o.countSecrets() == 0 })
}

// A mail is retried after a temporary refusal, and if the connection breaks after the server accepted it. All attempts have
// the same Message-ID.
func TestMailsAreRetried(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{
		Refuse: func(attempt int, to string) error {
			switch {
			case attempt == 1:
				return &smtp.SMTPError{Code: 451, Message: "greylisted"}
			case to == "ann@example.com":
				return &smtp.SMTPError{Code: 550, Message: "no such admin"}
			}
			return nil
		},
		Cut: func(attempt int) (bool, bool) { return attempt == 1, true },
	})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	o.away.Store(true)
	id := o.send("key-expires", sampleContents()[3])
	o.awaitMail("the mail was tried", id, func(systemmail.EmailMessage) bool {
		var failed int
		err := o.deps.DB.QueryRow(t.Context(), "SELECT coalesce(max(cardinality(errors)), 0) FROM river_job").Scan(&failed)
		return err == nil && failed > 0
	})
	o.away.Store(false)
	o.retryNow()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // the attempt after that is not retried early
		m := o.getMail(id)
		if m.Error != nil && strings.Contains(*m.Error, "greylisted") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v, want the error greylisted", m)
		}
	}
	if m := o.awaitStatus(id, "sent"); m.Attempts < 3 || m.Error != nil {
		t.Errorf("got %+v, want 3 attempts or more and no error", m)
	}
	got := box.Mails()
	if len(got) != 2 {
		t.Fatalf("got %d mails, want 2", len(got))
	}
	var ids []string
	for _, m := range got {
		parsed, err := netmail.ReadMessage(bytes.NewReader(m.Data))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, parsed.Header.Get("Message-ID"))
	}
	if ids[0] != ids[1] || !strings.HasSuffix(ids[0], "@example.com>") {
		t.Errorf("got the Message-IDs %v, want the same twice, of example.com", ids)
	}
}

// A message that is received twice, as after a restore of the service, makes two mails with the same Message-ID. Another
// message has another one.
func TestMessageIDIsStable(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	twice, once := o.newMessage("key-expires", sampleContents()[3]), o.newMessage("key-expires", sampleContents()[3])
	for _, m := range []events.Message{twice, twice, once} {
		o.awaitStatus(o.receive(m), "sent")
	}
	var got []string
	for _, m := range box.Mails() {
		if m.To[0] != "ben@example.org" { // a copy
			continue
		}
		parsed, err := netmail.ReadMessage(bytes.NewReader(m.Data))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, parsed.Header.Get("Message-ID"))
	}
	if len(got) != 3 || got[0] != got[1] || got[1] == got[2] {
		t.Errorf("got the Message-IDs %v, want the same twice, and then another one", got)
	}
}

// A refused mail whose outcome cannot be stored is retried, and fails then.
func TestMailsFailWhileTheDatabaseDoes(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{Refuse: func(int, string) error { return &smtp.SMTPError{Code: 550, Message: "no such user"} }})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	o.execute("ALTER TABLE email_message ADD CONSTRAINT broken CHECK (status <> 'failed')")
	id := o.send("password-reset", sampleContents()[4])
	o.awaitMail("the mail was refused", id, func(systemmail.EmailMessage) bool {
		var tried bool
		err := o.deps.DB.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM river_job WHERE kind = 'mail' AND cardinality(errors) > 0)").
			Scan(&tried)
		return err == nil && tried
	})
	o.execute("ALTER TABLE email_message DROP CONSTRAINT broken")
	if m := o.awaitStatus(id, "failed"); m.Error == nil || !strings.Contains(*m.Error, "no such user") {
		t.Errorf("got %+v, want the error no such user", m)
	}
}

// A mail that cannot be sent fails with the reason, and an operator can send it again.
func TestMailsFail(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	refuse.Store(true)
	box := mailbox.Start(t, mailbox.Options{Refuse: func(int, string) error {
		if refuse.Load() {
			return &smtp.SMTPError{Code: 550, Message: "no such user"}
		}
		return nil
	}})
	o := newMailFixture(t, "smtp+plain://"+box.Addr)
	id := o.send("password-reset", sampleContents()[4])
	if m := o.awaitStatus(id, "failed"); m.Error == nil || !strings.Contains(*m.Error, "no such user") || m.Attempts != 1 {
		t.Errorf("got %+v, want the error no such user after one attempt", m)
	}
	testkit.Eventually(t, "the job of the refused mail ends, and no attempt follows", func() bool {
		var state string
		err := o.deps.DB.QueryRow(t.Context(), "SELECT string_agg(state::text, ',') FROM river_job WHERE kind = 'mail'").Scan(&state)
		return err == nil && (state == "completed" || state == "cancelled" || state == "discarded")
	})
	unknown := o.send("nothing", mail.ForClient{})
	if m := o.getMail(unknown); m.Status != "failed" || !strings.Contains(*m.Error, "the template nothing does not exist") {
		t.Errorf("got %+v, want it failed without a template", m)
	}
	other := o.send("password-reset", mail.ForClient{})
	if m := o.getMail(other); m.Status != "failed" || !strings.Contains(*m.Error, "has type password-reset") {
		t.Errorf("got %+v, want it failed for the type password-reset", m)
	}
	refuse.Store(false)
	o.Do("POST", fmt.Sprintf("/email/message/%d/send", id), nil).Want(200)
	if m := o.awaitStatus(id, "sent"); m.Error != nil {
		t.Errorf("got %+v, want no error", m)
	}
	for query, want := range map[string]int{
		"?status=failed": 2, "?status=sent": 1, "?email=BEN@example.org": 3, "?template=nothing": 1, "?status=held": 0,
	} {
		if got := testkit.Decode[[]systemmail.EmailMessage](o.Do("GET", "/email/message"+query, nil).Want(200)); len(got) != want {
			t.Errorf("%s: got %d, want %d", query, len(got), want)
		}
	}

	// The setting email.days says how long mails are kept.
	o.execute("UPDATE email_message SET created_at = now() - interval '10 days' WHERE status <> 'sent'")
	o.execute("UPDATE setting SET chosen = '9' WHERE slug = 'email.days'")
	o.runUntil("delete-old-mails", "old mails are deleted", func() bool {
		return len(testkit.Decode[[]json.RawMessage](o.Do("GET", "/email/message", nil).Want(200))) == 1
	})
}
