package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/jackc/pgx/v5"
	"gocloud.dev/blob"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Content reads a complete file. It stays readable while others remove the file, until the blobs are swept.
type Content struct {
	File
	ctx    context.Context
	bucket *blob.Bucket
	pieces []piece

	offset    int64        // of the next read
	reader    *blob.Reader // reads the piece at offset; nil: no piece is open
	remaining int64        // bytes of the open piece
}

// piece is a range of a file, with the blob that contains it.
type piece struct {
	Start, Size int64
	Blob        string
	Skip        int64
}

// Open opens a complete file. It fails with pgx.ErrNoRows if the file does not exist or is not complete.
func (s *Store) Open(ctx context.Context, id int64) (*Content, error) {
	return s.openWhere(ctx, "id = $1", id)
}

// OpenAt opens the published file with this path.
func (s *Store) OpenAt(ctx context.Context, path string) (*Content, error) {
	return s.openWhere(ctx, "path = $1", path)
}

// openWhere opens the complete file that meets an SQL condition.
func (s *Store) openWhere(ctx context.Context, condition string, is any) (*Content, error) {
	bucket, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &Content{ctx: ctx, bucket: bucket}
	err = s.db.QueryRow(ctx, "SELECT id, coalesce(path, ''), size, sha256 FROM stored_file WHERE sha256 IS NOT NULL AND "+condition, is).
		Scan(&c.ID, &c.Path, &c.Size, &c.SHA256)
	if err != nil {
		return nil, err
	}
	c.pieces, err = readPieces(ctx, s.db, c.ID)
	return c, err
}

// readPieces returns the pieces of a file in order.
func readPieces(ctx context.Context, q pg.Querier, id int64) ([]piece, error) {
	rows, err := q.Query(ctx, "SELECT start, size, blob, skip FROM stored_piece WHERE file_id = $1 ORDER BY start", id)
	if err != nil {
		return nil, fmt.Errorf("read the pieces of a file: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[piece])
}

// Read implements io.Reader.
func (c *Content) Read(p []byte) (int, error) {
	if c.offset >= c.Size {
		return 0, io.EOF
	}
	if c.reader == nil || c.remaining == 0 {
		reader, length, err := c.openRange(c.offset, c.Size-c.offset)
		if err = errors.Join(c.Close(), err); err != nil {
			return 0, err
		}
		c.reader, c.remaining = reader, length
	}
	n, err := c.reader.Read(p[:min(int64(len(p)), c.remaining)])
	c.offset, c.remaining = c.offset+int64(n), c.remaining-int64(n)
	if err == io.EOF && c.remaining == 0 { // the next piece follows
		err = nil
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// openRange opens the piece at an offset for at most limit bytes. length is how many bytes it opened.
func (c *Content) openRange(at, limit int64) (reader *blob.Reader, length int64, err error) {
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].Start+c.pieces[i].Size > at })
	if i == len(c.pieces) || c.pieces[i].Start > at {
		return nil, 0, fmt.Errorf("file %d of the store has no piece at %d", c.ID, at)
	}
	p := c.pieces[i]
	length = min(limit, p.Start+p.Size-at)
	if reader, err = c.bucket.NewRangeReader(c.ctx, p.Blob, p.Skip+at-p.Start, length, nil); err != nil {
		return nil, 0, unavailable(err)
	}
	return reader, length, nil
}

// ReadAt implements io.ReaderAt.
func (c *Content) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		if at >= c.Size {
			return n, io.EOF
		}
		reader, length, err := c.openRange(at, int64(len(p)-n))
		if err != nil {
			return n, err
		}
		read, err := io.ReadFull(reader, p[n:n+int(length)])
		n, at = n+read, at+int64(read)
		if err = errors.Join(err, reader.Close()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Seek implements io.Seeker.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.offset
	case io.SeekEnd:
		offset += c.Size
	}
	if offset < 0 {
		return c.offset, errors.New("seek before the beginning of a file")
	}
	if offset != c.offset {
		if err := c.Close(); err != nil {
			return c.offset, err
		}
	}
	c.offset = offset
	return offset, nil
}

// Close closes the open piece.
func (c *Content) Close() error {
	reader := c.reader
	c.reader = nil
	if reader == nil {
		return nil
	}
	return reader.Close()
}
