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
	// pieceSize is how much of a content is read, while what was read before is hashed and written.
	pieceSize = 256 << 10
	// flushSize is after how much the disk is told to begin writing, so that little is left to be waited for in the end.
	flushSize = 8 << 20
	// maxCached is how much of a content is in memory. What is before it is on the disk, and makes room for what machines read.
	maxCached = 32 << 20
)

// pieces are the buffers of what arrives.
var pieces = sync.Pool{New: func() any { return new([2][pieceSize]byte) }}

// errNotWritten says that what was written did not get to the disk. What can be read of it is in memory alone.
var errNotWritten = errors.New("the disk has not taken what was written")

// partWriter writes a content, and has the disk follow.
type partWriter struct {
	to                     *os.File
	at, flushed, forgotten int64
}

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
	_ = unix.Fadvise(int(w.to.Fd()), w.forgotten, end-w.forgotten, unix.FADV_DONTNEED) // or it stays for longer
	w.forgotten = end
	return nil
}

// syncRange has a part of a file written, or looks whether it was. What fails is said once, and not by a later sync.
func syncRange(file *os.File, from, to int64, how int) error {
	if err := unix.SyncFileRange(int(file.Fd()), from, to-from, how); err != nil {
		return fmt.Errorf("%w: %w", errNotWritten, err)
	}
	return nil
}

// writeHashed writes a stream behind what a file has, and to its hash. What was read is written also where reading fails.
func writeHashed(to *os.File, offset int64, sum hash.Hash, from io.Reader) (n int64, err error) {
	buffers := pieces.Get().(*[2][pieceSize]byte)
	defer pieces.Put(buffers)
	var working sync.WaitGroup
	defer working.Wait()
	w := partWriter{to, offset, offset, offset}
	var failed error // of writing
	for turn := 0; ; turn++ {
		buffer := buffers[turn%2][:]
		read, err := io.ReadFull(from, buffer)
		working.Wait()
		if failed != nil {
			return n, failed
		}
		piece := buffer[:read]
		n += int64(read)
		if err != nil { // the last one
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
