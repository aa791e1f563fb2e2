// Package storage keeps files: drivers, and ISOs with all that is in them. Files lists what file servers are to hold, each with
// its path, its size and its SHA-256, which is all that a manifest needs; Open reads one.
//
// The bytes lie in a bucket of gocloud.dev/blob, in blobs that are never written twice; the rows of stored_file and stored_piece
// say of which pieces of blobs a file consists. So a file that is being written is there piece by piece, and goes on where it
// was after a crash; and a file within an ISO is a piece of the ISO's own bytes, and takes no room.
//
// A blob that no row names is deleted by Sweep.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/s3blob" // s3://bucket?endpoint=…
	"gocloud.dev/gcerrors"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/health"
)

// Store is the store of an installation.
type Store struct {
	url string
	db  *pg.DB

	mu     sync.Mutex
	bucket *blob.Bucket // once it is open
	prefix string

	looking chan struct{} // holds a value while a goroutine looks at the folder
}

// New makes a store in a folder, or in a bucket: s3://bucket?endpoint=https://s3.example.com&region=eu. Nothing is opened before
// it is needed.
func New(db *pg.DB, url string) *Store {
	return &Store{url: url, db: db, looking: make(chan struct{}, 1)}
}

const s3Scheme = "s3://"

// ErrNone says that no store is configured.
var ErrNone = errors.New("no store is configured")

// File is a file that is whole.
type File struct {
	ID     int64
	Path   string // below a file server's root, with slashes; empty: no file server is to hold it
	Size   int64
	SHA256 string // in hexadecimal
}

// open opens the bucket where it is not open yet.
func (s *Store) open(ctx context.Context) (*blob.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket != nil {
		return s.bucket, nil
	}
	if s.url == "" {
		return nil, problem.New(problem.Unavailable, "There is nowhere to store files: IRONPLANE_STORE is not set.").Because(ErrNone)
	}
	if err := s.db.QueryRow(ctx, "SELECT prefix FROM stored_prefix").Scan(&s.prefix); err != nil {
		return nil, fmt.Errorf("read the prefix of blobs: %w", err)
	}
	opened, err := openBucket(ctx, s.url)
	if err != nil {
		return nil, unavailable(fmt.Errorf("open the store: %w", err))
	}
	s.bucket = opened
	return opened, nil
}

func openBucket(ctx context.Context, at string) (*blob.Bucket, error) {
	if strings.HasPrefix(at, s3Scheme) {
		return blob.OpenBucket(ctx, at)
	}
	return fileblob.OpenBucket(
		at,
		&fileblob.Options{CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite},
	)
}

// CheckURL says what is wrong with what New is given.
func CheckURL(at string) error {
	if to, err := url.Parse(at); err != nil || to.Scheme != "" && to.Scheme != "s3" || to.Scheme == "s3" && to.Host == "" {
		return fmt.Errorf("%q is neither a folder nor s3://bucket", at)
	}
	return nil
}

// Checks returns the check that files can be read and written; none without a store. It is optional: without it callers can neither
// send nor load drivers and ISOs, and all else goes on.
func (s *Store) Checks() []health.Check {
	if s.url == "" {
		return nil
	}
	return []health.Check{{Name: "store", Ask: s.reach, Optional: true}}
}

