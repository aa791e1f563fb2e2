package tree

import (
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
)

// pieces are the buffers of what arrives.
var pieces = sync.Pool{New: func() any { return new([2][pieceSize]byte) }}

// writeHashed writes a stream behind what a file has, and to its hash. What was read is written also where reading fails.
func writeHashed(to *os.File, offset int64, sum hash.Hash, from io.Reader) (n int64, err error) {
	buffers := pieces.Get().(*[2][pieceSize]byte)
	defer pieces.Put(buffers)
	var working sync.WaitGroup
	defer working.Wait()
	var failed error // of writing
	for turn, flushed := 0, offset; ; turn++ {
		buffer := buffers[turn%2][:]
		read, err := io.ReadFull(from, buffer)
		working.Wait()
		if failed != nil {
			return n, failed
		}
		piece, at := buffer[:read], offset+n
		n += int64(read)
		if err != nil { // the last one
			sum.Write(piece)
			if _, failed := to.WriteAt(piece, at); failed != nil {
				return n, failed
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return n, nil
			}
			return n, err
		}
		working.Go(func() { sum.Write(piece) })
		working.Go(func() {
			if _, failed = to.WriteAt(piece, at); failed == nil && offset+n-flushed >= flushSize {
				_ = unix.SyncFileRange(int(to.Fd()), flushed, offset+n-flushed, unix.SYNC_FILE_RANGE_WRITE) // what fails is said in the end
				flushed = offset + n
			}
		})
	}
}
