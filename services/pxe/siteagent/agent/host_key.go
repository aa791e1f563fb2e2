package agent

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/services/pxe/siteagent/durable"
)

// LoadOrCreateHostKey reads the SSH host key from a file. It creates a key if the file is missing.
func LoadOrCreateHostKey(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if text, err = newHostKey(); err == nil {
			err = durable.Replace(file, text) // readable by this user alone
		}
		if err != nil {
			return nil, fmt.Errorf("create a host key: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the host key: %w", err)
	}
	return key, nil
}

func newHostKey() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "site agent")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}
