package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// writeCertificate writes a certificate with this serial number, and its key.
func writeCertificate(t *testing.T, number int64, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(number),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"api.example.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: text}} {
		if file == "" {
			continue
		}
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The gateway uses the certificate of the configured files, also while the system service is away, and new files once certificate
// and key fit together.
func TestCertificateFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	config := Config{TLSCertificate: filepath.Join(folder, "certificate.pem"), TLSKey: filepath.Join(folder, "key.pem")}
	warned := &warningHandler{slog.DiscardHandler, new(atomic.Bool)}
	c := newCertificates(config, peers.New(principal.Gateway, map[string]http.Handler{}), nil, slog.New(warned))
	shown := func() int64 {
		certificate, err := c.tlsConfig().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			return 0
		}
		return certificate.Leaf.SerialNumber.Int64()
	}
	look := func(want int64, complains bool) {
		t.Helper()
		warned.any.Store(false)
		_ = c.refresh(t.Context()) // the system service is away
		if shown() != want || warned.any.Load() != complains {
			t.Errorf("got certificate %d and complaints %t, want %d and %t", shown(), warned.any.Load(), want, complains)
		}
	}
	look(0, true)
	look(0, false) // it was logged before
	writeCertificate(t, 1, config.TLSCertificate, config.TLSKey)
	look(1, false)
	writeCertificate(t, 2, config.TLSCertificate, "")
	look(1, true)
	writeCertificate(t, 3, config.TLSCertificate, config.TLSKey)
	look(3, false)
	if err := os.Remove(config.TLSKey); err != nil {
		t.Fatal(err)
	}
	look(3, true)
}
