package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	year = 365 * 24 * time.Hour
	// authorityTTL is the lifetime of the installation's authority, certificateTTL that of its certificates.
	authorityTTL, certificateTTL = 10 * year, year
)

// createCertificates creates a certificate for each process. Running processes use it at once.
func (c config) createCertificates() error {
	authority, err := c.authority()
	if err != nil {
		return err
	}
	for _, name := range processes() {
		issued, err := authority.Issue(name)
		if err != nil {
			return err
		}
		for file, content := range map[string]secret.String{
			"mesh.crt": secret.New(string(issued.Certificate)), "mesh.key": issued.Key, "mesh-ca.crt": secret.New(string(authority.Certificate())),
		} {
			if err := replaceFile(filepath.Join(c.Secrets, name, file), content); err != nil {
				return fmt.Errorf("write the certificate of %s: %w", name, err)
			}
		}
	}
	return nil
}

// authority returns the installation's certificate authority. It creates one if there is none.
func (c config) authority() (*mtls.Authority, error) {
	const certificate, key = "authority.crt", "authority.key"
	own := func(name string) string { return filepath.Join(c.Secrets, setupFolder, name) }
	text, err := os.ReadFile(own(certificate))
	if errors.Is(err, fs.ErrNotExist) {
		created, err := mtls.NewAuthority(authorityTTL)
		if err != nil {
			return nil, err
		}
		encoded, err := created.Export()
		if err != nil {
			return nil, err
		}
		if err := replaceFile(own(key), encoded.Key); err != nil { // before the certificate, whose file shows that the authority is complete
			return nil, fmt.Errorf("write the authority's key: %w", err)
		}
		if err := replaceFile(own(certificate), secret.New(string(encoded.Certificate))); err != nil {
			return nil, fmt.Errorf("write the authority's certificate: %w", err)
		}
		return mtls.OpenAuthority(encoded, certificateTTL)
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	private, err := c.readSecret(key)
	if err != nil {
		return nil, err
	}
	return mtls.OpenAuthority(mtls.Issued{Certificate: text, Key: private}, certificateTTL)
}
