// Package mtls knows who is on the other end of a connection between two processes of Ironplane.
//
// Every process has a certificate with one SPIFFE name, spiffe://ironplane/<name>, of one authority. Both ends verify
// the other's: the server that there is a name, the client that it is the one that it means to call. See docs/understand/mesh.md.
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

// Identity is who a process is, and by which authority it verifies others. Its papers may be renewed at any time:
// connections go by those that were good when they began.
type Identity struct {
	name        string
	credentials atomic.Pointer[credentials]
}

type credentials struct {
	certificate  tls.Certificate
	roots        *x509.CertPool
	domain       string // of all names
	serverConfig *tls.Config
	begin, end   time.Time // when others believe them
}

// NewPeers are services of other processes, once Move says where they are, and those of this one.
func (id *Identity) NewPeers(local map[string]http.Handler) *peers.Peers {
	peers := peers.New(id.name, local)
	peers.ClientConfig = id.ClientConfig
	return peers
}

// Identity is that of the process of this name, with a certificate issued for it.
func (a *Authority) Identity(name string) (*Identity, error) {
	issued, err := a.Issue(name)
	if err != nil {
		return nil, err
	}
	return NewIdentity(name, issued, a.Certificate())
}

// NewIdentity is that of the process of this name, where the authority's certificates (PEM) verify those of others. It
// fails where it was issued for another one.
func NewIdentity(name string, issued Issued, ca []byte) (*Identity, error) {
	id := &Identity{name: name}
	return id, id.Renew(issued, ca)
}

// Renew replaces the papers. Where it fails, the old ones stay.
func (id *Identity) Renew(issued Issued, ca []byte) error {
	p := &credentials{roots: x509.NewCertPool()}
	var err error
	if p.certificate, err = tls.X509KeyPair(issued.Certificate, []byte(issued.Key.Reveal())); err != nil {
		return err
	}
	if !p.roots.AppendCertsFromPEM(ca) {
		return errors.New("the authority's file has no certificate")
	}
	is, err := parseName(p.certificate.Leaf)
	if err != nil || is.process != id.name {
		return errors.Join(fmt.Errorf("the certificate is not that of %s", id.name), err)
	}
	p.domain = is.domain
	p.serverConfig = p.newServerConfig()
	p.begin, p.end = p.certificate.Leaf.NotBefore, p.expiry()
	id.credentials.Store(p)
	return nil
}

// Validity tells from when until when others believe the process's certificate.
func (id *Identity) Validity() (begin, end time.Time) {
	p := id.credentials.Load()
	return p.begin, p.end
}

// expiry is when the certificate ends, or the authority's that it is believed by, should that be earlier.
func (p *credentials) expiry() (end time.Time) {
	intermediates := x509.NewCertPool()
	for _, text := range p.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(text); err == nil {
			intermediates.AddCert(c)
		}
	}
	leaf := p.certificate.Leaf
	for _, at := range []time.Time{time.Now(), leaf.NotBefore.Add(time.Second)} { // it may have ended
		chains, err := leaf.Verify(x509.VerifyOptions{Roots: p.roots, Intermediates: intermediates, CurrentTime: at})
		if err == nil {
			return chainsExpiry(chains)
		}
	}
	return leaf.NotAfter // none here believe it
}

// chainsExpiry is when the last of the chains ends, each of which does with its first certificate.
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

// Listener lets in those alone who have a certificate of the authority with a well-formed name.
func (id *Identity) Listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return id.credentials.Load().serverConfig, nil },
	})
}

// Probe finds out whether a service answers this process at an address, whatever it says.
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
		SessionTicketsDisabled: true, // connections are kept; a resumed one would trust an older look at the certificate
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := p.verifyName(s.PeerCertificates[0])
			return err
		},
	}
}

// verifyName is the process's name in a certificate of our own domain.
func (p *credentials) verifyName(c *x509.Certificate) (string, error) {
	is, err := parseName(c)
	if err == nil && is.domain != p.domain {
		return "", fmt.Errorf("the certificate is of the trust domain %s, not %s", is.domain, p.domain)
	}
	return is.process, err
}

// ClientConfig is how this process connects to the service of this name, and to no other.
func (id *Identity) ClientConfig(service string) *tls.Config {
	p := id.credentials.Load()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		Certificates: []tls.Certificate{p.certificate},
		// crypto/tls would look for a host's name. VerifyConnection does all that it does, with the SPIFFE name instead.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			intermediates := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				intermediates.AddCert(c)
			}
			leaf := s.PeerCertificates[0]
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: p.roots, Intermediates: intermediates}); err != nil { // for use as a server
				return err
			}
			if name, err := p.verifyName(leaf); err != nil || name != service {
				return errors.Join(fmt.Errorf("the process at the other end is not %s", service), err)
			}
			return nil
		},
	}
}
