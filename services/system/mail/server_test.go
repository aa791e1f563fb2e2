package mail

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
)

func newServer(t *testing.T, scheme string, box *mailbox.Server, user, password string) *Server {
	t.Helper()
	s, err := NewServer(scheme+"://"+box.Addr, user, secret.New(password), "noreply@example.com")
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{RootCAs: box.Roots, ServerName: "localhost"}
	return s
}

func sampleMessage() outgoingMessage {
	return outgoingMessage{
		messageID:     "7f3a",
		at:            time.Unix(1_800_000_000, 0),
		from:          "Exämple, Hosting",
		to:            netmail.Address{Name: "Ben \"M\" Müller", Address: "ben@example.org"},
		RenderedEmail: RenderedEmail{Subject: "Grüße", Text: "Hällo\n.\nEnd\n", HTML: "<p>Hällo</p>"},
	}
}

// parse parses a mail like a mail program.
func parse(t *testing.T, text []byte) (header netmail.Header, parts map[string]string) {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	parts = map[string]string{}
	read := func(kind, encoding string, body io.Reader) {
		if strings.EqualFold(encoding, "quoted-printable") {
			body = quotedprintable.NewReader(body)
		}
		content, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		parts[kind] = strings.ReplaceAll(string(content), "\r\n", "\n")
	}
	kind, parameters, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		read(kind, m.Header.Get("Content-Transfer-Encoding"), m.Body)
		return m.Header, parts
	}
	for all := multipart.NewReader(m.Body, parameters["boundary"]); ; {
		part, err := all.NextRawPart()
		if errors.Is(err, io.EOF) {
			return m.Header, parts
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
		read(kind, part.Header.Get("Content-Transfer-Encoding"), part)
	}
}

// A mail arrives unchanged, encrypted and authenticated as the server's URL says.
func TestDeliver(t *testing.T) {
	t.Parallel()
	for scheme, o := range map[string]mailbox.Options{
		"smtp": {STARTTLS: true, Password: "correct horse"}, "smtps": {TLS: true, Password: "correct horse"}, "smtp+plain": {},
	} {
		box := mailbox.Start(t, o)
		user := ""
		if o.Password != "" {
			user = "ironplane"
		}
		if err := newServer(t, scheme, box, user, o.Password).deliver(t.Context(), sampleMessage()); err != nil {
			t.Errorf("%s: got %v, want no error", scheme, err)
			continue
		}
		got := box.Mails()
		if len(got) != 1 || got[0].From != "noreply@example.com" || len(got[0].To) != 1 || got[0].To[0] != "ben@example.org" ||
			got[0].User != user ||
			got[0].Encrypted != (scheme != "smtp+plain") {
			t.Errorf("%s: got %+v, want one mail to Ben, of user %q", scheme, got, user)
			continue
		}
		header, parts := parse(t, got[0].Data)
		subject, _ := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
		from, err := header.AddressList("From")
		to, err2 := header.AddressList("To")
		if err != nil || err2 != nil || from[0].Name != "Exämple, Hosting" || to[0].Name != `Ben "M" Müller` || subject != "Grüße" ||
			header.Get("Message-ID") != "<7f3a@example.com>" || header.Get("Auto-Submitted") != "auto-generated" || header.Get("Bcc") != "" {
			t.Errorf("%s: got the header %v, want the names, the subject and the ID as sent", scheme, header)
		}
		if at, err := header.Date(); err != nil || at.Unix() != 1_800_000_000 {
			t.Errorf("%s: got the date %v, %v, want 1800000000", scheme, at, err)
		}
		if strings.TrimSpace(parts["text/plain"]) != "Hällo\n.\nEnd" || strings.TrimSpace(parts["text/html"]) != "<p>Hällo</p>" ||
			len(parts) != 2 {
			t.Errorf("%s: got %q, want both parts as sent", scheme, parts)
		}
	}
}

