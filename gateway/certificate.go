package gateway

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	// certificateInterval is how often the gateway asks for another certificate when nobody wakes it, and fileInterval how
	// often it looks into the files that are named in its place.
	certificateInterval, fileInterval = 15 * time.Second, time.Second
	// certificateTime is how long it waits for one.
	certificateTime = 3 * time.Second
	// acmeProtocol is what an authority of ACME negotiates who looks whether this is where a name leads (RFC 8737), and
	// mostAuthorities bounds how many are answered at a time: anybody can say that he is one.
	acmeProtocol    = "acme-tls/1"
	mostAuthorities = 8
)

// certificates knows by which certificate the gateway shows callers who it is, and whether they have to look.
type certificates struct {
	config      Config
	peers       *peers.Peers
	log         *slog.Logger
	told        atomic.Pointer[told]
	authorities chan struct{} // a semaphore
	woken       <-chan struct{}

	mu        sync.Mutex // of what follows
	fromFiles string     // their content
	complaint string
	copy      *certificateCopy // nil: none is kept
}

// told is what the system service, or a file, says. It does not change.
type told struct {
	Edition   string `json:"edition"`
	Required  bool   `json:"required"`
	Authority string `json:"authority"` // where callers are to go by TLS
	issued
	certificate *tls.Certificate // nil: there is none
}

// issued is a certificate with its private key, PEM.
type issued struct {
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

func newCertificates(config Config, peers *peers.Peers, woken <-chan struct{}, log *slog.Logger) *certificates {
	c := &certificates{config: config, peers: peers, woken: woken, log: log, authorities: make(chan struct{}, mostAuthorities)}
	c.told.Store(&told{})
	return c
}

// follow looks for another certificate until ctx ends. The system service is asked again and again where it is away: meanwhile
// the last one counts. away is why it could not be asked before.
func (c *certificates) follow(ctx context.Context, away error) {
	for asked := time.Now(); ; {
		pause := certificateInterval
		if away != nil || c.config.TLSCertificate != "" {
			pause = fileInterval
		}
		timer, woken := time.NewTimer(pause), false
		select {
		case <-c.woken:
			woken = true
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return
		case woken, away != nil, time.Since(asked) >= certificateInterval:
			asked, away = time.Now(), c.ask(ctx)
		default:
			c.mu.Lock()
			c.take(*c.told.Load(), nil)
			c.mu.Unlock()
		}
	}
}

// ask asks the system service once, and looks into the files.
func (c *certificates) ask(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.told.Load()
	ctx, cancel := context.WithTimeout(ctx, certificateTime)
	defer cancel()
	var now told
	away := c.peers.Ask(ctx, settings.Keeper, "/internal/certificate?known="+url.QueryEscape(was.Edition), &now)
	if away != nil {
		now = *was
	} else if now.Edition == was.Edition {
		now.issued, now.certificate = was.issued, was.certificate
	}
	c.take(now, away)
	return away
}

// take goes by what was told from now on. Why a certificate cannot be used is logged once.
func (c *certificates) take(now told, away error) {
	was := c.told.Load()
	unusable := c.use(&now, was)
	c.told.Store(&now)
	if unusable == nil && away == nil && (now.Edition != was.Edition || now.Required != was.Required || now.Authority != was.Authority) {
		unusable = c.copy.write(&now)
	}
	if unusable != nil && unusable.Error() != c.complaint {
		c.log.Error("the certificate for callers cannot be used or kept", "error", unusable)
		c.complaint = unusable.Error()
	} else if unusable == nil {
		c.complaint = ""
	}
}

// use reads the certificate: that of the files where some are named, and the earlier one where they do not fit together.
func (c *certificates) use(now, was *told) error {
	if c.config.TLSCertificate == "" {
		if now.certificate != nil || now.Chain == "" {
			return nil
		}
		certificate, err := tls.X509KeyPair([]byte(now.Chain), []byte(now.Key))
		if err != nil {
			now.Edition, now.issued, now.certificate = was.Edition, was.issued, was.certificate
			return fmt.Errorf("read the certificate that the system service answers: %w", err)
		}
		now.certificate = &certificate
		return nil
	}
	now.certificate = was.certificate
	chain, err := os.ReadFile(c.config.TLSCertificate)
	key, wrong := os.ReadFile(c.config.TLSKey)
	if err := errors.Join(err, wrong); err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if content := string(chain) + string(key); content != c.fromFiles {
		certificate, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return fmt.Errorf("read the certificate in %s and %s: %w", c.config.TLSCertificate, c.config.TLSKey, err)
		}
		c.fromFiles, now.certificate = content, &certificate
	}
	return nil
}

// AlsoTLS accepts connections by TLS, too, where the configuration has an address for them.
func (g *Gateway) AlsoTLS(plain net.Listener) (net.Listener, error) {
	if g.config.TLSListen == "" {
		return plain, nil
	}
	encrypted, err := net.Listen("tcp", g.config.TLSListen)
	if err != nil {
		return nil, fmt.Errorf("listen for TLS: %w", err)
	}
	return process.WithTLS(plain, encrypted, g.TLS()), nil
}

// TLS is how callers are met who connect by TLS: by the newest certificate.
func (g *Gateway) TLS() *tls.Config { return g.secured.serverConfig() }

// Checks are of what the configuration names for TLS.
func (c *Config) Checks() (checks []health.Check) {
	if c.TLSListen != "" {
		checks = append(checks, process.CheckListen("IRONPLANE_TLS_LISTEN", c.TLSListen))
	}
	if c.TLSCertificate != "" || c.TLSKey != "" {
		checks = append(checks, health.Check{Name: "IRONPLANE_TLS_CERTIFICATE: it fits to IRONPLANE_TLS_KEY", Ask: func(context.Context) error {
			_, err := tls.LoadX509KeyPair(c.TLSCertificate, c.TLSKey)
			return err
		}})
	}
	return checks
}

var errNoCertificate = errors.New("the gateway has no certificate yet")

func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if certificate := c.told.Load().certificate; certificate != nil {
				return certificate, nil
			}
			return nil, errNoCertificate
		},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Equal(hello.SupportedProtos, []string{acmeProtocol}) {
				return c.forAuthority(hello)
			}
			return nil, nil
		},
	}
}

// forAuthority is how an authority of ACME is met that looks whether this is where a name leads.
func (c *certificates) forAuthority(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	select {
	case c.authorities <- struct{}{}:
		defer func() { <-c.authorities }()
	default:
		return nil, errors.New("too many authorities look at once")
	}
	ctx, cancel := context.WithTimeout(
		principal.With(hello.Context(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}),
		certificateTime,
	)
	defer cancel()
	var shown issued
	if err := c.peers.Ask(
		ctx,
		settings.Keeper,
		"/internal/acme-handshake?name="+url.QueryEscape(strings.ToLower(hello.ServerName)),
		&shown,
	); err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair([]byte(shown.Chain), []byte(shown.Key))
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{acmeProtocol}, Certificates: []tls.Certificate{certificate}}, nil
}

// due fails where callers get no certificate that they believe for much longer.
func (c *certificates) due(context.Context) error {
	certificate := c.told.Load().certificate
	switch {
	case c.config.TLSListen == "" || certificate == nil:
		return nil
	case time.Until(certificate.Leaf.NotAfter) < certificate.Leaf.NotAfter.Sub(certificate.Leaf.NotBefore)/12:
		return fmt.Errorf("the certificate for callers ends at %s", certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
