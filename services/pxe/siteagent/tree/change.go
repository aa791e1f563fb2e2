package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Delete deletes a file, and the folders that are empty without it. One that is not there is deleted.
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

// Remove deletes a file.
func (t *Tree) Remove(name string) error {
	if err := siteagent.CheckPath(name); err != nil {
		return err
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return fs.ErrNotExist // what it leads through is no folder
	}
	info, err := t.files.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder: %w", name, ErrPathConflict)
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

// Rename gives a file or a folder another name, which nothing has, unless it may take a file's place.
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
		return fmt.Errorf("%s is there already: %w", to, ErrPathConflict)
	}
	return asPathConflict(asNotExist(t.files.Rename(from, to)))
}

// MakeFolder makes one in a folder that is there.
func (t *Tree) MakeFolder(name string) error {
	if err := siteagent.CheckPath(name); err != nil {
		return err
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return err
	}
	return asPathConflict(t.files.Mkdir(name, folderMode))
}

// RemoveFolder removes one that is empty.
func (t *Tree) RemoveFolder(name string) error {
	info, err := t.Stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder: %w", name, ErrPathConflict)
	}
	return asPathConflict(t.files.Remove(name))
}

// Stat is how a file or a folder looks; "." is the folder of all. What is neither is not there.
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

// List is what is in a folder, but for what is neither a file nor a folder.
func (t *Tree) List(name string) (all []fs.FileInfo, err error) {
	info, err := t.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder: %w", name, ErrPathConflict)
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
