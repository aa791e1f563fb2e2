package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Delete deletes a file, and its folders if they are empty then. It is no error if the file is missing.
func (t *Tree) Delete(name string) error {
	if err := t.Remove(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		if t.files.Remove(folder) != nil { // it is not empty
			return nil
		}
	}
	return nil
}

// Remove deletes a file. It returns fs.ErrNotExist if the file is missing.
func (t *Tree) Remove(name string) error {
	if err := siteagent.CheckPath(name); err != nil {
		return err
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return fs.ErrNotExist // a folder of the path is none
	}
	info, err := t.files.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%w: %s is a folder", ErrPathConflict, name)
	}
	if err := t.files.Remove(name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.index, name)
	t.unsaved = true
	return nil
}

// Rename renames a file or a folder. It replaces a file only if replace is set.
func (t *Tree) Rename(from, to string, replace bool) error {
	for _, name := range []string{from, to} {
		if err := siteagent.CheckPath(name); err != nil {
			return fs.ErrNotExist
		}
		if err := t.checkFolder(path.Dir(name)); err != nil {
			return err
		}
	}
	if _, err := t.files.Lstat(to); err == nil && !replace {
		return fmt.Errorf("%w: %s exists", ErrPathConflict, to)
	}
	return asPathConflict(asNotExist(t.files.Rename(from, to)))
}

// MakeFolder creates a folder in an existing one.
func (t *Tree) MakeFolder(name string) error {
	if err := siteagent.CheckPath(name); err != nil {
		return err
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return err
	}
	return asPathConflict(t.files.Mkdir(name, folderMode))
}

// RemoveFolder deletes an empty folder.
func (t *Tree) RemoveFolder(name string) error {
	info, err := t.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is not a folder", ErrPathConflict, name)
	}
	return asPathConflict(t.files.Remove(name))
}

// Stat describes a file or a folder; "." is the root. It returns fs.ErrNotExist for links, pipes and the like.
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	if name != "." && siteagent.CheckPath(name) != nil {
		return nil, fs.ErrNotExist
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return nil, fs.ErrNotExist
	}
	info, err := t.files.Lstat(name)
	if err != nil {
		return nil, asNotExist(err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	return info, nil
}

// List returns the files and folders in a folder. It omits links, pipes and the like.
func (t *Tree) List(name string) (all []fs.FileInfo, err error) {
	info, err := t.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is not a folder", ErrPathConflict, name)
	}
	entries, err := fs.ReadDir(t.files.FS(), name)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if one, err := t.Stat(path.Join(name, entry.Name())); err == nil {
			all = append(all, one)
		}
	}
	return all, nil
}
