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
	"syscall"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Received is how much there is of a content: all of it, where a file has it.
func (t *Tree) Received(sum string) (int64, error) {
	if file, is, err := t.holding(sum); err == nil {
		return is.Size(), file.Close()
	}
	is, err := t.root.Lstat(part(sum))
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

func part(sum string) string { return path.Join(partsFolder, sum) }

// Receive takes a file from an offset of its content on, of which it has to have so much: see Received. What has arrived stays,
// whatever ends it, and the file is seen once all of it has, and is what it is said to be.
func (t *Tree) Receive(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) error {
	if err := f.Check(); err != nil {
		return err
	}
	if err := t.plain(path.Dir(f.Path)); err != nil {
		return err
	}
	if !t.begin(f.SHA256) {
		return fmt.Errorf("the same content is arriving: %w", ErrBusy)
	}
	defer t.end(f.SHA256)
	if file, is, err := t.holding(f.SHA256); err == nil {
		defer file.Close()
		if is.Size() != f.Size {
			return fmt.Errorf("it has %d bytes: %w", is.Size(), ErrContent)
		}
		if now, err := t.files.Lstat(f.Path); err == nil && os.SameFile(now, is) {
			return nil
		}
		err := t.append(ctx, f, 0, file)
		if errors.Is(err, ErrContent) { // it has changed where nobody could see that
			t.distrust(f.SHA256)
		}
		return err
	}
	return t.append(ctx, f, offset, rest)
}

// distrust has the file read again that is thought to have a content.
func (t *Tree) distrust(sum string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.index, t.bySum[sum])
	delete(t.bySum, sum)
	t.unsaved = true
}

func (t *Tree) append(ctx context.Context, f siteagent.File, offset int64, rest io.Reader) (err error) {
	to, err := t.root.OpenFile(part(f.SHA256), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	is, err := to.Stat()
	if err != nil {
		return err
	}
	if offset == 0 && is.Size() > 0 { // begun anew
		if err := to.Truncate(0); err != nil {
			return err
		}
	} else if is.Size() != offset {
		return ErrOffset
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, reading{ctx, to}); err != nil {
		return err
	}
	n, err := io.Copy(io.MultiWriter(to, sum), reading{ctx, io.LimitReader(rest, f.Size-offset)})
	if err != nil {
		return err
	}
	if offset+n < f.Size {
		return io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return errors.Join(fmt.Errorf("%w: %s instead of %s", ErrContent, got, f.SHA256), t.root.Remove(part(f.SHA256)))
	}
	return t.place(f, to, part(f.SHA256))
}

// place lets a file be seen that has arrived.
func (t *Tree) place(f siteagent.File, from *os.File, name string) error {
	if err := from.Sync(); err != nil {
		return err
	}
	folder := path.Join(filesFolder, path.Dir(f.Path))
	if err := t.root.MkdirAll(folder, folderMode); err != nil {
		return inTheWay(err)
	}
	if err := t.root.Rename(name, path.Join(filesFolder, f.Path)); err != nil {
		return inTheWay(err)
	}
	is, err := from.Stat()
	if err != nil {
		return err
	}
	t.know(f.Path, is, f.SHA256)
	in, err := t.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(in.Sync(), in.Close())
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
