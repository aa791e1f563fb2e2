// Package license is the program that creates licenses, and the keys that sign them.
package license

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system/license"
)

// config is the configuration of all commands, from environment variables.
type config struct {
	Key        secret.String `env:"IRONPLANE_LICENSE_KEY" required:"sign" doc:"the private key to sign with"`
	KeyFile    string        `env:"IRONPLANE_LICENSE_NEW_KEY" required:"keys" doc:"the file for the new private key; it must not exist yet"`
	To         string        `env:"IRONPLANE_LICENSE_TO" required:"sign" doc:"the name of the licensee"`
	Life       time.Duration `env:"IRONPLANE_LICENSE_LIFE" default:"8760h" doc:"how long the license is valid"`
	Enterprise bool          `env:"IRONPLANE_LICENSE_ENTERPRISE" default:"false" doc:"whether the license includes themes"`
}

// Program returns the program license.
func Program() process.Program {
	var c config
	return process.Program{Name: "license", Config: &c, Commands: []process.Command{
		{Name: "sign", Summary: "print a license", Run: func(context.Context) error { return c.sign() }},
		{
			Name:    "keys",
			Summary: "create a key pair: write the private key to a file, and print the public key for IRONPLANE_LICENSE_SIGNER",
			Run:     func(context.Context) error { return c.createKeys() },
		},
	}, Checks: func() []health.Check { return nil }}
}

// sign prints a new license.
func (c *config) sign() error {
	key, err := license.ParseKey(c.Key.Reveal())
	if err != nil {
		return fmt.Errorf("IRONPLANE_LICENSE_KEY: %w", err)
	}
	now := time.Now()
	text, err := license.Sign(license.Terms{Enterprise: c.Enterprise, RegisteredClaims: jwt.RegisteredClaims{
		ID:        uuid.NewString(),
		Subject:   c.To,
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(c.Life)),
	}}, key)
	if err != nil {
		return err
	}
	_, err = fmt.Println(text)
	return err
}

// createKeys writes a new private key to a file, and prints the public key.
func (c *config) createKeys() error {
	key, err := license.NewKey()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.KeyFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("IRONPLANE_LICENSE_NEW_KEY: %w", err)
	}
	_, err = file.WriteString(license.EncodeKey(key.Seed()))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	_, err = fmt.Println(license.EncodeKey(key.Public().(ed25519.PublicKey)))
	return err
}
