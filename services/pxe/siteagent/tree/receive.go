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

// Received returns how many bytes of a content the tree has: of a part, or of a whole file.
func (t *Tree) Received(sum string) (int64, error) {
	if file, info, err := t.openBySum(sum); err == nil {
		return info.Size(), file.Close()
	}
	info, err := t.parts.Lstat(sum)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// openBySum opens a file with a content. It returns fs.ErrNotExist if no file is known to have it.
func (t *Tree) openBySum(sum string) (*os.File, fs.FileInfo, error) {
	t.mu.Lock()
	name, ok := t.bySum[sum]
	t.mu.Unlock()
	if !ok {
		return nil, nil, fs.ErrNotExist
	}
	file, info, err := t.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if sum256, known := t.knownSum(name, info); !known || sum256 != sum {
		return nil, nil, errors.Join(fs.ErrNotExist, file.Close())
	}
	return file, info, nil
}

// Receive receives a file's content from an offset on, which must be what Received says. After an error it keeps what arrived. The
// file becomes visible once its content is complete, verified and on the disk.
func (t *Tree) Receive(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) error {
	staged, err := t.Stage(ctx, f, offset, rest)
	if err != nil || staged == nil {
		return err
	}
	defer t.release(staged)
	return t.publish(staged)
}

// StagedFile is a complete and verified content that is not visible as a file yet.
type StagedFile struct {
	siteagent.File
	part string // its name in the folder parts
}

// isResumable reports whether the part is named for its content. Such a part can be resumed, and only one transfer may write it at
// a time.
func (staged *StagedFile) isResumable() bool { return staged.part == staged.SHA256 }

// Stage receives a content as Receive does, without making it visible; see PublishAll. It returns nil if the file exists already.
func (t *Tree) Stage(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) (*StagedFile, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if err := t.checkFolder(path.Dir(f.Path)); err != nil {
		return nil, err
	}
	if file, info, err := t.openBySum(f.SHA256); err == nil {
		defer file.Close()
		if info.Size() != f.Size {
			return nil, fmt.Errorf("%w: it has %d bytes, not %d", ErrContent, info.Size(), f.Size)
		}
		if current, err := t.files.Lstat(f.Path); err == nil && os.SameFile(current, info) {
			return nil, nil
		}
		staged, err := t.stageFrom(ctx, f, file)
		if errors.Is(err, ErrContent) { // it has changed without a trace in its attributes
			t.invalidate(f.SHA256)
		}
		return staged, err
	}
	if !t.lockContent(f.SHA256) {
		return nil, fmt.Errorf("the same content is %w by another transfer", ErrBusy)
	}
	staged := &StagedFile{f, f.SHA256}
	if err := t.writePart(ctx, staged, offset, rest); err != nil {
		t.release(staged)
		return nil, err
	}
	return staged, nil
}

// StageCopy stages another file with the content of a staged file.
func (t *Tree) StageCopy(ctx context.Context, staged *StagedFile, f siteagent.File) (*StagedFile, error) {
	if err := t.checkFolder(path.Dir(f.Path)); err != nil {
		return nil, err
	}
	from, err := t.parts.Open(staged.part)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return t.stageFrom(ctx, f, from)
}

// stageFrom stages a file with the content of a reader.
func (t *Tree) stageFrom(ctx context.Context, f siteagent.File, from io.Reader) (*StagedFile, error) {
	staged := &StagedFile{f, tempPrefix + rand.Text()}
	if err := t.writePart(ctx, staged, 0, from); err != nil {
		_ = t.parts.Remove(staged.part) // or the next start deletes it
		return nil, err
	}
	return staged, nil
}

// invalidate removes from the index the file that was thought to have a content.
func (t *Tree) invalidate(sum string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.index, t.bySum[sum])
	delete(t.bySum, sum)
	t.unsaved = true
}

