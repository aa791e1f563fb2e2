package agent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent/durable"
)

// certificateLife is that of a certificate that nobody vouches for: who knows its fingerprint does not look at its end.
const certificateLife = 20 * 365 * 24 * time.Hour

// Certificate is what the agent shows to callers, from files that may be replaced while it runs.
type Certificate struct {
	cert, key string

	mu     sync.Mutex
	parsed *tls.Certificate
	of     [2]fileState
}

type fileState struct {
	modified time.Time
	size     int64
}

// OpenCertificate reads one from two files.
func OpenCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	_, err := c.now()
	return c, err
}

// OwnCertificate reads one from a file, which it makes where it is not there.
func OwnCertificate(file string) (*Certificate, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		made, err := newCertificate()
		if err == nil {
			err = durable.Replace(file, made) // which nobody else can read
		}
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
	}
	return OpenCertificate(file, file)
}

// now is the certificate as the files have it. Those that cannot be read, as they are being replaced, leave it as it was.
func (c *Certificate) now() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var of [2]fileState
	for i, file := range []string{c.cert, c.key} {
		if is, err := os.Stat(file); err == nil {
			of[i] = fileState{is.ModTime(), is.Size()}
		}
	}
	if c.parsed != nil && of == c.of {
		return c.parsed, nil
	}
	parsed, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.parsed, c.of = &parsed, of
	} else if c.parsed == nil {
		return nil, err
	}
	return c.parsed, nil
}

// TLS is how callers are spoken with.
func (c *Certificate) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now() }}
}

// Fingerprint is the certificate's SHA-256, as openssl x509 -fingerprint prints it.
func (c *Certificate) Fingerprint() (string, error) {
	is, err := c.now()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(is.Certificate[0])
	digits := strings.ToUpper(hex.EncodeToString(sum[:]))
	var b strings.Builder
	for i := 0; i < len(digits); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(digits[i : i+2])
	}
	return b.String(), nil
}

// newCertificate is a key and a certificate that nobody vouches for.
func newCertificate() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	name, _ := os.Hostname() // for people alone
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "site agent " + name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certificateLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = errors.Join(
		pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	)
	return b.Bytes(), err
}
