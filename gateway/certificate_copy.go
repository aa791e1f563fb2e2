package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// certificateCopy is a sealed file with the last response of the system service. A gateway that starts while the service is away
// uses it.
type certificateCopy struct {
	path string
	box  *seal.Box
}

var copyField = seal.Location{Table: "gateway", Column: "certificate"}

// KeepCertificate keeps a sealed copy of the certificate in a file. If the gateway has no certificate yet, it uses the one in the
// file until the system service responds.
func (g *Gateway) KeepCertificate(file string, box *seal.Box) error {
	c := g.certificates
	c.mu.Lock()
	defer c.mu.Unlock()
	c.savedCopy = &certificateCopy{file, box}
	if current := c.state.Load(); current.Edition != "" {
		return c.savedCopy.write(current)
	}
	saved, err := c.savedCopy.read()
	if err != nil || saved == nil {
		return err
	}
	err = c.loadCertificate(saved, c.state.Load())
	c.state.Store(saved)
	return err
}

// read returns the saved state, or nil if there is no file.
func (k *certificateCopy) read() (*tlsState, error) {
	sealed, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the copy of the certificate: %w", err)
	}
	text, err := k.box.Open(copyField, sealed)
	if err != nil {
		return nil, fmt.Errorf("unseal the copy of the certificate in %s: %w", k.path, err)
	}
	state := new(tlsState)
	if err := json.Unmarshal([]byte(text.Reveal()), state); err != nil {
		return nil, errors.New("decode the copy of the certificate") // the cause could contain a part of the key
	}
	return state, nil
}

// write replaces the file atomically. It does nothing if no copy is kept.
func (k *certificateCopy) write(state *tlsState) error {
	if k == nil {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		return errors.New("encode the copy of the certificate") // the cause could contain a part of the key
	}
	file, err := os.CreateTemp(filepath.Dir(k.path), ".new-") // its mode is 0600
	if err != nil {
		return fmt.Errorf("save a copy of the certificate: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(k.box.Seal(copyField, secret.New(string(text))))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), k.path)
	}
	if err != nil {
		return fmt.Errorf("save a copy of the certificate: %w", err)
	}
	return nil
}
