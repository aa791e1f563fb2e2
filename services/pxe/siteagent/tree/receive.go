package tree

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Received is how much there is of a content: all of it, where a file has it.
func (t *Tree) Received(sum string) (int64, error) {
	if file, is, err := t.holding(sum); err == nil {
		return is.Size(), file.Close()
	}
	is, err := t.parts.Lstat(sum)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return is.Size(), nil
}

// holding opens a file that has a content.
func (t *Tree) holding(sum string) (*os.File, fs.FileInfo, error) {
	t.mu.Lock()
	name, ok := t.bySum[sum]
	t.mu.Unlock()
	if !ok {
		return nil, nil, fs.ErrNotExist
	}
	file, is, err := t.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if has, known := t.sum(name, is); !known || has != sum {
		return nil, nil, errors.Join(fs.ErrNotExist, file.Close())
	}
	return file, is, nil
}

// Receive takes a file from an offset of its content on, of which it has to have so much: see Received. What has arrived stays,
// whatever ends it, and the file is seen, and on the disk, once all of it has, and is what it is said to be.
func (t *Tree) Receive(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) error {
	a, err := t.Take(ctx, f, offset, rest)
	if err != nil || a == nil {
		return err
	}
	defer t.release(a)
	return t.place(a)
}

// Arrived is a content of which a file is to be made: it is whole, what it is said to be, and not yet seen.
type Arrived struct {
	siteagent.File
	part string // its name in the folder of parts
}

// again tells whether the content is gone on with where it was left, and so arrives but once at a time.
func (a *Arrived) again() bool { return a.part == a.SHA256 }

// Take takes a content as Receive does; PlaceAll makes a file of it. There is nothing to be made of a file that is there already.
func (t *Tree) Take(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) (*Arrived, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if err := t.plain(path.Dir(f.Path)); err != nil {
		return nil, err
	}
	if file, is, err := t.holding(f.SHA256); err == nil {
		defer file.Close()
		if is.Size() != f.Size {
			return nil, fmt.Errorf("it has %d bytes: %w", is.Size(), ErrContent)
		}
		if now, err := t.files.Lstat(f.Path); err == nil && os.SameFile(now, is) {
			return nil, nil
		}
		a, err := t.copy(ctx, f, file)
		if errors.Is(err, ErrContent) { // it has changed where nobody could see that
			t.distrust(f.SHA256)
		}
		return a, err
	}
	if !t.begin(f.SHA256) {
		return nil, fmt.Errorf("the same content is arriving: %w", ErrBusy)
	}
	a := &Arrived{f, f.SHA256}
	if err := t.append(ctx, a, offset, rest); err != nil {
		t.release(a)
		return nil, err
	}
	return a, nil
}

// Again makes another file of a content that has arrived, and of which no file was made yet.
func (t *Tree) Again(ctx context.Context, a *Arrived, f siteagent.File) (*Arrived, error) {
	if err := t.plain(path.Dir(f.Path)); err != nil {
		return nil, err
	}
	from, err := t.parts.Open(a.part)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return t.copy(ctx, f, from)
}

// copy makes a part of a file.
func (t *Tree) copy(ctx context.Context, f siteagent.File, from io.Reader) (*Arrived, error) {
	a := &Arrived{f, passing + rand.Text()}
	if err := t.append(ctx, a, 0, from); err != nil {
		_ = t.parts.Remove(a.part) // which is forgotten at the next start
		return nil, err
	}
	return a, nil
}

// distrust has the file read again that is thought to have a content.
func (t *Tree) distrust(sum string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.index, t.bySum[sum])
	delete(t.bySum, sum)
	t.unsaved = true
}

