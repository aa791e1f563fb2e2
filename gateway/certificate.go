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
	// certificateTimeout is how long it waits for one.
	certificateTimeout = 3 * time.Second
	// acmeProtocol is what an authority of ACME negotiates who looks whether this is where a name leads (RFC 8737), and
	// maxAuthorities bounds how many are answered at a time: anybody can say that he is one.
	acmeProtocol   = "acme-tls/1"
	maxAuthorities = 8
)

// certificates knows by which certificate the gateway shows callers who it is, and whether they have to look.
type certificates struct {
	config         Config
	peers          *peers.Peers
	log            *slog.Logger
	state          atomic.Pointer[tlsState]
	authoritySlots chan struct{} // a semaphore
	woken          <-chan struct{}

	mu          sync.Mutex // of what follows
	fileContent string     // their content
	lastError   string
	savedCopy   *certificateCopy // nil: none is kept
}

// tlsState is what the system service, or a file, says. It does not change.
type tlsState struct {
	Edition   string `json:"edition"`
	Required  bool   `json:"required"`
	Authority string `json:"authority"` // where callers are to go by TLS
	certificatePair
	certificate *tls.Certificate // nil: there is none
}

// certificatePair is a certificate with its private key, PEM.
type certificatePair struct {
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

func newCertificates(config Config, peers *peers.Peers, woken <-chan struct{}, log *slog.Logger) *certificates {
	c := &certificates{config: config, peers: peers, woken: woken, log: log, authoritySlots: make(chan struct{}, maxAuthorities)}
	c.state.Store(&tlsState{})
	return c
}

// follow looks for another certificate until ctx ends. The system service is asked again and again where it is away: meanwhile
// the last one counts. away is why it could not be asked before.
func (c *certificates) follow(ctx context.Context, askErr error) {
	for askedAt := time.Now(); ; {
		interval := certificateInterval
		if askErr != nil || c.config.TLSCertificate != "" {
			interval = fileInterval
		}
		timer, woken := time.NewTimer(interval), false
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
		case woken, askErr != nil, time.Since(askedAt) >= certificateInterval:
			askedAt, askErr = time.Now(), c.refresh(ctx)
		default:
			c.mu.Lock()
			c.apply(*c.state.Load(), nil)
			c.mu.Unlock()
		}
	}
}

// refresh asks the system service once, and looks into the files.
func (c *certificates) refresh(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.state.Load()
	ctx, cancel := context.WithTimeout(ctx, certificateTimeout)
	defer cancel()
	var next tlsState
	askErr := c.peers.Ask(ctx, settings.Keeper, "/internal/certificate?known="+url.QueryEscape(current.Edition), &next)
	if askErr != nil {
		next = *current
	} else if next.Edition == current.Edition {
		next.certificatePair, next.certificate = current.certificatePair, current.certificate
	}
	c.apply(next, askErr)
	return askErr
}

// apply goes by what was told from now on. Why a certificate cannot be used is logged once.
func (c *certificates) apply(next tlsState, askErr error) {
	current := c.state.Load()
	useErr := c.loadCertificate(&next, current)
	c.state.Store(&next)
	if useErr == nil && askErr == nil &&
		(next.Edition != current.Edition || next.Required != current.Required || next.Authority != current.Authority) {
		useErr = c.savedCopy.write(&next)
	}
	if useErr != nil && useErr.Error() != c.lastError {
		c.log.Error("the certificate for callers cannot be used or kept", "error", useErr)
		c.lastError = useErr.Error()
	} else if useErr == nil {
		c.lastError = ""
	}
}

// loadCertificate reads the certificate: that of the files where some are named, and the earlier one where they do not fit together.
func (c *certificates) loadCertificate(next, current *tlsState) error {
	if c.config.TLSCertificate == "" {
		if next.certificate != nil || next.Chain == "" {
			return nil
		}
		certificate, err := tls.X509KeyPair([]byte(next.Chain), []byte(next.Key))
		if err != nil {
			next.Edition, next.certificatePair, next.certificate = current.Edition, current.certificatePair, current.certificate
			return fmt.Errorf("read the certificate that the system service answers: %w", err)
		}
		next.certificate = &certificate
		return nil
	}
	next.certificate = current.certificate
	chain, err := os.ReadFile(c.config.TLSCertificate)
	key, keyErr := os.ReadFile(c.config.TLSKey)
	if err := errors.Join(err, keyErr); err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if content := string(chain) + string(key); content != c.fileContent {
		certificate, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return fmt.Errorf("read the certificate in %s and %s: %w", c.config.TLSCertificate, c.config.TLSKey, err)
		}
		c.fileContent, next.certificate = content, &certificate
	}
	return nil
}

// AddTLSListener accepts connections by TLS, too, where the configuration has an address for them.
func (g *Gateway) AddTLSListener(plain net.Listener) (net.Listener, error) {
	if g.config.TLSListen == "" {
		return plain, nil
	}
	encrypted, err := net.Listen("tcp", g.config.TLSListen)
	if err != nil {
		return nil, fmt.Errorf("listen for TLS: %w", err)
	}
	return process.WithTLS(plain, encrypted, g.TLSConfig()), nil
}

// TLSConfig is how callers are met who connect by TLS: by the newest certificate.
func (g *Gateway) TLSConfig() *tls.Config { return g.certificates.tlsConfig() }

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

func (c *certificates) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if certificate := c.state.Load().certificate; certificate != nil {
				return certificate, nil
			}
			return nil, errNoCertificate
		},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if slices.Equal(hello.SupportedProtos, []string{acmeProtocol}) {
				return c.acmeConfig(hello)
			}
			return nil, nil
		},
	}
}

// acmeConfig is how an authority of ACME is met that looks whether this is where a name leads.
func (c *certificates) acmeConfig(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	select {
	case c.authoritySlots <- struct{}{}:
		defer func() { <-c.authoritySlots }()
	default:
		return nil, errors.New("too many authorities look at once")
	}
	ctx, cancel := context.WithTimeout(
		principal.With(hello.Context(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}),
		certificateTimeout,
	)
	defer cancel()
	var shown certificatePair
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

// checkExpiry fails where callers get no certificate that they believe for much longer.
func (c *certificates) checkExpiry(context.Context) error {
	certificate := c.state.Load().certificate
	switch {
	case c.config.TLSListen == "" || certificate == nil:
		return nil
	case time.Until(certificate.Leaf.NotAfter) < certificate.Leaf.NotAfter.Sub(certificate.Leaf.NotBefore)/12:
		return fmt.Errorf("the certificate for callers ends at %s", certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
