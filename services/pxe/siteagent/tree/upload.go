package tree

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"sync"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// maxPendingBytes bounds the pieces of an upload that wait for earlier ones, in bytes.
const maxPendingBytes = 4 << 20

// errGap says that a piece of an upload is missing.
var errGap = errors.New("the pieces must follow each other without gaps")

// Upload receives a content in pieces, which may arrive out of order. Its file on disk never has gaps, so that the upload can be
// resumed.
type Upload struct {
	file   *os.File
	sum    hash.Hash // of an upload by people; nil: of a part
	finish func(complete bool) error

	mu           sync.Mutex
	next         int64
	pending      map[int64][]byte // pieces that wait for earlier ones, by offset
	pendingBytes int
	failed       error
}

// OpenPart resumes the part of a content, or starts again if truncate is set. Receive makes a file of it when it is complete.
func (t *Tree) OpenPart(sum string, truncate bool) (*Upload, error) {
	if err := siteagent.CheckSHA256(sum); err != nil {
		return nil, err
	}
	if !t.lockContent(sum) {
		return nil, fmt.Errorf("the same content is %w by another transfer", ErrBusy)
	}
	flags := os.O_WRONLY | os.O_CREATE
	if truncate {
		flags |= os.O_TRUNC
	}
	file, err := t.parts.OpenFile(sum, flags, fileMode)
	if err != nil {
		t.unlockContent(sum)
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		t.unlockContent(sum)
		return nil, errors.Join(err, file.Close())
	}
	return &Upload{file: file, next: info.Size(), finish: func(bool) error {
		t.unlockContent(sum)
		return nil
	}}, nil
}

// CreateUpload starts an upload whose SHA-256 is not known in advance. The file becomes visible when the upload is closed.
func (t *Tree) CreateUpload(name string) (*Upload, error) {
	if err := siteagent.CheckPath(name); err != nil {
		return nil, err
	}
	if err := t.checkFolder(path.Dir(name)); err != nil {
		return nil, err
	}
	if info, err := t.files.Lstat(name); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%w: %s is a folder", ErrPathConflict, name)
	}
	part := tempPrefix + rand.Text()
	file, err := t.parts.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	u := &Upload{file: file, sum: sha256.New()}
	u.finish = func(complete bool) error {
		if !complete {
			return t.parts.Remove(part)
		}
		err := t.publish(&StagedFile{siteagent.File{Path: name, Size: u.next, SHA256: hex.EncodeToString(u.sum.Sum(nil))}, part})
		if err != nil {
			_ = t.parts.Remove(part) // it may have become the file
		}
		return err
	}
	return u, nil
}

// WriteAt writes a piece. It fails if the piece overlaps with earlier ones, or is too far ahead.
func (u *Upload) WriteAt(p []byte, at int64) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.failed != nil:
		return 0, u.failed
	case len(p) == 0:
		return 0, nil
	case at < u.next || u.pending[at] != nil || u.pendingBytes+len(p) > maxPendingBytes:
		u.failed = errGap
		return 0, errGap
	case at+int64(len(p)) > siteagent.MaxFileSize:
		u.failed = fmt.Errorf("a file may have at most %d bytes", int64(siteagent.MaxFileSize))
		return 0, u.failed
	case at > u.next:
		if u.pending == nil {
			u.pending = map[int64][]byte{}
		}
		u.pending[at] = append([]byte(nil), p...)
		u.pendingBytes += len(p)
		return len(p), nil
	}
	for piece := p; piece != nil; piece = u.nextPending() {
		if u.failed = u.append(piece); u.failed != nil {
			return 0, u.failed
		}
	}
	return len(p), nil
}

// nextPending removes and returns the piece that follows, or nil.
func (u *Upload) nextPending() []byte {
	piece := u.pending[u.next]
	delete(u.pending, u.next)
	u.pendingBytes -= len(piece)
	return piece
}

// append writes the next piece to the file and to the hash.
func (u *Upload) append(p []byte) error {
	n, err := u.file.WriteAt(p, u.next)
	if u.sum != nil {
		u.sum.Write(p[:n])
	}
	u.next += int64(n)
	return err
}

// Abort makes Close discard the upload.
func (u *Upload) Abort() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed = io.ErrUnexpectedEOF
}

// Close completes the upload. A part stays; an upload by people becomes a file, or is discarded after an error.
func (u *Upload) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed == nil && len(u.pending) > 0 {
		u.failed = errGap
	}
	return errors.Join(u.failed, u.finish(u.failed == nil), u.file.Close())
}
