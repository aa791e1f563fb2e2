// Package config stores the logins of the command line: which API, and with which key.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Context is a login: an API and a key of it.
type Context struct {
	URL string `json:"url"`
	Key string `json:"key"`
	// Device is a secret that a sign-in by password returned. The next sign-in sends it, so that guesses of others do not lock it out.
	Device string `json:"device,omitempty"`
	// Session is whether the key is that of a sign-in by password. It ends with the login.
	Session bool `json:"session,omitempty"`
}

// File has the logins by name.
type File struct {
	Current  string             `json:"current"`
	Contexts map[string]Context `json:"contexts"`
}

// Path returns where the logins are: in ironplane/logins.json of $XDG_CONFIG_HOME, or of ~/.config.
func Path(getenv func(string) string) (string, error) {
	folder := getenv("XDG_CONFIG_HOME")
	if folder == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set, so logins cannot be stored")
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "ironplane", "logins.json"), nil
}

// Load returns the stored logins. Without a file there are none.
func Load(path string) (*File, error) {
	f := &File{Contexts: map[string]Context{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("%s cannot be read as JSON. Mend it, or delete it and log in again: %w", path, err)
	}
	return f, nil
}

// Save stores the logins. Only the owner of the file can read it, and a crash leaves the old file or the new one.
func (f *File) Save(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".logins-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(append(text, '\n'))
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
