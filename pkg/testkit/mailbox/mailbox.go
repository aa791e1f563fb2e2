// Package mailbox has an SMTP server for tests and measurements, which stores the mails that it accepts.
package mailbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Mail is a mail that the server has accepted.
type Mail struct {
	From      string
	To        []string
	Data      []byte
	User      string // the user that signed in
	Encrypted bool
}

// Options configure the server.
type Options struct {
	TLS      bool   // connections are encrypted from the start
	STARTTLS bool   // clients can encrypt connections
	Password string // the password of the user ironplane; empty: no login
	Forget   bool   // mails are counted, not stored
	// Refuse returns the error for a recipient, or nil. attempt counts the attempts for the recipient from 1.
	Refuse func(attempt int, to string) error
	// Cut says whether to close the connection after the text of a mail, and whether to accept the mail all the same.
	Cut func(attempt int) (cut, accepted bool)
}

// Server is an SMTP server.
type Server struct {
	Addr        string
	Roots       *x509.CertPool // the authority of its certificate
	Certificate []byte         // the authority as PEM

	options  Options
	mu       sync.Mutex
	mails    []Mail
	rcpts    map[string]int
	texts    int
	accepted int
}

// Start starts a server until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{options: o, rcpts: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	server := smtp.NewServer(s)
	server.Domain, server.AllowInsecureAuth, server.MaxMessageBytes = "localhost", true, 10<<20
	server.ErrorLog = log.New(io.Discard, "", 0)
	if o.TLS || o.STARTTLS {
		config := s.certify(t)
		if o.TLS {
			listener = tls.NewListener(listener, config)
		} else {
			server.TLSConfig = config
		}
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return s
}

func (s *Server) certify(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses: []net.IP{
			net.IPv4(127, 0, 0, 1),
		},
		DNSNames:              []string{"localhost"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.Roots = x509.NewCertPool()
	s.Roots.AddCert(certificate)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// Mails returns the accepted mails.
func (s *Server) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.mails...)
}

// Accepted returns the number of accepted mails.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// NewSession starts a session with a client.
func (s *Server) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{server: s, conn: c}, nil
}

type session struct {
	server *Server
	conn   *smtp.Conn
	mail   Mail
}

func (x *session) Reset()        { x.mail = Mail{User: x.mail.User} }
func (x *session) Logout() error { return nil }

func (x *session) AuthMechanisms() []string {
	if x.server.options.Password == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (x *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "ironplane" || password != x.server.options.Password {
			return errors.New("the user or the password is wrong")
		}
		x.mail.User = user
		return nil
	}), nil
}

func (x *session) Mail(from string, _ *smtp.MailOptions) error {
	if x.server.options.Password != "" && x.mail.User == "" {
		return smtp.ErrAuthRequired
	}
	x.mail.From = from
	return nil
}

func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s := x.server
	s.mu.Lock()
	s.rcpts[to]++
	attempt := s.rcpts[to]
	s.mu.Unlock()
	if s.options.Refuse != nil {
		if err := s.options.Refuse(attempt, to); err != nil {
			return err
		}
	}
	x.mail.To = append(x.mail.To, to)
	return nil
}

func (x *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s := x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts++
	cut, accepted := false, true
	if s.options.Cut != nil {
		cut, accepted = s.options.Cut(s.texts)
		accepted = accepted || !cut
	}
	if accepted {
		s.accepted++
		if !s.options.Forget {
			m := x.mail
			m.Data = text
			_, m.Encrypted = x.conn.TLSConnectionState()
			if _, ok := x.conn.Conn().(*tls.Conn); ok {
				m.Encrypted = true
			}
			s.mails = append(s.mails, m)
		}
	}
	if cut {
		_ = x.conn.Conn().Close()
	}
	return nil
}
