package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// indexEntry is a file's SHA-256, with the attributes that show whether the file has changed since.
type indexEntry struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // in nanoseconds, as is Changed
	Changed  int64  `json:"changed"`
	Inode    uint64 `json:"inode"`
	SHA256   string `json:"sha256"`
}

// newIndexEntry returns an entry without a SHA-256.
func newIndexEntry(info fs.FileInfo) indexEntry {
	k := indexEntry{Size: info.Size(), Modified: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		k.Changed, k.Inode = stat.Ctim.Nano(), stat.Ino
	}
	return k
}

// matches compares all but the SHA-256.
func (k indexEntry) matches(other indexEntry) bool {
	k.SHA256 = other.SHA256
	return k == other
}

// Manifest returns all files, sorted by path, and the names of other entries, which are not served. It hashes files that the index
// does not know.
func (t *Tree) Manifest(ctx context.Context) (all []siteagent.File, unserved []string, err error) {
	err = fs.WalkDir(t.files.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir():
			return nil
		case !entry.Type().IsRegular() || siteagent.CheckPath(name) != nil:
			unserved = append(unserved, name)
			return nil
		}
		f, err := t.describeFile(ctx, name, entry)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrPathConflict) { // it has just been deleted
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if len(all) == siteagent.MaxFiles {
			return fmt.Errorf("the folder has more than %d files", siteagent.MaxFiles)
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	t.forgetMissing(all)
	slices.SortFunc(all, func(a, b siteagent.File) int { return strings.Compare(a.Path, b.Path) })
	return all, unserved, nil
}

// describeFile returns a file's size and SHA-256. It reads the file if the index does not know it.
func (t *Tree) describeFile(ctx context.Context, name string, entry fs.DirEntry) (siteagent.File, error) {
	info, err := entry.Info() // no system call: a root's entries have it
	if err != nil {
		return siteagent.File{}, err
	}
	if sum, ok := t.knownSum(name, info); ok {
		return siteagent.File{Path: name, Size: info.Size(), SHA256: sum}, nil
	}
	file, f, err := t.OpenHashed(ctx, name)
	if err != nil {
		return f, err
	}
	return f, file.Close()
}

// knownSum returns a file's SHA-256 if the index knows it.
func (t *Tree) knownSum(name string, info fs.FileInfo) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.index[name]
	return k.SHA256, ok && k.matches(newIndexEntry(info))
}

func (t *Tree) remember(name string, k indexEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index[name], t.bySum[k.SHA256], t.unsaved = k, name, true
}

// forgetMissing deletes the entries of missing files from the index.
func (t *Tree) forgetMissing(all []siteagent.File) {
	found := make(map[string]bool, len(all))
	for _, f := range all {
		found[f.Path] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.index {
		if found[name] {
			continue
		}
		if info, err := t.files.Lstat(name); err != nil || !info.Mode().IsRegular() {
			delete(t.index, name)
			t.unsaved = true
		}
	}
}
