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
	// pieceSize is how long a piece gets: what a crash costs of a file that is being written.
	pieceSize = 64 << 20
	// partSize is how much of a blob is in memory, and sent to a bucket at once.
	partSize = 5 << 20
	// stallTime is how long the bucket may take to go on.
	stallTime = 25 * time.Second
)

var (
	// ErrTooLarge says that there is more than may be written.
	ErrTooLarge = errors.New("it is larger than it may be")
	// ErrMovedOn says that somebody else has written to the file.
	ErrMovedOn = errors.New("somebody else has written to the file")

	errStalled = errors.New("the store does not go on")
)

// Draft is a file that is being written.
type Draft struct {
	ID   int64
	Size int64
	hash hash.Hash
	keep time.Duration
	s    *Store
}

// Draft begins a file. It expires where nothing is written to it for so long; 0: never.
func (s *Store) Draft(ctx context.Context, keep time.Duration) (*Draft, error) {
	d := &Draft{hash: sha256.New(), keep: keep, s: s}
	state, err := d.state()
	if err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nobody refers to it yet")
		return tx.QueryRow(ctx, "INSERT INTO stored_file (hash, expires_at) VALUES ($1, "+expiry("$2")+") RETURNING id", state, keep).Scan(&d.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("begin a file: %w", err)
	}
	return d, nil
}

// expiry is SQL for when a file expires that is kept for an interval.
func expiry(keep string) string { return "now() + nullif(" + keep + "::interval, '0')" }

// Resume goes on with a file that is not whole. It fails with pgx.ErrNoRows where there is none.
func (s *Store) Resume(ctx context.Context, id int64, keep time.Duration) (*Draft, error) {
	d := &Draft{ID: id, hash: sha256.New(), keep: keep, s: s}
	var state []byte
	if err := s.db.QueryRow(ctx, "SELECT size, hash FROM stored_file WHERE id = $1 AND hash IS NOT NULL", id).
		Scan(&d.Size, &state); err != nil {
		return nil, err
	}
	if err := d.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("go on with a hash: %w", err)
	}
	return d, nil
}

func (d *Draft) state() ([]byte, error) {
	state, err := d.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("note how far a hash is: %w", err)
	}
	return state, nil
}

// Append writes what there is to the end of the file, which may become so large. What was read before an error stays: it is
// gone on with behind that. After an error the draft is of no use; Resume makes another one.
func (d *Draft) Append(ctx context.Context, from io.Reader, most int64) error {
	limited := io.LimitReader(from, most-d.Size+1)
	for {
		n, err := d.appendPiece(ctx, io.LimitReader(limited, min(pieceSize, most-d.Size)))
		if err != nil {
			return err
		}
		if d.Size == most {
			if extra, err := io.ReadFull(limited, make([]byte, 1)); extra > 0 {
				return ErrTooLarge
			} else if err != io.EOF {
				return err
			}
		}
		if n == 0 || d.Size == most {
			return nil
		}
	}
}

// appendPiece writes one piece.
func (d *Draft) appendPiece(ctx context.Context, from io.Reader) (n int64, err error) {
	writing, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // what was read is kept, also of a caller who has left
	defer stop(nil)
	source := &paced{Reader: from, late: time.AfterFunc(stallTime, func() { stop(errStalled) })}
	defer source.late.Stop()
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
	if err := d.note(writing, name, n); err != nil {
		return 0, err
	}
	return n, source.failed
}

// note adds a piece to the file.
func (d *Draft) note(ctx context.Context, blob string, n int64) error {
	state, err := d.state()
	if err != nil {
		return err
	}
	err = d.s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nobody refers to it yet")
		noted, err := tx.Exec(
			ctx,
			"UPDATE stored_file SET size = size + $3, hash = $4, expires_at = "+expiry("$5")+" WHERE id = $1 AND size = $2 AND hash IS NOT NULL",
			d.ID,
			d.Size,
			n,
			state,
			d.keep,
		)
		if err == nil && noted.RowsAffected() == 0 {
			return ErrMovedOn
		}
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO stored_piece (file_id, start, size, blob, skip) VALUES ($1, $2, $3, $4, 0)", d.ID, d.Size, n, blob)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note a piece of a file: %w", err)
	}
	d.Size += n
	return nil
}

// SHA256 is that of what was written so far, in hexadecimal.
func (d *Draft) SHA256() string { return hex.EncodeToString(d.hash.Sum(nil)) }

// Finish says that the file is whole.
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
		err = ErrMovedOn
	}
	if err != nil {
		return f, fmt.Errorf("finish a file: %w", err)
	}
	return f, nil
}

// Discard deletes a file that no file server is to hold.
func (s *Store) Discard(ctx context.Context, id int64) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nobody refers to it")
		_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = $1 AND path IS NULL", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("discard a file: %w", err)
	}
	return nil
}

// paced reads what the bucket is to take in time.
type paced struct {
	io.Reader
	late   *time.Timer // of the bucket
	failed error       // to be read, but for the end
}

func (p *paced) Read(to []byte) (int, error) {
	p.late.Stop()
	n, err := p.Reader.Read(to)
	p.late.Reset(stallTime)
	if err != nil && err != io.EOF {
		p.failed = err
	}
	return n, err
}
