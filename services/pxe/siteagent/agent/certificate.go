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

// certificateTTL is the life of the agent's own certificate. Callers pin its fingerprint and ignore when it expires.
const certificateTTL = 20 * 365 * 24 * time.Hour

// Certificate is the agent's certificate for HTTPS. Its files may be replaced while the agent runs.
type Certificate struct {
	certFile, keyFile string

	mu     sync.Mutex
	parsed *tls.Certificate
	state  [2]fileState
}

// fileState shows whether a file has changed.
type fileState struct {
	modified time.Time
	size     int64
}

// OpenCertificate reads a certificate and its key from two files.
func OpenCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{certFile: cert, keyFile: key}
	_, err := c.current()
	return c, err
}

// LoadOrCreateCertificate reads a certificate and its key from one file. It creates a self-signed certificate if the file is
// missing.
func LoadOrCreateCertificate(file string) (*Certificate, error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		content, err := newCertificate()
		if err == nil {
			err = durable.Replace(file, content) // readable by this user alone
		}
		if err != nil {
			return nil, fmt.Errorf("create a certificate: %w", err)
		}
	}
	return OpenCertificate(file, file)
}

// current returns the certificate, and reads the files again if they changed. It keeps the last certificate while the files are
// unreadable, as in the middle of a replacement.
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

// TLSConfig returns the configuration for a server.
func (c *Certificate) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current() },
	}
}

// Fingerprint returns the certificate's SHA-256 as openssl x509 -fingerprint prints it.
func (c *Certificate) Fingerprint() (string, error) {
	cert, err := c.current()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(cert.Certificate[0])
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

// newCertificate returns a new key and its self-signed certificate in PEM.
func newCertificate() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	name, _ := os.Hostname() // informative only
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