// A copy only goes to its recipient, and names the mail's recipient in To.
func TestDeliverCopy(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	l := sampleMessage()
	l.copyTo, l.HTML = "ann@example.com", ""
	if err := newServer(t, "smtp+plain", box, "", "").deliver(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	got := box.Mails()
	if len(got) != 1 || len(got[0].To) != 1 || got[0].To[0] != "ann@example.com" {
		t.Fatalf("got %+v, want one mail to Ann", got)
	}
	header, parts := parse(t, got[0].Data)
	if to, err := header.AddressList("To"); err != nil || to[0].Address != "ben@example.org" || bytes.Contains(got[0].Data, []byte("ann@")) {
		t.Errorf("got %v, %s, want it to Ben without Ann's address", err, got[0].Data)
	}
	if len(parts) != 1 || parts["text/plain"] == "" {
		t.Errorf("got %q, want text only", parts)
	}
}

// A server with an untrusted certificate, without encryption, or with another password gets no mail. The error is temporary.
func TestDeliverNothing(t *testing.T) {
	t.Parallel()
	plain, encrypted, locked := mailbox.Start(
		t,
		mailbox.Options{},
	), mailbox.Start(
		t,
		mailbox.Options{TLS: true},
	), mailbox.Start(
		t,
		mailbox.Options{STARTTLS: true, Password: "correct horse"},
	)
	untrusted := newServer(t, "smtps", encrypted, "", "")
	untrusted.TLS = nil
	for name, s := range map[string]*Server{
		"no STARTTLS": newServer(t, "smtp", plain, "", ""), "an untrusted certificate": untrusted,
		"a wrong password": newServer(t, "smtp", locked, "ironplane", "wrong horse"),
		"no password":      newServer(t, "smtp", locked, "", ""), "no TLS": newServer(t, "smtps", plain, "", ""),
	} {
		err := s.deliver(t.Context(), sampleMessage())
		if _, refused := errors.AsType[refusedError](err); err == nil || refused || strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: got %v, want an error that is not final and lacks the password", name, err)
		}
	}
	if n := plain.Accepted() + encrypted.Accepted() + locked.Accepted(); n != 0 {
		t.Errorf("got %d mails, want 0", n)
	}
}

// The server's status decides whether a mail is retried.
func TestDeliverRefused(t *testing.T) {
	t.Parallel()
	for code, final := range map[int]bool{450: false, 451: false, 550: true, 552: true} {
		box := mailbox.Start(t, mailbox.Options{Refuse: func(int, string) error { return &smtp.SMTPError{Code: code, Message: "no"} }})
		err := newServer(t, "smtp+plain", box, "", "").deliver(t.Context(), sampleMessage())
		if _, refused := errors.AsType[refusedError](err); err == nil || refused != final {
			t.Errorf("%d: got %v, want an error with final = %t", code, err, final)
		}
	}
	cut := mailbox.Start(t, mailbox.Options{Cut: func(attempt int) (bool, bool) { return attempt == 1, false }})
	s := newServer(t, "smtp+plain", cut, "", "")
	if err := s.deliver(t.Context(), sampleMessage()); err == nil {
		t.Error("got a delivery by a connection that is cut off, want an error")
	}
	if err := s.deliver(t.Context(), sampleMessage()); err != nil || cut.Accepted() != 1 {
		t.Errorf("got %d mails, %v, want 1", cut.Accepted(), err)
	}
}

// Line breaks in names and subjects cannot add headers or recipients.
func TestNoHeaderInjection(t *testing.T) {
	t.Parallel()
	box := mailbox.Start(t, mailbox.Options{})
	s := newServer(t, "smtp+plain", box, "", "")
	l := sampleMessage()
	l.to.Name = "Ben\r\nBcc: eve@example.com\r\n\r\nx"
	l.Subject = "Hi\r\nBcc: eve@example.com"
	l.from = "Site\r\nX-Evil: 1"
	for _, copyTo := range []string{"", "ann@example.com"} {
		l.copyTo = copyTo
		if err := s.deliver(t.Context(), l); err != nil {
			t.Errorf("copy to %q: got %v, want no error", copyTo, err)
		}
	}
	if n := len(box.Mails()); n != 2 {
		t.Errorf("got %d mails, want 2", n)
	}
	for _, got := range box.Mails() {
		header, _ := parse(t, got.Data)
		if header.Get("Bcc") != "" || header.Get("X-Evil") != "" || len(got.To) != 1 || got.To[0] == "eve@example.com" {
			t.Errorf("got a mail to %+v, want one recipient and no header of the attacker\n%s", got.To, got.Data)
		}
	}
}

func TestNewServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, user, from, says string }{
		{"mail.example.com", "", "a@example.com", "must be a URL"},
		{"smtp://ironplane:horse@mail.example.com", "", "a@example.com", "must be a URL"},
		{"http://mail.example.com", "", "a@example.com", "must begin with"},
		{"smtp+plain://localhost", "ironplane", "a@example.com", "unencrypted"},
		{"smtp://mail.example.com", "", "", "IRONPLANE_MAIL_FROM"},
		{"smtp://mail.example.com", "", "Example", "IRONPLANE_MAIL_FROM"},
	} {
		if _, err := NewServer(
			c.address,
			c.user,
			secret.New("horse"),
			c.from,
		); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "horse") {
			t.Errorf("%v: got %v, want %q without the password", c, err, c.says)
		}
	}
	if s, err := NewServer(
		"smtps://mail.example.com",
		"u",
		secret.New("p"),
		"Example Hosting <a@example.com>",
	); err != nil ||
		s.From.Name != "Example Hosting" {
		t.Error(err)
	}
}
