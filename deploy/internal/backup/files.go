package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// restoreStore writes the files of the store into its folder. Other files stay.
func (a *Archive) restoreStore(ctx context.Context, folder string) error {
	names := a.names(storeFolder)
	if len(names) == 0 {
		return nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	owner, err := os.Stat(folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		file := filepath.Join(folder, filepath.FromSlash(strings.TrimPrefix(name, storeFolder)))
		part := a.parts[name]
		if err := writeFile(file, contextReader{ctx, io.NewSectionReader(part, 0, part.Size())}, owner); err != nil {
			return err
		}
	}
	return nil
}

// restoreSettings writes the settings that differ from the present ones into a folder. The present ones stay, because addresses of
// another machine may differ.
func (a *Archive) restoreSettings(present, to string, screen io.Writer) error {
	differ := false
	for _, name := range a.names(settingsFolder) {
		text, err := io.ReadAll(io.NewSectionReader(a.parts[name], 0, a.parts[name].Size()))
		if err != nil {
			return err
		}
		base := strings.TrimPrefix(name, settingsFolder)
		if present != "" {
			same, err := os.ReadFile(filepath.Join(present, base))
			if err == nil && bytes.Equal(same, text) {
				continue
			}
		}
		if err := writeFile(filepath.Join(to, base), bytes.NewReader(text), nil); err != nil {
			return err
		}
		differ = true
	}
	if differ {
		fmt.Fprintf(screen, "Settings of the backup that differ from the present ones are in %s. Compare them by hand.\n", to)
	}
	return nil
}

// writeFile writes a file that only its owner can read, completely or not at all, and creates its folder. If this process runs as root,
// the file and its new folders get the owner of the given folder.
func writeFile(path string, content io.Reader, owner fs.FileInfo) error {
	if err := makeFolder(filepath.Dir(path), owner); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), giveTo(file.Name(), owner)); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// makeFolder creates a folder and its parents.
func makeFolder(path string, owner fs.FileInfo) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeFolder(filepath.Dir(path), owner); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return giveTo(path, owner)
}

// giveTo gives a file to the owner of another one, if this process runs as root.
func giveTo(path string, owner fs.FileInfo) error {
	if owner == nil || os.Geteuid() != 0 {
		return nil
	}
	stat, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Chown(path, int(stat.Uid), int(stat.Gid))
}
