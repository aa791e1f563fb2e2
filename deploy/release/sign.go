package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
)

// signer signs files with a key that GnuPG has.
type signer struct{ key string }

// newSigner fails if GnuPG does not have the secret key.
func newSigner(ctx context.Context, key string) (signer, error) {
	if key == "" {
		return signer{}, errors.New("no key: name one that gpg --list-secret-keys shows, as in make release KEY=releases@example.com")
	}
	s := signer{key}
	if _, err := s.gpg(ctx, "--list-secret-keys", "--", key); err != nil {
		return s, fmt.Errorf("find the secret key %s: %w", key, err)
	}
	return s, nil
}

// gpg runs GnuPG, and returns what it prints. GnuPG's agent asks for the passphrase.
func (signer) gpg(ctx context.Context, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "gpg", append([]string{"--batch", "--yes"}, arguments...)...)
	var explained bytes.Buffer
	cmd.Stderr = &explained
	printed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("gpg: %w: %s", err, bytes.TrimSpace(explained.Bytes()))
	}
	return printed, nil
}

func (s signer) sign(ctx context.Context, file, signature string, mode ...string) error {
	arguments := append([]string{"--local-user", s.key, "--digest-algo", "SHA512", "--output", signature}, mode...)
	_, err := s.gpg(ctx, append(arguments, "--", file)...)
	return err
}

// detach writes a signature in its binary form.
func (s signer) detach(ctx context.Context, file, signature string) error {
	return s.sign(ctx, file, signature, "--detach-sign")
}

// detachArmored writes a signature as text.
func (s signer) detachArmored(ctx context.Context, file, signature string) error {
	return s.sign(ctx, file, signature, "--armor", "--detach-sign")
}

// clear writes the file's text together with its signature.
func (s signer) clear(ctx context.Context, file, signed string) error {
	return s.sign(ctx, file, signed, "--clear-sign")
}

// public returns the public key as text.
func (s signer) public(ctx context.Context) ([]byte, error) {
	key, err := s.gpg(ctx, "--armor", "--export", "--", s.key)
	if err == nil && len(key) == 0 {
		err = fmt.Errorf("gpg exports no public key for %s", s.key)
	}
	return key, err
}
