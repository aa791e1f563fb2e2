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
	file string
	box  *seal.Box
}

var copyPlace = seal.Place{Table: "gateway", Column: "certificate"}

// KeepCertificate keeps a sealed copy of the certificate in a file, and goes by the one that is there until the system service
// answers.
func (g *Gateway) KeepCertificate(file string, box *seal.Box) error {
	c := g.secured
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copy = &certificateCopy{file, box}
	if was := c.told.Load(); was.Edition != "" {
		return c.copy.write(was)
	}
	now, err := c.copy.read()
	if err != nil || now == nil {
		return err
	}
	err = c.use(now, c.told.Load())
	c.told.Store(now)
	return err
}

func (k *certificateCopy) read() (*told, error) {
	sealed, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the copy of the certificate: %w", err)
	}
	text, err := k.box.Open(copyPlace, sealed)
	if err != nil {
		return nil, fmt.Errorf("read the copy of the certificate in %s: %w", k.file, err)
	}
	now := new(told)
	if err := json.Unmarshal([]byte(text.Reveal()), now); err != nil {
		return nil, errors.New("decode the copy of the certificate") // err might show a part
	}
	return now, nil
}

// write replaces the copy, all of it or nothing.
func (k *certificateCopy) write(now *told) error {
	if k == nil {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return errors.New("encode the copy of the certificate") // err might show a part
	}
	file, err := os.CreateTemp(filepath.Dir(k.file), ".new-") // mode 0600
	if err != nil {
		return fmt.Errorf("keep a copy of the certificate: %w", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(k.box.Seal(copyPlace, secret.New(string(text))))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), k.file)
	}
	if err != nil {
		return fmt.Errorf("keep a copy of the certificate: %w", err)
	}
	return nil
}
