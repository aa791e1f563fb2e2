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

// Server is the SMTP server that takes the mails.
type Server struct {
	From netmail.Address // a name is that of the installation, where this has none
	TLS  *tls.Config     // nil: the system's authorities; tests have their own

	host    string
	options []gomail.Option
}

// sendTimeout is how long the server may take with each step.
const sendTimeout = 30 * time.Second

// NewServer is the server at an address such as smtp://mail.example.com: its connections are encrypted by STARTTLS, those of
// smtps:// from the beginning, and those of smtp+plain:// not at all, which is for one on the same machine.
func NewServer(address, user string, password secret.String, from string) (*Server, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return nil, errors.New("IRONPLANE_SMTP is no address such as smtp://mail.example.com:587") // err might show a password
	}
	sender, err := netmail.ParseAddress(from)
	if err != nil {
		return nil, fmt.Errorf("IRONPLANE_MAIL_FROM is %q, and has to be an address such as noreply@example.com", from)
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
			return nil, errors.New("IRONPLANE_SMTP_USER is set, and smtp+plain:// would send the password as it is")
		}
	default:
		return nil, errors.New("IRONPLANE_SMTP begins with smtp://, smtps:// or smtp+plain://")
	}
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return nil, errors.New("IRONPLANE_SMTP has a port that is no number")
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

// outgoingMessage is a mail as it goes to the server.
type outgoingMessage struct {
	messageID string
	at        time.Time
	from      string // the name, where the server's address has none
	to        netmail.Address
	copyTo    string // to whom a copy goes, and not to To; empty: it is no copy
	RenderedEmail
}

// refusedError says that the server will never take the mail.
type refusedError struct{ error }

// deliver gives the server a mail.
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
	options := append([]gomail.Option{gomail.WithHELO(mailDomain(s.From.Address))}, s.options...)
	if s.TLS != nil {
		options = append(options, gomail.WithTLSConfig(s.TLS))
	}
	client, err := gomail.NewClient(s.host, options...)
	if err != nil {
		return fmt.Errorf("prepare to ask the SMTP server: %w", err)
	}
	connection, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return fmt.Errorf("ask the SMTP server: %w", err)
	}
	err = client.SendWithSMTPClient(connection, m)
	_ = client.CloseWithSMTPClient(connection) // what it has taken, it has taken
	if m.IsDelivered() {
		return nil
	}
	if refusal, ok := errors.AsType[*gomail.SendError](err); ok && !refusal.IsTemp() && refusal.ErrorCode() >= 500 &&
		(refusal.Reason == gomail.ErrSMTPRcptTo || refusal.Reason == gomail.ErrSMTPData || refusal.Reason == gomail.ErrSMTPDataClose) {
		return refusedError{err}
	}
	return err
}

func mailDomain(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == '@' {
			return address[i+1:]
		}
	}
	return "localhost"
}
