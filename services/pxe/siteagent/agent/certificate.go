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

// certificateTTL is that of a certificate that nobody vouches for: who knows its fingerprint does not look at its end.
const certificateTTL = 20 * 365 * 24 * time.Hour

// Certificate is what the agent shows to callers, from files that may be replaced while it runs.
type Certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	parsed *tls.Certificate
	state  [2]fileState
}

type fileState struct {
	modified time.Time
	size     int64
}

// OpenCertificate reads one from two files.
func OpenCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{certFile: cert, keyFile: key}
	_, err := c.current()
	return c, err
}

// LoadOrCreateCertificate reads one from a file, which it makes where it is not there.
func LoadOrCreateCertificate(file string) (*Certificate, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		content, err := newCertificate()
		if err == nil {
			err = durable.Replace(file, content) // which nobody else can read
		}
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
	}
	return OpenCertificate(file, file)
}

// current is the certificate as the files have it. Those that cannot be read, as they are being replaced, leave it as it was.
func (c *Certificate) current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var state [2]fileState
	for i, file := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(file); err == nil {
			state[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	if c.parsed != nil && state == c.state {
		return c.parsed, nil
	}
	parsed, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.parsed, c.state = &parsed, state
	} else if c.parsed == nil {
		return nil, err
	}
	return c.parsed, nil
}

// TLSConfig is how callers are spoken with.
func (c *Certificate) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current() },
	}
}

// Fingerprint is the certificate's SHA-256, as openssl x509 -fingerprint prints it.
func (c *Certificate) Fingerprint() (string, error) {
	info, err := c.current()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(info.Certificate[0])
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
		NotAfter:     time.Now().Add(certificateTTL),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	privateKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = errors.Join(
		pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: privateKey}),
	)
	return b.Bytes(), err
}