// reach returns an error where the bucket or the folder cannot be reached.
func (s *Store) reach(ctx context.Context) error {
	bucket, err := s.open(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(s.url, s3Scheme) { // the driver of folders takes a missing folder for an empty one
		return s.reachFolder(ctx)
	}
	found, err := bucket.IsAccessible(ctx)
	if err != nil {
		return fmt.Errorf("list the bucket: %w", err)
	}
	if !found {
		return errors.New("there is no such bucket")
	}
	return nil
}

// reachFolder returns an error where the folder is missing. A shared folder whose server is away may block for ever, so at most one
// goroutine looks at it.
func (s *Store) reachFolder(ctx context.Context) error {
	select {
	case s.looking <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	found := make(chan error, 1)
	go func() {
		_, err := os.Stat(s.url)
		<-s.looking
		found <- err
	}()
	select {
	case err := <-found:
		if err != nil {
			return fmt.Errorf("find the folder: %w", err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unavailable(cause error) error {
	return problem.New(problem.Unavailable, "The store of files cannot be reached right now.").Because(cause)
}

// Files are all files that file servers are to hold, in the order of their paths.
func (s *Store) Files(ctx context.Context) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		rows, err := s.db.Query(ctx, "SELECT id, path, size, sha256 FROM stored_file WHERE path IS NOT NULL ORDER BY path")
		if err != nil {
			yield(File{}, fmt.Errorf("list the store's files: %w", err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			file, err := pgx.RowToStructByPos[File](rows)
			if !yield(file, err) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(File{}, fmt.Errorf("list the store's files: %w", err))
		}
	}
}

// Publish has file servers hold a whole file at a path. It is kept from now on.
func Publish(ctx context.Context, tx *pg.Tx, id int64, path string) error {
	if _, err := tx.Exec(ctx, "UPDATE stored_file SET path = $2, expires_at = NULL WHERE id = $1", id, path); err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	return nil
}

// Claim publishes a whole file of this SHA-256 that nobody refers to yet. It fails with pgx.ErrNoRows where there is none.
func Claim(ctx context.Context, tx *pg.Tx, sha256, path string) error {
	var id int64
	err := tx.QueryRow(ctx, `UPDATE stored_file SET path = $2, expires_at = NULL
		WHERE id = (SELECT id FROM stored_file WHERE sha256 = $1 AND path IS NULL AND expires_at > now() ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id`, sha256, path).Scan(&id)
	if err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	return nil
}

// Move has file servers hold elsewhere what is below a folder.
func Move(ctx context.Context, tx *pg.Tx, from, to string) error {
	if _, err := tx.Exec(
		ctx,
		"UPDATE stored_file SET path = $2 || substr(path, length($1) + 1) WHERE path ^@ $1",
		from+"/",
		to+"/",
	); err != nil {
		return fmt.Errorf("move what is in %s: %w", from, err)
	}
	return nil
}

// Remove takes files away, and what is below them. Their blobs stay until they are swept.
func Remove(ctx context.Context, tx *pg.Tx, paths ...string) error {
	for _, path := range paths {
		if _, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE path = $1 OR path ^@ ($1 || '/')", path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

// Part is a file that lies in another one.
type Part struct {
	Path    string
	SHA256  string
	Extents []Extent // one behind the other
}

// Extent is a stretch of bytes.
type Extent struct{ At, Size int64 }

// PublishParts has file servers hold parts of a whole file as files of their own, which stay when that one is removed.
func PublishParts(ctx context.Context, tx *pg.Tx, of int64, parts []Part) error {
	var paths, sums, ofExtents []string
	var sizes, starts, ats, lengths []int64
	for _, p := range parts {
		size := int64(0)
		for _, e := range p.Extents {
			ofExtents, starts, ats, lengths = append(ofExtents, p.Path), append(starts, size), append(ats, e.At), append(lengths, e.Size)
			size += e.Size
		}
		paths, sums, sizes = append(paths, p.Path), append(sums, p.SHA256), append(sizes, size)
	}
	_, err := tx.Exec(
		ctx,
		"INSERT INTO stored_file (path, size, sha256) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])",
		paths,
		sizes,
		sums,
	)
	if err != nil {
		return fmt.Errorf("publish parts: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO stored_piece (file_id, start, size, blob, skip)
		SELECT f.id, e.start + greatest(p.start - e.at, 0), least(p.start + p.size, e.at + e.size) - greatest(p.start, e.at), p.blob, p.skip + greatest(e.at - p.start, 0)
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) e (path, start, at, size)
		JOIN stored_file f ON f.path = e.path
		JOIN stored_piece p ON p.file_id = $1 AND p.start < e.at + e.size AND p.start + p.size > e.at`, of, ofExtents, starts, ats, lengths)
	if err != nil {
		return fmt.Errorf("publish parts: %w", err)
	}
	return nil
}

// pageOfBlobs is how many blobs are looked at together.
const pageOfBlobs = 1000

// Sweep deletes what expired, and blobs that no file has and that are older than grace: longer than the piece of a file takes
// to be written.
func (s *Store) Sweep(ctx context.Context, grace time.Duration) error {
	bucket, err := s.open(ctx)
	if err != nil {
		return err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nobody refers to it")
		_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE expires_at < now()")
		return err
	})
	if err != nil {
		return fmt.Errorf("forget files that expired: %w", err)
	}
	all := bucket.List(&blob.ListOptions{Prefix: s.prefix})
	for {
		var old []string
		end := false
		for !end && len(old) < pageOfBlobs {
			object, err := all.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				end = true
			case errors.Is(err, os.ErrNotExist): // it has just been deleted, or is no temporary file any more
			case err != nil:
				return fmt.Errorf("list the blobs: %w", err)
			case time.Since(object.ModTime) >= grace:
				old = append(old, object.Key)
			}
		}
		if err := s.deleteUnnamed(ctx, bucket, old); err != nil || end {
			return err
		}
	}
}

func (s *Store) deleteUnnamed(ctx context.Context, bucket *blob.Bucket, blobs []string) error {
	rows, err := s.db.Query(ctx, "SELECT b FROM unnest($1::text[]) b WHERE NOT EXISTS (SELECT FROM stored_piece WHERE blob = b)", blobs)
	if err != nil {
		return fmt.Errorf("look for blobs that no file has: %w", err)
	}
	unnamed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for blobs that no file has: %w", err)
	}
	for _, one := range unnamed {
		if err := bucket.Delete(ctx, one); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return fmt.Errorf("delete a blob: %w", err)
		}
	}
	return nil
}