// writePart writes a part from an offset on, and verifies the whole content. It deletes a part with another content.
func (t *Tree) writePart(ctx context.Context, staged *StagedFile, offset int64, rest io.Reader) (err error) {
	to, err := t.parts.OpenFile(staged.part, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	info, err := to.Stat()
	if err != nil {
		return err
	}
	sum := sha256.New()
	switch {
	case offset == 0 && info.Size() > 0: // start again
		if err := to.Truncate(0); err != nil {
			return err
		}
	case info.Size() != offset:
		return ErrOffset
	case offset > 0:
		if err := syncRange(to, 0, offset, unix.SYNC_FILE_RANGE_WAIT_BEFORE); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", ErrContent, err), t.parts.Remove(staged.part))
		}
		if _, err := io.Copy(sum, contextReader{ctx, to}); err != nil {
			return err
		}
	}
	n, err := writeHashed(to, offset, sum, contextReader{ctx, io.LimitReader(rest, staged.Size-offset)})
	if errors.Is(err, errNotWritten) {
		return errors.Join(err, t.parts.Remove(staged.part))
	}
	if err != nil {
		return err
	}
	if offset+n < staged.Size {
		return io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != staged.SHA256 {
		return errors.Join(fmt.Errorf("%w: got %s, want %s", ErrContent, got, staged.SHA256), t.parts.Remove(staged.part))
	}
	return nil
}

// publish makes one staged file visible, once it is on the disk.
func (t *Tree) publish(staged *StagedFile) error {
	from, err := t.parts.Open(staged.part)
	if err != nil {
		return err
	}
	if err := errors.Join(from.Sync(), from.Close()); err != nil {
		return errors.Join(err, t.parts.Remove(staged.part)) // the page cache holds the lost bytes as if they were written
	}
	parent, err := t.openParent(staged.Path)
	if err != nil {
		return err
	}
	return errors.Join(t.rename(staged, parent), parent.Sync(), parent.Close())
}

// PublishAll makes staged files visible, after one sync for all of them. errs has each file's error. Their names are on the disk
// only after Sync.
func (t *Tree) PublishAll(all []*StagedFile) (errs []error, err error) {
	defer func() {
		for _, staged := range all {
			t.release(staged)
		}
	}()
	if err := t.Sync(); err != nil {
		for _, staged := range all { // the page cache holds the lost bytes as if they were written
			err = errors.Join(err, t.parts.Remove(staged.part))
		}
		return nil, err
	}
	byFolder := make([]int, len(all))
	for n := range all {
		byFolder[n] = n
	}
	folder := func(n int) string { return path.Dir(all[n].Path) }
	slices.SortStableFunc(byFolder, func(a, b int) int { return cmp.Compare(folder(a), folder(b)) })
	errs = make([]error, len(all))
	for len(byFolder) > 0 {
		sameFolder := 1
		for sameFolder < len(byFolder) && folder(byFolder[sameFolder]) == folder(byFolder[0]) {
			sameFolder++
		}
		parent, err := t.openParent(all[byFolder[0]].Path)
		for _, n := range byFolder[:sameFolder] {
			if errs[n] = err; err == nil {
				errs[n] = t.rename(all[n], parent)
			}
		}
		if err == nil {
			_ = parent.Close() // it was opened for reading
		}
		byFolder = byFolder[sameFolder:]
	}
	return errs, nil
}

// Sync waits until all changes to files are on the disk.
func (t *Tree) Sync() error {
	if err := unix.Syncfs(int(t.lock.Fd())); err != nil {
		return fmt.Errorf("sync the disk: %w", err)
	}
	return nil
}

// openParent opens the folder of a file, and creates it if it is missing.
func (t *Tree) openParent(name string) (*os.File, error) {
	folder := path.Dir(name)
	if err := t.checkFolder(folder); err != nil {
		return nil, err
	}
	if err := t.files.MkdirAll(folder, folderMode); err != nil {
		return nil, asPathConflict(err)
	}
	parent, err := t.files.Open(folder)
	return parent, asPathConflict(err)
}

// rename moves a part to its file's name. If that fails, it keeps a part that can be resumed.
func (t *Tree) rename(staged *StagedFile, parent *os.File) error {
	base := path.Base(staged.Path)
	if err := unix.Renameat(int(t.partsAt.Fd()), staged.part, int(parent.Fd()), base); err != nil {
		if !staged.isResumable() {
			_ = t.parts.Remove(staged.part) // or the next start deletes it
		}
		return asPathConflict(&fs.PathError{Op: "rename", Path: staged.Path, Err: err})
	}
	var info unix.Stat_t
	if err := unix.Fstatat(int(parent.Fd()), base, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: staged.Path, Err: err}
	}
	t.remember(
		staged.Path,
		indexEntry{Size: info.Size, Modified: info.Mtim.Nano(), Changed: info.Ctim.Nano(), Inode: info.Ino, SHA256: staged.SHA256},
	)
	return nil
}

// asPathConflict adds ErrPathConflict to the errors of the system that mean it.
func asPathConflict(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("%w: %w", ErrPathConflict, err)
	}
	return err
}

// lockContent reserves a content's part for one transfer. It returns false if another transfer has it.
func (t *Tree) lockContent(sum string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arriving[sum] {
		return false
	}
	t.arriving[sum] = true
	return true
}

func (t *Tree) unlockContent(sum string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.arriving, sum)
}

// release lets another transfer write the content's part.
func (t *Tree) release(staged *StagedFile) {
	if staged.isResumable() {
		t.unlockContent(staged.SHA256)
	}
}
