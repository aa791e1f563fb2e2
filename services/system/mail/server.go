package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	netmail "net/mail"
	"net/url"
	"strconv"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Server sends mails to an SMTP server.
type Server struct {
	From netmail.Address // without a name, the installation's name is used
	TLS  *tls.Config     // nil: trust the system's certificate authorities; tests set it

	host    string
	options []gomail.Option
}

// sendTimeout limits each step of the dialog with the server.
const sendTimeout = 30 * time.Second

// NewServer returns the server at a URL such as smtp://mail.example.com. Connections to smtp:// use STARTTLS, and connections
// to smtps:// use TLS from the start. Connections to smtp+plain:// are not encrypted: use that for the same machine only.
func NewServer(address, user string, password secret.String, from string) (*Server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return nil, errors.New(
			"IRONPLANE_SMTP must be a URL such as smtp://mail.example.com:587, without a user and a path",
		) // err might contain a password
	}
	sender, err := netmail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("IRONPLANE_MAIL_FROM is %q, but must be an email address such as noreply@example.com", from)
	}
	s := &Server{From: *sender, host: u.Hostname()}
	port := map[string]int{"smtp": 587, "smtps": 465, "smtp+plain": 25}[u.Scheme]
	switch u.Scheme {
	case "smtp":
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case "smtps":
		s.options = append(s.options, gomail.WithSSL())
	case "smtp+plain":
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.NoTLS))
		if user != "" {
			return nil, errors.New("IRONPLANE_SMTP_USER is set, but smtp+plain:// would send the password unencrypted: use smtp:// or smtps://")
		}
	default:
		return nil, errors.New("IRONPLANE_SMTP must begin with smtp://, smtps:// or smtp+plain://")
	}
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return nil, errors.New("IRONPLANE_SMTP must have a number as its port")
		}
	}
	s.options = append(s.options, gomail.WithPort(port), gomail.WithTimeout(sendTimeout), gomail.WithoutNoop())
	if user != "" {
		s.options = append(
			s.options,
			gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover),
			gomail.WithUsername(user),
			gomail.WithPassword(password.Reveal()),
		)
	}
	return s, nil
}

// outgoingMessage is a mail as it is sent to the server.
type outgoingMessage struct {
	messageID string
	at        time.Time
	from      string // the sender's name, unless Server.From has one
	to        netmail.Address
	copyTo    string // the only recipient of a copy; empty: the mail goes to the address in to
	RenderedEmail
}

// refusedError means that the server refused the mail for good, so that a retry is pointless.
type refusedError struct{ error }

// deliver sends a mail to the server.
func (s *Server) deliver(ctx context.Context, l outgoingMessage) error {
	m := gomail.NewMsg()
	from := s.From
	if from.Name == "" {
		from.Name = l.from
	}
	m.FromMailAddress(&from)
	if l.copyTo == "" {
		m.ToMailAddress(&l.to)
	} else {
		m.SetGenHeaderPreformatted("To", l.to.String())
		m.BccMailAddress(&netmail.Address{Address: l.copyTo})
	}
	m.Subject(l.Subject)
	m.SetMessageIDWithValue(l.messageID + "@" + mailDomain(s.From.Address))
	m.SetDateWithValue(l.at)
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	m.SetBodyString(gomail.TypeTextPlain, l.Text)
	if l.HTML != "" {
		m.AddAlternativeString(gomail.TypeTextHTML, l.HTML)
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	connection, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to the SMTP server: %w", err)
	}
	err = client.SendWithSMTPClient(connection, m)
	_ = client.CloseWithSMTPClient(connection) // an error here cannot undo a delivery
	if m.IsDelivered() {
		return nil
	}
	if refusal, ok := errors.AsType[*gomail.SendError](err); ok && !refusal.IsTemp() && refusal.ErrorCode() >= 500 &&
		(refusal.Reason == gomail.ErrSMTPRcptTo || refusal.Reason == gomail.ErrSMTPData || refusal.Reason == gomail.ErrSMTPDataClose) {
		return refusedError{err}
	}
	return err
}

// client returns a client of the server that is not connected.
func (s *Server) client() (*gomail.Client, error) {
	options := append([]gomail.Option{gomail.WithHELO(mailDomain(s.From.Address))}, s.options...)
	if s.TLS != nil {
		options = append(options, gomail.WithTLSConfig(s.TLS))
	}
	client, err := gomail.NewClient(s.host, options...)
	if err != nil {
		return nil, fmt.Errorf("configure the SMTP client: %w", err)
	}
	return client, nil
}

// Probe fails if the server cannot be reached, does not encrypt, or refuses the user. It sends nothing.
func (s *Server) Probe(ctx context.Context) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	connection, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to the SMTP server: %w", err)
	}
	return client.CloseWithSMTPClient(connection)
}

// mailDomain returns the domain of an email address.
func mailDomain(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == '@' {
			return address[i+1:]
		}
	}
	return "localhost"
}
