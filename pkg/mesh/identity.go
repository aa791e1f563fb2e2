// Package mesh knows who is on the other end of a connection between two processes of Ironplane, and carries from the
// gateway to a service whom it found to be calling.
//
// Every process has a certificate with one SPIFFE name, spiffe://ironplane/<name>, of one authority. Both ends verify
// the other's: the server that there is a name, the client that it is the one that it means to call. See docs/mesh.md.
package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// Identity is who a process is, and by which authority it verifies others.
type Identity struct {
	certificate tls.Certificate
	roots       *x509.CertPool
}

// Files are where a process finds its identity, in PEM.
type Files struct {
	Certificate string `env:"IRONPLANE_MESH_CERTIFICATE" required:"serve" doc:"the file of this process's certificate, which names it spiffe://ironplane/<name>"`
	Key         string `env:"IRONPLANE_MESH_KEY" required:"serve" doc:"the file of the certificate's private key"`
	CA          string `env:"IRONPLANE_MESH_CA" required:"serve" doc:"the file of the authority's certificate, by which processes verify each other"`
}

// Load reads the identity of the process of this name, and fails where the files give it another one.
func Load(name string, files Files) (*Identity, error) {
	var content [3][]byte
	for i, file := range []string{files.Certificate, files.Key, files.CA} {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the identity of %s: %w", name, err)
		}
		content[i] = text
	}
	id, err := newIdentity(name, content[0], content[1], content[2])
	if err != nil {
		return nil, fmt.Errorf("read the identity of %s from %s, %s and %s: %w", name, files.Certificate, files.Key, files.CA, err)
	}
	return id, nil
}

// Identity is that of the process of this name, with a certificate issued for it.
func (a *Authority) Identity(name string) (*Identity, error) {
	issued, err := a.Issue(name)
	if err != nil {
		return nil, err
	}
	return newIdentity(name, issued.Certificate, []byte(issued.Key.Reveal()), a.Certificate())
}

func newIdentity(name string, certificate, key, ca []byte) (*Identity, error) {
	id := &Identity{roots: x509.NewCertPool()}
	var err error
	if id.certificate, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, err
	}
	if !id.roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the authority's file has no certificate")
	}
	if is, err := nameOf(id.certificate.Leaf); err != nil || is != name {
		return nil, errors.Join(fmt.Errorf("the certificate is not that of %s", name), err)
	}
	return id, nil
}

// Listener lets in those alone who have a certificate of the authority with a well-formed name.
func (id *Identity) Listener(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		Certificates:           []tls.Certificate{id.certificate},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              id.roots,
		SessionTicketsDisabled: true, // connections are kept; a resumed one would trust an older look at the certificate
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := nameOf(s.PeerCertificates[0])
			return err
		},
	})
}

const protocol = "http/1.1"

// dialing is how this process connects to the service of this name, and to no other.
func (id *Identity) dialing(service string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		Certificates: []tls.Certificate{id.certificate},
		// crypto/tls would look for a host's name. VerifyConnection does all that it does, with the SPIFFE name instead.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				between.AddCert(c)
			}
			leaf := s.PeerCertificates[0]
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: id.roots, Intermediates: between}); err != nil { // for use as a server
				return err
			}
			if name, err := nameOf(leaf); err != nil || name != service {
				return errors.Join(fmt.Errorf("the process at the other end is not %s", service), err)
			}
			return nil
		},
	}
}
