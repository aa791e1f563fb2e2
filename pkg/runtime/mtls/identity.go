// Package mtls authenticates connections between the processes of an installation.
//
// Each process has a certificate from one authority with one SPIFFE name, spiffe://ironplane/<name>. Both ends verify the
// other. A server accepts any valid name. A client accepts only the name of the service that it calls. See
// docs/understand/mesh.md.
package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// Identity is the name of a process, with its certificate and the authority for verifying others. Renew may replace both at
// any time. A connection keeps the ones with which it began.
type Identity struct {
	name        string
	credentials atomic.Pointer[credentials]
}

type credentials struct {
	certificate  tls.Certificate
	roots        *x509.CertPool
	domain       string // the trust domain of all processes
	serverConfig *tls.Config
	begin, end   time.Time // the validity for others
}

// NewPeers returns the services that this process can ask: those in local, and those of other processes after SetInstances.
func (id *Identity) NewPeers(local map[string]http.Handler) *peers.Peers {
	peers := peers.New(id.name, local)
	peers.ClientConfig = id.ClientConfig
	return peers
}

// Identity issues a certificate for the process with this name, and returns its identity.
func (a *Authority) Identity(name string) (*Identity, error) {
	issued, err := a.Issue(name)
	if err != nil {
		return nil, err
	}
	return NewIdentity(name, issued, a.Certificate())
}

// NewIdentity returns the identity of the process with this name. The certificates in ca (PEM) verify other processes. It
// fails if the certificate is for another name.
func NewIdentity(name string, issued Issued, ca []byte) (*Identity, error) {
	id := &Identity{name: name}
	return id, id.Renew(issued, ca)
}

// Renew replaces the certificate and the authorities. If it fails, the old ones remain in use.
func (id *Identity) Renew(issued Issued, ca []byte) error {
	p := &credentials{roots: x509.NewCertPool()}
	var err error
	if p.certificate, err = tls.X509KeyPair(issued.Certificate, []byte(issued.Key.Reveal())); err != nil {
		return err
	}
	if !p.roots.AppendCertsFromPEM(ca) {
		return errors.New("the file of the authority contains no certificate")
	}
	is, err := parseName(p.certificate.Leaf)
	if err != nil || is.process != id.name {
		return errors.Join(fmt.Errorf("the certificate is not for the process %s", id.name), err)
	}
	p.domain = is.domain
	p.serverConfig = p.newServerConfig()
	p.begin, p.end = p.certificate.Leaf.NotBefore, p.expiry()
	id.credentials.Store(p)
	return nil
}

// Validity returns from when to when others accept the process's certificate.
func (id *Identity) Validity() (begin, end time.Time) {
	p := id.credentials.Load()
	return p.begin, p.end
}

// expiry returns when the certificate ends, or the authority that signed it, whichever is earlier.
func (p *credentials) expiry() (end time.Time) {
	intermediates := x509.NewCertPool()
	for _, text := range p.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(text); err == nil {
			intermediates.AddCert(c)
		}
	}
	leaf := p.certificate.Leaf
	for _, at := range []time.Time{time.Now(), leaf.NotBefore.Add(time.Second)} { // the second for a certificate that has expired
		chains, err := leaf.Verify(x509.VerifyOptions{Roots: p.roots, Intermediates: intermediates, CurrentTime: at})
		if err == nil {
			return chainsExpiry(chains)
		}
	}
	return leaf.NotAfter // no known authority signed it
}

// chainsExpiry returns when the last of the chains expires. A chain expires with the first of its certificates.
func chainsExpiry(chains [][]*x509.Certificate) (end time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(end) {
			end = first
		}
	}
	return end
}

// Listener accepts only clients with a certificate of the authority and a well-formed name.
func (id *Identity) Listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return id.credentials.Load().serverConfig, nil },
	})
}

// Probe checks that the service answers this process at an address, with any response.
func (id *Identity) Probe(ctx context.Context, service, address string) error {
	transport := &http.Transport{TLSClientConfig: id.ClientConfig(service), DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/", http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

const protocol = "http/1.1"

func (p *credentials) newServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		Certificates:           []tls.Certificate{p.certificate},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              p.roots,
		SessionTicketsDisabled: true, // connections are kept alive; a resumed session would skip the certificate check
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := p.verifyName(s.PeerCertificates[0])
			return err
		},
	}
}

// verifyName returns the process name in a certificate. It fails if the certificate is for another trust domain.
func (p *credentials) verifyName(c *x509.Certificate) (string, error) {
	is, err := parseName(c)
	if err == nil && is.domain != p.domain {
		return "", fmt.Errorf("the certificate is of the trust domain %s, not %s", is.domain, p.domain)
	}
	return is.process, err
}

// ClientConfig returns the TLS configuration for connections to the service with this name, and to no other.
func (id *Identity) ClientConfig(service string) *tls.Config {
	p := id.credentials.Load()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		Certificates: []tls.Certificate{p.certificate},
		// crypto/tls would verify a host name. VerifyConnection makes the same checks with the SPIFFE name.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			intermediates := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				intermediates.AddCert(c)
			}
			leaf := s.PeerCertificates[0]
			if _, err := leaf.Verify(
				x509.VerifyOptions{Roots: p.roots, Intermediates: intermediates},
			); err != nil { // the default key usage is server authentication
				return err
			}
			if name, err := p.verifyName(leaf); err != nil || name != service {
				return errors.Join(fmt.Errorf("the other process is not %s", service), err)
			}
			return nil
		},
	}
}
