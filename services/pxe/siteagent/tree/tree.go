// Package tree keeps an agent's files in one folder. No path leads out of the folder, and no file is visible before it is
// complete.
package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// The folder's entries: visible files, incomplete contents by their SHA-256, and the index of known files.
const (
	filesFolder = "files"
	partsFolder = "parts"
	indexFile   = "index"
	lockFile    = "lock"

	folderMode, fileMode = 0o755, 0o644

	// tempPrefix begins the names of parts that cannot be resumed.
	tempPrefix = "passing-"
)

// partTTL is how long an incomplete content waits for the rest.
const partTTL = 7 * 24 * time.Hour

var (
	// ErrBusy says that the content is being received already, or that another program uses the folder.
	ErrBusy = errors.New("in use")
	// ErrOffset says that the tree has more or less of a content than the sender thinks.
	ErrOffset = errors.New("the offset is not the number of bytes received so far")
	// ErrContent says that a content does not have the SHA-256 that the sender named.
	ErrContent = errors.New("the content does not match its SHA-256")
	// ErrPathConflict says that a path needs a folder where there is a file, or the reverse.
	ErrPathConflict = errors.New("the path is blocked")
)

// Tree is an open folder.
type Tree struct {
	folder string
	root   *os.Root
	files  *os.Root
	parts  *os.Root
	// partsAt is the folder of parts as a descriptor, for renames.
	partsAt *os.File
	lock    *os.File

	hashSlot chan struct{} // one file is hashed at a time, because callers often request the same one

	mu       sync.Mutex
	index    map[string]indexEntry // by path
	bySum    map[string]string
	arriving map[string]bool // SHA-256 of contents that are being received
	unsaved  bool
}

