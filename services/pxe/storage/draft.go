package storage

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"gocloud.dev/blob"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

const (
	// pieceSize is the maximum size of a piece in bytes. A crash loses at most one piece of a file.
	pieceSize = 64 << 20
	// partSize is how many bytes of a blob are held in memory and sent to a bucket at a time.
	partSize = 5 << 20
	// stallTimeout is how long the bucket may accept no data.
	stallTimeout = 25 * time.Second
)

var (
	// ErrTooLarge is returned if a file would exceed its maximum size.
	ErrTooLarge = errors.New("the file is too large")
	// ErrConcurrentWrite is returned if another writer has written to the file.
	ErrConcurrentWrite = errors.New("another request has written to the file")

	errStalled = errors.New("the store stopped accepting data")
)

// Draft is a file that is being written.
type Draft struct {
	ID   int64
	Size int64
	hash hash.Hash
	ttl  time.Duration
	s    *Store
}

// NewDraft creates an empty file. It expires when nothing was written to it for ttl; 0 means never.
func (s *Store) NewDraft(ctx context.Context, ttl time.Duration) (*Draft, error) {
	d := &Draft{hash: sha256.New(), ttl: ttl, s: s}
	state, err := d.marshalHash()
	if err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing refers to the file yet")
		return tx.QueryRow(ctx, "INSERT INTO stored_file (hash, expires_at) VALUES ($1, "+expirySQL("$2")+") RETURNING id", state, ttl).
			Scan(&d.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("create a file: %w", err)
	}
	return d, nil
}

// expirySQL returns an SQL expression for the time at which a file expires. ttl is an expression for its interval.
func expirySQL(ttl string) string { return "now() + nullif(" + ttl + "::interval, '0')" }

// Resume returns a draft that continues an incomplete file. It fails with pgx.ErrNoRows if there is none.
func (s *Store) Resume(ctx context.Context, id int64, ttl time.Duration) (*Draft, error) {
	d := &Draft{ID: id, hash: sha256.New(), ttl: ttl, s: s}
	var state []byte
	if err := s.db.QueryRow(ctx, "SELECT size, hash FROM stored_file WHERE id = $1 AND hash IS NOT NULL", id).
		Scan(&d.Size, &state); err != nil {
		return nil, err
	}
	if err := d.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("restore a hash: %w", err)
	}
	return d, nil
}

// marshalHash returns the state of the hash, from which Resume continues it.
func (d *Draft) marshalHash() ([]byte, error) {
	state, err := d.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save a hash: %w", err)
	}
	return state, nil
}

// Append writes all data of from to the end of the file, up to a total of maxSize bytes. Data that was read before an
// error is kept. A draft cannot be used after an error: get a new one by Resume.
func (d *Draft) Append(ctx context.Context, from io.Reader, maxSize int64) error {
	limited := io.LimitReader(from, maxSize-d.Size+1)
	for {
		n, err := d.appendPiece(ctx, io.LimitReader(limited, min(pieceSize, maxSize-d.Size)))
		if err != nil {
			return err
		}
		if d.Size == maxSize {
			if extra, err := io.ReadFull(limited, make([]byte, 1)); extra > 0 {
				return ErrTooLarge
			} else if err != io.EOF {
				return err
			}
		}
		if n == 0 || d.Size == maxSize {
			return nil
		}
	}
}

// appendPiece writes one piece and returns its size.
func (d *Draft) appendPiece(ctx context.Context, from io.Reader) (n int64, err error) {
	writing, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // data that was read is kept even if the caller has disconnected
	defer stop(nil)
	source := &stallReader{Reader: from, timer: time.AfterFunc(stallTimeout, func() { stop(errStalled) })}
	defer source.timer.Stop()
	in := bufio.NewReaderSize(source, 64<<10)
	if _, err := in.Peek(1); err != nil {
		return 0, source.failed
	}
	bucket, err := d.s.open(ctx)
	if err != nil {
		return 0, err
	}
	name := d.s.prefix + rand.Text()
	w, err := bucket.NewWriter(
		writing,
		name,
		&blob.WriterOptions{ContentType: "application/octet-stream", BufferSize: partSize, MaxConcurrency: 1},
	)
	if err != nil {
		return 0, unavailable(err)
	}
	n, err = io.Copy(io.MultiWriter(w, d.hash), in)
	if err != nil && source.failed == nil {
		stop(err)
	}
	if closed := w.Close(); closed != nil {
		return 0, unavailable(errors.Join(closed, context.Cause(writing)))
	}
	if err := d.addPiece(writing, name, n); err != nil {
		return 0, err
	}
	return n, source.failed
}

// addPiece adds a written blob to the file.
func (d *Draft) addPiece(ctx context.Context, blob string, n int64) error {
	state, err := d.marshalHash()
	if err != nil {
		return err
	}
	err = d.s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing refers to the file yet")
		updated, err := tx.Exec(
			ctx,
			"UPDATE stored_file SET size = size + $3, hash = $4, expires_at = "+expirySQL("$5")+" WHERE id = $1 AND size = $2 AND hash IS NOT NULL",
			d.ID,
			d.Size,
			n,
			state,
			d.ttl,
		)
		if err == nil && updated.RowsAffected() == 0 {
			return ErrConcurrentWrite
		}
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO stored_piece (file_id, start, size, blob, skip) VALUES ($1, $2, $3, $4, 0)", d.ID, d.Size, n, blob)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("add a piece to a file: %w", err)
	}
	d.Size += n
	return nil
}

// SHA256 returns the hash of all data so far, in hexadecimal.
func (d *Draft) SHA256() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// Finish marks the file as complete.
func (d *Draft) Finish(ctx context.Context, tx *pg.Tx) (File, error) {
	f := File{ID: d.ID, Size: d.Size, SHA256: d.SHA256()}
	done, err := tx.Exec(
		ctx,
		"UPDATE stored_file SET sha256 = $3, hash = NULL WHERE id = $1 AND size = $2 AND hash IS NOT NULL",
		d.ID,
		d.Size,
		f.SHA256,
	)
	if err == nil && done.RowsAffected() == 0 {
		err = ErrConcurrentWrite
	}
	if err != nil {
		return f, fmt.Errorf("finish a file: %w", err)
	}
	return f, nil
}

// Discard deletes a file that is not published.
func (s *Store) Discard(ctx context.Context, id int64) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing refers to the file")
		_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = $1 AND path IS NULL", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("discard a file: %w", err)
	}
	return nil
}

// stallReader stops its timer while it waits for data. So the timer measures only how long the bucket takes.
type stallReader struct {
	io.Reader
	timer  *time.Timer // runs while the bucket writes
	failed error       // a read error other than io.EOF
}

func (p *stallReader) Read(to []byte) (int, error) {
	p.timer.Stop()
	n, err := p.Reader.Read(to)
	p.timer.Reset(stallTimeout)
	if err != nil && err != io.EOF {
		p.failed = err
	}
	return n, err
}
