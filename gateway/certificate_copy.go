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

// certificateCopy is a file with what the system service said last, for a gateway that starts while it is away.
type certificateCopy struct {
	path string
	box  *seal.Box
}

var copyField = seal.Place{Table: "gateway", Column: "certificate"}

// KeepCertificate keeps a sealed copy of the certificate in a file, and goes by the one that is there until the system service
// answers.
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
		return nil, fmt.Errorf("read the copy of the certificate in %s: %w", k.path, err)
	}
	state := new(tlsState)
	if err := json.Unmarshal([]byte(text.Reveal()), state); err != nil {
		return nil, errors.New("decode the copy of the certificate") // err might show a part
	}
	return state, nil
}

// write replaces the copy, all of it or nothing.
func (k *certificateCopy) write(state *tlsState) error {
	if k == nil {
		return nil
	}
	text, err := json.Marshal(state)
	if err != nil {
		return errors.New("encode the copy of the certificate") // err might show a part
	}
	file, err := os.CreateTemp(filepath.Dir(k.path), ".new-") // mode 0600
	if err != nil {
		return fmt.Errorf("keep a copy of the certificate: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(k.box.Seal(copyField, secret.New(string(text))))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), k.path)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of the certificate: %w", err)
	}
	return nil
}
