package tree

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// pieceSize is the size of a read. The piece before is hashed and written at the same time.
	pieceSize = 256 << 10
	// flushSize is how many bytes may wait before the disk starts to write, so that little is left for the sync in the end.
	flushSize = 8 << 20
	// maxCached is how many bytes of a content stay in memory. Older bytes are dropped, because memory serves the machines' files.
	maxCached = 32 << 20
)

// pieces are buffers for contents that arrive.
var pieces = sync.Pool{New: func() any { return new([2][pieceSize]byte) }}

// errNotWritten says that the disk lost what was written. What can still be read is in memory only.
var errNotWritten = errors.New("the disk failed to write")

// partWriter writes a content in order, and makes the disk keep up.
type partWriter struct {
	to                     *os.File
	at, flushed, forgotten int64
}

// write writes a piece. It starts the disk's writing at every flushSize, and drops old bytes from memory.
func (w *partWriter) write(piece []byte) error {
	if _, err := w.to.WriteAt(piece, w.at); err != nil {
		return err
	}
	w.at += int64(len(piece))
	if w.at-w.flushed < flushSize {
		return nil
	}
	if err := syncRange(w.to, w.flushed, w.at, unix.SYNC_FILE_RANGE_WRITE); err != nil {
		return err
	}
	w.flushed = w.at
	end := w.flushed - maxCached
	if end <= w.forgotten {
		return nil
	}
	if err := syncRange(
		w.to,
		w.forgotten,
		end,
		unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER,
	); err != nil {
		return err
	}
	_ = unix.Fadvise(int(w.to.Fd()), w.forgotten, end-w.forgotten, unix.FADV_DONTNEED) // or it stays in memory for longer
	w.forgotten = end
	return nil
}

// syncRange starts or awaits the writing of a part of a file. The kernel reports a failure only once, so that a later sync would
// not.
func syncRange(file *os.File, from, to int64, how int) error {
	if err := unix.SyncFileRange(int(file.Fd()), from, to-from, how); err != nil {
		return fmt.Errorf("%w: %w", errNotWritten, err)
	}
	return nil
}

// writeHashed appends a reader's content to a file and to its hash. If reading fails, what was read before is written all the
// same.
func writeHashed(to *os.File, offset int64, sum hash.Hash, from io.Reader) (n int64, err error) {
	buffers := pieces.Get().(*[2][pieceSize]byte)
	defer pieces.Put(buffers)
	var working sync.WaitGroup
	defer working.Wait()
	w := partWriter{to, offset, offset, offset}
	var failed error // of the write in the background
	for turn := 0; ; turn++ {
		buffer := buffers[turn%2][:]
		read, err := io.ReadFull(from, buffer)
		working.Wait()
		if failed != nil {
			return n, failed
		}
		piece := buffer[:read]
		n += int64(read)
		if err != nil { // the last piece
			sum.Write(piece)
			if failed := w.write(piece); failed != nil {
				return n, failed
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return n, nil
			}
			return n, err
		}
		working.Go(func() { sum.Write(piece) })
		working.Go(func() { failed = w.write(piece) })
	}
}