// Open opens a folder, which must exist. No other program can open it until Close.
func Open(folder string) (t *Tree, err error) {
	t = &Tree{
		folder:   folder,
		hashSlot: make(chan struct{}, 1),
		index:    map[string]indexEntry{},
		bySum:    map[string]string{},
		arriving: map[string]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.root, err = os.OpenRoot(folder); err != nil {
		return t, err
	}
	if t.lock, err = t.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return t, err
	}
	if err := syscall.Flock(int(t.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return t, fmt.Errorf("%s is %w by another agent", folder, ErrBusy)
	}
	for name, mode := range map[string]fs.FileMode{filesFolder: folderMode, partsFolder: 0o700} {
		if err := t.root.Mkdir(name, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return t, err
		}
	}
	if t.files, err = t.root.OpenRoot(filesFolder); err != nil {
		return t, err
	}
	if t.parts, err = t.root.OpenRoot(partsFolder); err != nil {
		return t, err
	}
	if t.partsAt, err = t.parts.Open("."); err != nil {
		return t, err
	}
	return t, errors.Join(t.load(), t.tidy())
}

// Check returns an error if Open would fail. It changes nothing.
func Check(folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("not a folder")
	}
	const readWriteSearch = 7
	if err := syscall.Access(folder, readWriteSearch); err != nil {
		return fmt.Errorf("this user needs to read, write and search the folder: %w", err)
	}
	lock, err := os.Open(filepath.Join(folder, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("the folder is %w by another agent, or by this one if it runs", ErrBusy)
	}
	return nil
}

// Close saves the index and closes the folder.
func (t *Tree) Close() (err error) {
	if t.files != nil {
		err = errors.Join(err, t.Save(), t.files.Close())
	}
	if t.parts != nil {
		err = errors.Join(err, t.parts.Close())
	}
	if t.partsAt != nil {
		err = errors.Join(err, t.partsAt.Close())
	}
	if t.lock != nil { // unlocks at once: a child process that is being started may still hold the file
		err = errors.Join(err, syscall.Flock(int(t.lock.Fd()), syscall.LOCK_UN), t.lock.Close())
	}
	if t.root != nil {
		err = errors.Join(err, t.root.Close())
	}
	return err
}

// Path returns the path of one of the agent's own files, which are never served.
func (t *Tree) Path(name string) string { return filepath.Join(t.folder, name) }

// tidy deletes parts that are too old or cannot be resumed.
func (t *Tree) tidy() error {
	parts, err := fs.ReadDir(t.parts.FS(), ".")
	if err != nil {
		return err
	}
	for _, part := range parts {
		info, infoErr := part.Info()
		if infoErr == nil && (time.Since(info.ModTime()) > partTTL || strings.HasPrefix(part.Name(), tempPrefix)) {
			err = errors.Join(err, t.parts.Remove(part.Name()))
		}
	}
	return err
}

// Space returns the free and total bytes of the tree's disk.
func (t *Tree) Space() (free, total int64, err error) { return Space(t.folder) }

// Space returns the bytes of a folder's disk that are free for users other than root, and all of its bytes.
func Space(folder string) (free, total int64, err error) {
	var info syscall.Statfs_t
	if err := syscall.Statfs(folder, &info); err != nil {
		return 0, 0, fmt.Errorf("read the free space: %w", err)
	}
	return int64(info.Bavail) * info.Bsize, int64(info.Blocks) * info.Bsize, nil
}

// Open opens a file for reading. It returns fs.ErrNotExist for folders, links, pipes and the like.
func (t *Tree) Open(name string) (*os.File, fs.FileInfo, error) {
	if err := siteagent.CheckPath(name); err != nil {
		return nil, nil, fs.ErrNotExist
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return nil, nil, err
	}
	before, err := t.files.Lstat(name)
	if err != nil {
		return nil, nil, asNotExist(err)
	}
	if !before.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	file, err := t.files.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, nil, asNotExist(err)
	}
	info, err := file.Stat()
	if err == nil && !os.SameFile(before, info) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// Exists reports whether there is a file or a folder with this name. A link, a pipe and the like count as nothing.
func (t *Tree) Exists(name string) (bool, error) {
	if siteagent.CheckPath(name) != nil {
		return false, nil
	}
	err := t.checkFolder(path.Dir(name))
	var info fs.FileInfo
	if err == nil {
		info, err = t.files.Lstat(name)
	}
	if err = asNotExist(err); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && (info.IsDir() || info.Mode().IsRegular()), err
}

// OpenHashed opens a file for reading, and returns its size and SHA-256.
func (t *Tree) OpenHashed(ctx context.Context, name string) (*os.File, siteagent.File, error) {
	file, info, err := t.Open(name)
	if err != nil {
		return nil, siteagent.File{}, err
	}
	f := siteagent.File{Path: name, Size: info.Size()}
	var known bool
	if f.SHA256, known = t.knownSum(name, info); known {
		return file, f, nil
	}
	if err := t.hash(ctx, file, info, &f); err != nil {
		return nil, f, errors.Join(err, file.Close())
	}
	return file, f, nil
}

// hash finds the SHA-256 of an open file, and seeks to its beginning.
func (t *Tree) hash(ctx context.Context, file *os.File, info fs.FileInfo, f *siteagent.File) (err error) {
	select {
	case t.hashSlot <- struct{}{}:
		defer func() { <-t.hashSlot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var known bool
	if f.SHA256, known = t.knownSum(f.Path, info); known {
		return nil
	}
	sum := sha256.New()
	if f.Size, err = io.Copy(sum, contextReader{ctx, file}); err != nil {
		return err
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	// A file that was written just now may change again without another modification time.
	if after, err := file.Stat(); err == nil && newIndexEntry(after) == newIndexEntry(info) && time.Since(info.ModTime()) > 2*time.Second {
		k := newIndexEntry(info)
		k.SHA256 = f.SHA256
		t.remember(f.Path, k)
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// contextReader fails once its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// checkFolder returns ErrPathConflict if the path has something else than folders, such as links. Missing folders are fine.
func (t *Tree) checkFolder(folder string) error {
	if folder == "." {
		return nil
	}
	for offset := 0; offset >= 0; {
		next := strings.IndexByte(folder[offset:], '/')
		name := folder
		if next >= 0 {
			name, offset = folder[:offset+next], offset+next+1
		} else {
			offset = -1
		}
		info, err := t.files.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%w: %s is not a folder", ErrPathConflict, name)
		}
	}
	return nil
}

// asNotExist returns fs.ErrNotExist if a folder of the path is none.
func asNotExist(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fs.ErrNotExist
	}
	return err
}