func (t *Tree) append(ctx context.Context, a *Arrived, offset int64, rest io.Reader) (err error) {
	to, err := t.parts.OpenFile(a.part, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	is, err := to.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	switch {
	case offset == 0 && is.Size() > 0: // begun anew
		if err := to.Truncate(0); err != nil {
			return err
		}
	case is.Size() != offset:
		return ErrOffset
	case offset > 0:
		if err := synced(to, 0, offset, unix.SYNC_FILE_RANGE_WAIT_BEFORE); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", ErrContent, err), t.parts.Remove(a.part))
		}
		if _, err := io.Copy(sum, reading{ctx, to}); err != nil {
			return err
		}
	}
	n, err := writeHashed(to, offset, sum, reading{ctx, io.LimitReader(rest, a.Size-offset)})
	if errors.Is(err, errLost) {
		return errors.Join(err, t.parts.Remove(a.part))
	}
	if err != nil {
		return err
	}
	if offset+n < a.Size {
		return io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 {
		return errors.Join(fmt.Errorf("%w: %s instead of %s", ErrContent, got, a.SHA256), t.parts.Remove(a.part))
	}
	return nil
}

// place lets one file be seen that has arrived, once it is on the disk.
func (t *Tree) place(a *Arrived) error {
	from, err := t.parts.Open(a.part)
	if err != nil {
		return err
	}
	if err := errors.Join(from.Sync(), from.Close()); err != nil {
		return errors.Join(err, t.parts.Remove(a.part)) // what did not get there is in memory as if it had
	}
	in, err := t.folderOf(a.Path)
	if err != nil {
		return err
	}
	return errors.Join(t.rename(a, in), in.Sync(), in.Close())
}

// PlaceAll lets files be seen that have arrived, once all of them are on the disk, for which it waits once. What became of each stands
// in its place. That they have their names for good is so after Sync.
func (t *Tree) PlaceAll(all []*Arrived) (became []error, err error) {
	defer func() {
		for _, a := range all {
			t.release(a)
		}
	}()
	if err := t.Sync(); err != nil {
		for _, a := range all { // what did not get there is in memory as if it had
			err = errors.Join(err, t.parts.Remove(a.part))
		}
		return nil, err
	}
	byFolder := make([]int, len(all))
	for n := range all {
		byFolder[n] = n
	}
	folder := func(n int) string { return path.Dir(all[n].Path) }
	slices.SortStableFunc(byFolder, func(a, b int) int { return cmp.Compare(folder(a), folder(b)) })
	became = make([]error, len(all))
	for len(byFolder) > 0 {
		same := 1
		for same < len(byFolder) && folder(byFolder[same]) == folder(byFolder[0]) {
			same++
		}
		in, err := t.folderOf(all[byFolder[0]].Path)
		for _, n := range byFolder[:same] {
			if became[n] = err; err == nil {
				became[n] = t.rename(all[n], in)
			}
		}
		if err == nil {
			_ = in.Close() // it was opened to be read
		}
		byFolder = byFolder[same:]
	}
	return became, nil
}

// Sync waits until all that was done to the files is on the disk.
func (t *Tree) Sync() error {
	if err := unix.Syncfs(int(t.lock.Fd())); err != nil {
		return fmt.Errorf("write to the disk: %w", err)
	}
	return nil
}

// folderOf opens the folder of a file, which is made where there is none.
func (t *Tree) folderOf(name string) (*os.File, error) {
	folder := path.Dir(name)
	if err := t.plain(folder); err != nil {
		return nil, err
	}
	if err := t.files.MkdirAll(folder, folderMode); err != nil {
		return nil, inTheWay(err)
	}
	in, err := t.files.Open(folder)
	return in, inTheWay(err)
}

// rename gives a part the name of its file, in this folder. Without one it is left where it can be gone on with.
func (t *Tree) rename(a *Arrived, in *os.File) error {
	base := path.Base(a.Path)
	if err := unix.Renameat(int(t.partsAt.Fd()), a.part, int(in.Fd()), base); err != nil {
		if !a.again() {
			_ = t.parts.Remove(a.part) // which is forgotten at the next start
		}
		return inTheWay(&fs.PathError{Op: "rename", Path: a.Path, Err: err})
	}
	var is unix.Stat_t
	if err := unix.Fstatat(int(in.Fd()), base, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: a.Path, Err: err}
	}
	t.know(a.Path, known{Size: is.Size, Modified: is.Mtim.Nano(), Changed: is.Ctim.Nano(), Inode: is.Ino, SHA256: a.SHA256})
	return nil
}

func inTheWay(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("%w: %w", ErrInTheWay, err)
	}
	return err
}

func (t *Tree) begin(sum string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arriving[sum] {
		return false
	}
	t.arriving[sum] = true
	return true
}

func (t *Tree) end(sum string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.arriving, sum)
}

// release lets a content arrive again.
func (t *Tree) release(a *Arrived) {
	if a.again() {
		t.end(a.SHA256)
	}
}
