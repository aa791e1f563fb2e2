// Package storage keeps files: drivers, and ISOs with the files in them. Files lists the path, size and SHA-256 of all
// files that file servers must hold; Open reads one.
//
// The bytes are in a bucket of gocloud.dev/blob, in blobs that are written once. The rows of stored_file and
// stored_piece say which pieces of blobs a file consists of. So a file that is being written survives a crash piece by
// piece. A file within an ISO refers to the bytes of the ISO and needs no space of its own.
//
// Sweep deletes blobs that no row refers to.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// Store is the file store of an installation.
type Store struct {
	url string
	db  *pg.DB

	mu     sync.Mutex
	bucket *blob.Bucket // nil until it is first used
	prefix string

	folderCheck chan struct{} // holds a value while a goroutine accesses the folder
}

// New returns a store in a folder or in a bucket, such as s3://bucket?endpoint=https://s3.example.com&region=eu. The
// store is opened when it is first used.
func New(db *pg.DB, url string) *Store {
	return &Store{url: url, db: db, folderCheck: make(chan struct{}, 1)}
}

const s3Scheme = "s3://"

// ErrNotConfigured is the error of every operation if no store is configured.
var ErrNotConfigured = errors.New("no store is configured")

// File is a file that is complete.
type File struct {
	ID     int64
	Path   string // relative to a file server's root, with slashes; empty: the file is not published
	Size   int64
	SHA256 string // in hexadecimal
}

// open opens the bucket if it is not open yet.
func (s *Store) open(ctx context.Context) (*blob.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bucket != nil {
		return s.bucket, nil
	}
	if s.url == "" {
		return nil, problem.New(problem.Unavailable, "No file store is configured. Set IRONPLANE_STORE.").Because(ErrNotConfigured)
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

// openBucket opens a bucket, or a folder as a bucket.
func openBucket(ctx context.Context, at string) (*blob.Bucket, error) {
	if strings.HasPrefix(at, s3Scheme) {
		return blob.OpenBucket(ctx, at)
	}
	return fileblob.OpenBucket(
		at,
		&fileblob.Options{CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite},
	)
}

// Probe returns an error if a bucket cannot be reached, or if a folder exists and is none. A missing folder is created when
// it is first used.
func Probe(ctx context.Context, at string) error {
	if !strings.HasPrefix(at, s3Scheme) {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a folder", at)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	bucket, err := openBucket(ctx, at)
	if err != nil {
		return err
	}
	defer bucket.Close()
	found, err := bucket.IsAccessible(ctx)
	if err == nil && !found {
		err = errors.New("the bucket does not exist, or its keys may not read it")
	}
	return err
}

// CheckURL returns an error if url is not the address of a store.
func CheckURL(at string) error {
	if to, err := url.Parse(at); err != nil || to.Scheme != "" && to.Scheme != "s3" || to.Scheme == "s3" && to.Host == "" {
		return fmt.Errorf("%q is neither a folder nor an address such as s3://bucket", at)
	}
	return nil
}

// Checks returns the health check of the store, or none if no store is configured. The check is optional: without the
// store, only drivers and ISOs cannot be sent or loaded.
func (s *Store) Checks() []health.Check {
	if s.url == "" {
		return nil
	}
	return []health.Check{{Name: "store", Ask: s.checkReachable, Optional: true}}
}

// checkReachable returns an error if the bucket or the folder cannot be reached.
func (s *Store) checkReachable(ctx context.Context) error {
	bucket, err := s.open(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(s.url, s3Scheme) { // the folder driver treats a missing folder as an empty one
		return s.checkFolder(ctx)
	}
	found, err := bucket.IsAccessible(ctx)
	if err != nil {
		return fmt.Errorf("list the bucket: %w", err)
	}
	if !found {
		return errors.New("the bucket does not exist")
	}
	return nil
}

// checkFolder returns an error if the folder is missing. A shared folder whose server is down can block forever, so at
// most one goroutine at a time accesses it.
func (s *Store) checkFolder(ctx context.Context) error {
	select {
	case s.folderCheck <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	found := make(chan error, 1)
	go func() {
		_, err := os.Stat(s.url)
		<-s.folderCheck
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

// unavailable returns the error for callers while the store cannot be reached.
func unavailable(cause error) error {
	return problem.New(problem.Unavailable, "The file store cannot be reached right now. Try again later.").Because(cause)
}

// Files iterates over all published files, sorted by path.
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

// Publish gives a complete file a path. File servers hold it from then on, and it no longer expires.
func Publish(ctx context.Context, tx *pg.Tx, id int64, path string) error {
	if _, err := tx.Exec(ctx, "UPDATE stored_file SET path = $2, expires_at = NULL WHERE id = $1", id, path); err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	return nil
}

// Claim publishes a complete file with this SHA-256 that is not published yet. It fails with pgx.ErrNoRows if there is
// none.
func Claim(ctx context.Context, tx *pg.Tx, sha256, path string) error {
	var id int64
	err := tx.QueryRow(ctx, `UPDATE stored_file SET path = $2, expires_at = NULL
		WHERE id = (SELECT id FROM stored_file WHERE sha256 = $1 AND path IS NULL AND expires_at > now() ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id`, sha256, path).Scan(&id)
	if err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	return nil
}

// Move changes the folder of all files below a folder.
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

// Remove deletes files, and the files below folders. Their blobs stay until Sweep deletes them.
func Remove(ctx context.Context, tx *pg.Tx, paths ...string) error {
	for _, path := range paths {
		if _, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE path = $1 OR path ^@ ($1 || '/')", path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

// Part is a file within another file.
type Part struct {
	Path    string
	SHA256  string
	Extents []Extent // in the order of the part's bytes
}

// Extent is a range of bytes.
type Extent struct{ At, Size int64 }

// PublishParts publishes parts of a complete file as files of their own. They stay when that file is removed.
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

// blobPageSize is how many blobs Sweep compares with the database at a time.
const blobPageSize = 1000

// Sweep deletes expired files, and blobs that no file refers to and that are older than grace. grace must exceed the
// time in which one piece is written.
func (s *Store) Sweep(ctx context.Context, grace time.Duration) error {
	bucket, err := s.open(ctx)
	if err != nil {
		return err
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing refers to the files")
		_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE expires_at < now()")
		return err
	})
	if err != nil {
		return fmt.Errorf("delete expired files: %w", err)
	}
	all := bucket.List(&blob.ListOptions{Prefix: s.prefix})
	for {
		var old []string
		end := false
		for !end && len(old) < blobPageSize {
			object, err := all.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				end = true
			case errors.Is(err, os.ErrNotExist): // a temporary file that was just renamed or deleted
			case err != nil:
				return fmt.Errorf("list the blobs: %w", err)
			case time.Since(object.ModTime) >= grace:
				old = append(old, object.Key)
			}
		}
		if err := s.deleteUnreferenced(ctx, bucket, old); err != nil || end {
			return err
		}
	}
}

// deleteUnreferenced deletes those of the blobs that no file refers to.
func (s *Store) deleteUnreferenced(ctx context.Context, bucket *blob.Bucket, blobs []string) error {
	rows, err := s.db.Query(ctx, "SELECT b FROM unnest($1::text[]) b WHERE NOT EXISTS (SELECT FROM stored_piece WHERE blob = b)", blobs)
	if err != nil {
		return fmt.Errorf("find unreferenced blobs: %w", err)
	}
	unnamed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find unreferenced blobs: %w", err)
	}
	for _, one := range unnamed {
		if err := bucket.Delete(ctx, one); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
			return fmt.Errorf("delete a blob: %w", err)
		}
	}
	return nil
}
