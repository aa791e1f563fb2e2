package main

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
	// authorityLife is that of the installation's authority, and certificateLife that of the certificates which it issues.
	authorityLife, certificateLife = 10 * year, year
)

// certify makes a certificate for each process. Those that run take it at once.
func (c config) certify() error {
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
			if err := replace(filepath.Join(c.Secrets, name, file), content); err != nil {
				return fmt.Errorf("write down the certificate of %s: %w", name, err)
			}
		}
	}
	return nil
}

// authority is the installation's own, which is made where there is none yet.
func (c config) authority() (*mtls.Authority, error) {
	const certificate, key = "authority.crt", "authority.key"
	own := func(name string) string { return filepath.Join(c.Secrets, keeping, name) }
	text, err := os.ReadFile(own(certificate))
	if errors.Is(err, fs.ErrNotExist) {
		made, err := mtls.NewAuthority(authorityLife)
		if err != nil {
			return nil, err
		}
		kept, err := made.Keep()
		if err != nil {
			return nil, err
		}
		if err := replace(own(key), kept.Key); err != nil { // first, since there is an authority once its certificate is there
			return nil, fmt.Errorf("write down the authority's key: %w", err)
		}
		if err := replace(own(certificate), secret.New(string(kept.Certificate))); err != nil {
			return nil, fmt.Errorf("write down the authority's certificate: %w", err)
		}
		return mtls.OpenAuthority(kept, certificateLife)
	}
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	private, err := c.kept(key)
	if err != nil {
		return nil, err
	}
	return mtls.OpenAuthority(mtls.Issued{Certificate: text, Key: private}, certificateLife)
}
