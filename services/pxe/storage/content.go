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

// Content is what is in a file, as it is read; also while others remove the file, until its blobs are swept.
type Content struct {
	File
	ctx    context.Context
	bucket *blob.Bucket
	pieces []piece

	at    int64        // what is read next
	under *blob.Reader // of a piece, at the same place; nil: none is open
	left  int64        // of that
}

type piece struct {
	Start, Size int64
	Blob        string
	Skip        int64
}

// Open opens a whole file. It fails with pgx.ErrNoRows where there is none.
func (s *Store) Open(ctx context.Context, id int64) (*Content, error) {
	return s.openWhere(ctx, "id = $1", id)
}

// OpenAt opens the file at a path.
func (s *Store) OpenAt(ctx context.Context, path string) (*Content, error) {
	return s.openWhere(ctx, "path = $1", path)
}

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
	c.pieces, err = piecesOf(ctx, s.db, c.ID)
	return c, err
}

func piecesOf(ctx context.Context, q pg.Querier, id int64) ([]piece, error) {
	rows, err := q.Query(ctx, "SELECT start, size, blob, skip FROM stored_piece WHERE file_id = $1 ORDER BY start", id)
	if err != nil {
		return nil, fmt.Errorf("read the pieces of a file: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[piece])
}

// Read reads on.
func (c *Content) Read(p []byte) (int, error) {
	if c.at >= c.Size {
		return 0, io.EOF
	}
	if c.under == nil || c.left == 0 {
		under, length, err := c.reader(c.at, c.Size-c.at)
		if err = errors.Join(c.Close(), err); err != nil {
			return 0, err
		}
		c.under, c.left = under, length
	}
	n, err := c.under.Read(p[:min(int64(len(p)), c.left)])
	c.at, c.left = c.at+int64(n), c.left-int64(n)
	if err == io.EOF && c.left == 0 { // the next piece comes
		err = nil
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// reader reads at most so much of the piece at a place. length is how much that is.
func (c *Content) reader(at, most int64) (under *blob.Reader, length int64, err error) {
	i := sort.Search(len(c.pieces), func(i int) bool { return c.pieces[i].Start+c.pieces[i].Size > at })
	if i == len(c.pieces) || c.pieces[i].Start > at {
		return nil, 0, fmt.Errorf("file %d of the store has no piece at %d", c.ID, at)
	}
	p := c.pieces[i]
	length = min(most, p.Start+p.Size-at)
	if under, err = c.bucket.NewRangeReader(c.ctx, p.Blob, p.Skip+at-p.Start, length, nil); err != nil {
		return nil, 0, unavailable(err)
	}
	return under, length, nil
}

// ReadAt reads at a place.
func (c *Content) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		if at >= c.Size {
			return n, io.EOF
		}
		under, length, err := c.reader(at, int64(len(p)-n))
		if err != nil {
			return n, err
		}
		read, err := io.ReadFull(under, p[n:n+int(length)])
		n, at = n+read, at+int64(read)
		if err = errors.Join(err, under.Close()); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Seek goes elsewhere.
func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.Size
	}
	if offset < 0 {
		return c.at, errors.New("before the beginning of a file")
	}
	if offset != c.at {
		if err := c.Close(); err != nil {
			return c.at, err
		}
	}
	c.at = offset
	return offset, nil
}

// Close ends reading.
func (c *Content) Close() error {
	under := c.under
	c.under = nil
	if under == nil {
		return nil
	}
	return under.Close()
}
