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
	// certificateInterval is how often the gateway asks the system service for a new certificate if nothing wakes it. fileInterval
	// is how often it reads the files that the configuration names instead.
	certificateInterval, fileInterval = 15 * time.Second, time.Second
	// certificateTimeout is how long the gateway waits for the system service's response.
	certificateTimeout = 3 * time.Second
	// acmeProtocol is the TLS protocol by which an ACME authority verifies a host name (RFC 8737). maxAuthorities bounds the
	// verifications in progress, because any caller can ask for this protocol.
	acmeProtocol   = "acme-tls/1"
	maxAuthorities = 8
)

// certificates holds the certificate that the gateway shows to callers, and whether callers must use TLS.
type certificates struct {
	config         Config
	peers          *peers.Peers
	log            *slog.Logger
	state          atomic.Pointer[tlsState]
	authoritySlots chan struct{} // a semaphore
	woken          <-chan struct{}

	mu          sync.Mutex // guards the fields below
	fileContent string     // of the certificate and key files when they were last read
	lastError   string
	savedCopy   *certificateCopy // nil: no copy is kept
}

// tlsState is the latest response of the system service, with the certificate of the files if the configuration names some. It is
// immutable.
type tlsState struct {
	Edition   string `json:"edition"`
	Required  bool   `json:"required"`
	Authority string `json:"authority"` // host and port to which callers are redirected for TLS
	certificatePair
	certificate *tls.Certificate // nil: the gateway has none
}

// certificatePair is a certificate chain and its private key, PEM.
type certificatePair struct {
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

func newCertificates(config Config, peers *peers.Peers, woken <-chan struct{}, log *slog.Logger) *certificates {
	c := &certificates{config: config, peers: peers, woken: woken, log: log, authoritySlots: make(chan struct{}, maxAuthorities)}
	c.state.Store(&tlsState{})
	return c
}

// follow keeps the certificate up to date until ctx ends. While the system service is away, it retries every second and the last
// certificate stays in use. askErr is the error of the last attempt before the call, if there was one.
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

// refresh asks the system service once, and reads the files. The error says why the service could not be asked.
func (c *certificates) refresh(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.state.Load()
	ctx, cancel := context.WithTimeout(ctx, certificateTimeout)
	defer cancel()
	var next tlsState
	askErr := c.peers.Ask(ctx, settings.ServiceName, "/internal/certificate?known="+url.QueryEscape(current.Edition), &next)
	if askErr != nil {
		next = *current
	} else if next.Edition == current.Edition {
		next.certificatePair, next.certificate = current.certificatePair, current.certificate
	}
	c.apply(next, askErr)
	return askErr
}

// apply makes next the current state. It logs why a certificate cannot be used, once for each reason.
func (c *certificates) apply(next tlsState, askErr error) {
	current := c.state.Load()
	useErr := c.loadCertificate(&next, current)
	c.state.Store(&next)
	if useErr == nil && askErr == nil &&
		(next.Edition != current.Edition || next.Required != current.Required || next.Authority != current.Authority) {
		useErr = c.savedCopy.write(&next)
	}
	if useErr != nil && useErr.Error() != c.lastError {
		c.log.Error("use or save callers' certificate failed", "error", useErr)
		c.lastError = useErr.Error()
	} else if useErr == nil {
		c.lastError = ""
	}
}

// loadCertificate parses the certificate of next. If the configuration names files, it is the one in the files. If the new
// certificate and key do not fit together, next keeps the certificate of current.
func (c *certificates) loadCertificate(next, current *tlsState) error {
	if c.config.TLSCertificate == "" {
		if next.certificate != nil || next.Chain == "" {
			return nil
		}
		certificate, err := tls.X509KeyPair([]byte(next.Chain), []byte(next.Key))
		if err != nil {
			next.Edition, next.certificatePair, next.certificate = current.Edition, current.certificatePair, current.certificate
			return fmt.Errorf("parse the certificate from the system service: %w", err)
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
			return fmt.Errorf("parse the certificate in %s and %s: %w", c.config.TLSCertificate, c.config.TLSKey, err)
		}
		c.fileContent, next.certificate = content, &certificate
	}
	return nil
}

// AddTLSListener returns a listener that also accepts TLS connections, if the configuration has an address for them.
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

// TLSConfig returns the configuration for callers that connect by TLS. Each handshake uses the newest certificate.
func (g *Gateway) TLSConfig() *tls.Config { return g.certificates.tlsConfig() }

// Checks returns the checks of the configuration's TLS settings.
func (c *Config) Checks() (checks []health.Check) {
	if c.TLSListen != "" {
		checks = append(checks, process.CheckListen("IRONPLANE_TLS_LISTEN", c.TLSListen))
	}
	if c.TLSCertificate != "" || c.TLSKey != "" {
		checks = append(checks, health.Check{Name: "IRONPLANE_TLS_CERTIFICATE: it matches IRONPLANE_TLS_KEY", Ask: func(context.Context) error {
			_, err := tls.LoadX509KeyPair(c.TLSCertificate, c.TLSKey)
			return err
		}})
	}
	return checks
}

var errNoCertificate = errors.New("the gateway has no certificate yet")

// tlsConfig returns a configuration that serves the present certificate. A handshake without one fails.
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

// acmeConfig returns the TLS configuration for an ACME authority that verifies a host name.
func (c *certificates) acmeConfig(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	select {
	case c.authoritySlots <- struct{}{}:
		defer func() { <-c.authoritySlots }()
	default:
		return nil, errors.New("too many ACME verifications are in progress")
	}
	ctx, cancel := context.WithTimeout(
		principal.NewContext(hello.Context(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}),
		certificateTimeout,
	)
	defer cancel()
	var shown certificatePair
	if err := c.peers.Ask(
		ctx,
		settings.ServiceName,
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

// checkExpiry returns an error if less than a twelfth of the certificate's lifetime remains.
func (c *certificates) checkExpiry(context.Context) error {
	certificate := c.state.Load().certificate
	switch {
	case c.config.TLSListen == "" || certificate == nil:
		return nil
	case time.Until(certificate.Leaf.NotAfter) < certificate.Leaf.NotAfter.Sub(certificate.Leaf.NotBefore)/12:
		return fmt.Errorf("the certificate for callers expires at %s", certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
