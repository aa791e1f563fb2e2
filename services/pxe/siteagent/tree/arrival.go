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

// mostEarly is how many bytes of an arrival wait for those before them.
const mostEarly = 4 << 20

// errGap says that a piece is missing in the middle.
var errGap = errors.New("what is sent has to be sent from where it begins, without gaps")

// Arrival is a content that arrives in pieces, several of them at a time. What lies on the disk of it has no gaps, so that it can be
// gone on with.
type Arrival struct {
	file *os.File
	sum  hash.Hash // of a file that somebody brings; nil: of a part
	end  func(whole bool) error

	mu      sync.Mutex
	next    int64
	early   map[int64][]byte // pieces that wait for those before them
	waiting int
	failed  error
}

// Part goes on with what has arrived of a content, or begins anew. Receive makes a file of it, once all of it is there.
func (t *Tree) Part(sum string, anew bool) (*Arrival, error) {
	if err := siteagent.CheckSum(sum); err != nil {
		return nil, err
	}
	if !t.begin(sum) {
		return nil, fmt.Errorf("the same content is arriving: %w", ErrBusy)
	}
	flags := os.O_WRONLY | os.O_CREATE
	if anew {
		flags |= os.O_TRUNC
	}
	file, err := t.parts.OpenFile(sum, flags, fileMode)
	if err != nil {
		t.end(sum)
		return nil, err
	}
	is, err := file.Stat()
	if err != nil {
		t.end(sum)
		return nil, errors.Join(err, file.Close())
	}
	return &Arrival{file: file, next: is.Size(), end: func(bool) error {
		t.end(sum)
		return nil
	}}, nil
}

// Bring takes a file that somebody brings, whose SHA-256 is not known before it is there. It is seen once all of it is.
func (t *Tree) Bring(name string) (*Arrival, error) {
	if err := siteagent.CheckPath(name); err != nil {
		return nil, err
	}
	if err := t.plain(path.Dir(name)); err != nil {
		return nil, err
	}
	if is, err := t.files.Lstat(name); err == nil && is.IsDir() {
		return nil, fmt.Errorf("%s is a folder: %w", name, ErrInTheWay)
	}
	arriving := passing + rand.Text()
	file, err := t.parts.OpenFile(arriving, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	a := &Arrival{file: file, sum: sha256.New()}
	a.end = func(whole bool) error {
		if !whole {
			return t.parts.Remove(arriving)
		}
		err := t.place(&Arrived{siteagent.File{Path: name, Size: a.next, SHA256: hex.EncodeToString(a.sum.Sum(nil))}, arriving})
		if err != nil {
			_ = t.parts.Remove(arriving) // which may have become the file
		}
		return err
	}
	return a, nil
}

// WriteAt takes a piece.
func (a *Arrival) WriteAt(p []byte, at int64) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.failed != nil:
		return 0, a.failed
	case len(p) == 0:
		return 0, nil
	case at < a.next || a.early[at] != nil || a.waiting+len(p) > mostEarly:
		a.failed = errGap
		return 0, errGap
	case at+int64(len(p)) > siteagent.LargestFile:
		a.failed = fmt.Errorf("a file has at most %d bytes", int64(siteagent.LargestFile))
		return 0, a.failed
	case at > a.next:
		if a.early == nil {
			a.early = map[int64][]byte{}
		}
		a.early[at] = append([]byte(nil), p...)
		a.waiting += len(p)
		return len(p), nil
	}
	for piece := p; piece != nil; piece = a.following() {
		if a.failed = a.append(piece); a.failed != nil {
			return 0, a.failed
		}
	}
	return len(p), nil
}

// following is the piece that comes next, if it is there.
func (a *Arrival) following() []byte {
	piece := a.early[a.next]
	delete(a.early, a.next)
	a.waiting -= len(piece)
	return piece
}

func (a *Arrival) append(p []byte) error {
	n, err := a.file.WriteAt(p, a.next)
	if a.sum != nil {
		a.sum.Write(p[:n])
	}
	a.next += int64(n)
	return err
}

// Abort has what has arrived be no file.
func (a *Arrival) Abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = io.ErrUnexpectedEOF
}

// Close ends it.
func (a *Arrival) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed == nil && len(a.early) > 0 {
		a.failed = errGap
	}
	return errors.Join(a.failed, a.end(a.failed == nil), a.file.Close())
}
