// Package durable writes files that survive a crash or power failure, either old or new and never in part.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file atomically, with mode 0600. After a crash the file has either its old or its new content.
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

// SyncFolder writes a folder's list of names to the disk.
func SyncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
