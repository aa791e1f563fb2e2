// Package durable writes files so that they are whole and stay there, whatever happens.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file that nobody else reads: there is the old one or the new one.
func Replace(name string, content []byte) (err error) {
	folder := filepath.Dir(name)
	temp, err := os.CreateTemp(folder, ".next-")
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return SyncFolder(folder)
}

// SyncFolder has the names in a folder on the disk.
func SyncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
