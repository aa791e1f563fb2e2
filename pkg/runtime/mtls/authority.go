package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// clockSkew is how far the clocks of two machines may differ.
const clockSkew = time.Minute

// Authority issues certificates. Unless it is exported and kept, its key is only in memory, and no more certificates can be
// issued once the process ends.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	ttl         time.Duration // of issued certificates; they never outlive the authority
}

// Issued is a certificate for one process and its key, in PEM.
type Issued struct {
	Certificate []byte
	Key         secret.String
}

// NewAuthority creates an authority. It and its certificates are valid for ttl.
func NewAuthority(ttl time.Duration) (*Authority, error) {
	template := template(ttl)
	template.Subject = pkix.Name{CommonName: "Ironplane authority"}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	certificate, key, err := issue(template, template, nil)
	if err != nil {
		return nil, fmt.Errorf("create an authority: %w", err)
	}
	return &Authority{certificate, key, ttl}, nil
}

// Export returns the authority's certificate and key, for OpenAuthority.
func (a *Authority) Export() (Issued, error) { return encode(a.certificate, a.key) }

// OpenAuthority opens an exported authority. Its certificates are valid for ttl, but no longer than the authority.
func OpenAuthority(kept Issued, ttl time.Duration) (*Authority, error) {
	pair, err := tls.X509KeyPair(kept.Certificate, []byte(kept.Key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("open an authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errors.New("open an authority: the certificate is not that of an Ironplane authority")
	}
	return &Authority{pair.Leaf, key, ttl}, nil
}

// Certificate returns the authority's own certificate in PEM. Processes verify each other by it.
func (a *Authority) Certificate() []byte { return certificatePEM(a.certificate) }

// Issue creates a certificate for the process with this name.
func (a *Authority) Issue(name string) (Issued, error) {
	if !IsName(name) {
		return Issued{}, fmt.Errorf("issue a certificate: %q is not a process name", name)
	}
	template := template(min(a.ttl, time.Until(a.certificate.NotAfter)))
	template.URIs = []*url.URL{spiffeID(name)}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (Issued, error) {
	certificate, key, err := issue(template, a.certificate, a.key)
	if err != nil {
		return Issued{}, fmt.Errorf("issue a certificate: %w", err)
	}
	return encode(certificate, key)
}

// encode returns a certificate and its key in PEM.
func encode(certificate *x509.Certificate, key *ecdsa.PrivateKey) (Issued, error) {
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Issued{}, fmt.Errorf("encode a key: %w", err)
	}
	return Issued{certificatePEM(certificate), secret.New(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})))}, nil
}

func template(ttl time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serialNumber(),
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(ttl),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func serialNumber() *big.Int {
	var bits [16]byte
	rand.Read(bits[:])
	return new(big.Int).SetBytes(bits[:])
}

// issue creates a key and a certificate for it, signed by sign, or by the key itself if sign is nil.
func issue(template, parent *x509.Certificate, sign *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if sign == nil {
		sign = key
	}
	text, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), sign)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(text)
	return certificate, key, err
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
