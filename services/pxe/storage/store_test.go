package storage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/storage"
	"github.com/ironplane/ironplane/services/pxe/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.SetCredentials()
	testkit.Main(m)
}

// bucket is where a store keeps its blobs.
type bucket struct {
	url   string
	blobs func() []string
}

func folder(t *testing.T) bucket {
	at := filepath.Join(t.TempDir(), "store")
	return bucket{at, func() (names []string) {
		testkit.Must(t, filepath.WalkDir(at, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, path)
			}
			return err
		}))
		return names
	}}
}

func s3(t *testing.T) bucket {
	url, blobs := storagetest.NewS3(t)
	return bucket{url, blobs}
}

// onBoth runs a test on a folder and on S3.
func onBoth(t *testing.T, test func(*testing.T, *pg.DB, *storage.Store, bucket)) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) bucket{"folder": folder, "S3": s3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, b := testkit.Database(t, pxe.Name, pxe.Definition.Migrations), open(t)
			testkit.Must(t, storage.CheckURL(b.url))
			test(t, db, storage.New(db, b.url), b)
		})
	}
}

// change runs do as one unit of work.
func change(t *testing.T, db *pg.DB, do func(context.Context, *pg.Tx) error) {
	t.Helper()
	testkit.Must(t, db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return do(t.Context(), tx)
	}))
}

func random(n int) []byte {
	from, content := rand.NewChaCha8([32]byte{byte(n)}), make([]byte, n)
	_, _ = from.Read(content)
	return content
}

// write writes a whole file.
func write(t *testing.T, db *pg.DB, s *storage.Store, content []byte) (f storage.File) {
	t.Helper()
	d, err := s.NewDraft(t.Context(), time.Hour)
	testkit.Must(t, err)
	testkit.Must(t, d.Append(t.Context(), bytes.NewReader(content), int64(len(content))))
	change(t, db, func(ctx context.Context, tx *pg.Tx) (err error) {
		f, err = d.Finish(ctx, tx)
		return err
	})
	return f
}

func read(t *testing.T, s *storage.Store, id int64) []byte {
	t.Helper()
	c, err := s.Open(t.Context(), id)
	testkit.Must(t, err)
	defer c.Close()
	content, err := io.ReadAll(c)
	testkit.Must(t, err)
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != c.SHA256 || int64(len(content)) != c.Size {
		t.Errorf("got %d bytes with the SHA-256 %s, want %+v", len(content), sum, c.File)
	}
	return content
}

// A file that breaks off is continued in pieces, and read as a whole or in parts.
func TestFile(t *testing.T) {
	onBoth(t, func(t *testing.T, db *pg.DB, s *storage.Store, b bucket) {
		content := random(100_000)
		d, err := s.NewDraft(t.Context(), 0)
		testkit.Must(t, err)
		broken := errors.New("broken")
		for at := 0; at < len(content); at += 30_000 {
			end := min(at+30_000, len(content))
			canceled, leave := context.WithCancel(t.Context())
			err := d.Append(
				canceled,
				io.MultiReader(bytes.NewReader(content[at:end]), readerFunc(func([]byte) (int, error) { leave(); return 0, broken })),
				100_000,
			)
			if !errors.Is(err, broken) {
				t.Fatalf("got %v of a source that breaks off, want %v", err, broken)
			}
			d, err = s.Resume(t.Context(), d.ID, 0)
			testkit.Must(t, err)
			if d.Size != int64(end) {
				t.Fatalf("got %d bytes, want %d", d.Size, end)
			}
		}
		if err := d.Append(t.Context(), bytes.NewReader([]byte{1}), 100_000); !errors.Is(err, storage.ErrTooLarge) {
			t.Errorf("got %v of too many bytes, want %v", err, storage.ErrTooLarge)
		}
		if _, err := s.Open(t.Context(), d.ID); !errors.Is(err, pgx.ErrNoRows) {
			t.Errorf("got %v of an unfinished file, want %v", err, pgx.ErrNoRows)
		}
		change(t, db, func(ctx context.Context, tx *pg.Tx) error {
			if _, err := d.Finish(ctx, tx); err != nil {
				return err
			}
			return storage.Publish(ctx, tx, d.ID, "a/whole")
		})
		if !bytes.Equal(read(t, s, d.ID), content) {
			t.Errorf("got other bytes, want the %d that were written", len(content))
		}
		c, err := s.Open(t.Context(), d.ID)
		testkit.Must(t, err)
		defer c.Close()
		if filepath.IsAbs(b.url) { // TestReader makes a thousand requests
			testkit.Must(t, iotest.TestReader(c, content))
		}
		part := make([]byte, 50_000)
		if n, err := c.ReadAt(part, 29_000); n != len(part) || err != nil || !bytes.Equal(part, content[29_000:79_000]) {
			t.Errorf("got %d bytes (%v) in the middle, want the %d that were written", n, err, len(part))
		}
		if n, err := c.ReadAt(part, 90_000); n != 10_000 || err != io.EOF {
			t.Errorf("got %d bytes and %v at the end, want 10000 and %v", n, err, io.EOF)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Of two writers that continue a file, one succeeds.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
	s := storage.New(db, folder(t).url)
	one, err := s.NewDraft(t.Context(), 0)
	testkit.Must(t, err)
	other, err := s.Resume(t.Context(), one.ID, 0)
	testkit.Must(t, err)
	testkit.Must(t, one.Append(t.Context(), bytes.NewReader([]byte("one")), 10))
	if err := other.Append(t.Context(), bytes.NewReader([]byte("other")), 10); !errors.Is(err, storage.ErrConcurrentWrite) {
		t.Errorf("got %v of the second writer, want %v", err, storage.ErrConcurrentWrite)
	}
	change(t, db, func(ctx context.Context, tx *pg.Tx) error { _, err := one.Finish(ctx, tx); return err })
	if got := read(t, s, one.ID); string(got) != "one" {
		t.Errorf("got %q, want one", got)
	}
}

// A part needs no space, and outlives its file.
func TestParts(t *testing.T) {
	onBoth(t, func(t *testing.T, db *pg.DB, s *storage.Store, b bucket) {
		content := random(10_000)
		d, err := s.NewDraft(t.Context(), 0)
		testkit.Must(t, err)
		for _, piece := range [][]byte{content[:4000], content[4000:7000], content[7000:]} {
			testkit.Must(t, d.Append(t.Context(), bytes.NewReader(piece), 10_000))
		}
		sum := func(stretches ...[]byte) string { return fmt.Sprintf("%x", sha256.Sum256(slices.Concat(stretches...))) }
		change(t, db, func(ctx context.Context, tx *pg.Tx) error {
			if _, err := d.Finish(ctx, tx); err != nil {
				return err
			}
			return storage.PublishParts(ctx, tx, d.ID, []storage.Part{
				{
					Path:    "iso/across",
					SHA256:  sum(content[3000:8000], content[100:200]),
					Extents: []storage.Extent{{At: 3000, Size: 5000}, {At: 100, Size: 100}},
				},
				{Path: "iso/within", SHA256: sum(content[4500:4600]), Extents: []storage.Extent{{At: 4500, Size: 100}}},
				{Path: "iso/empty", SHA256: sum()},
			})
		})
		if n := len(b.blobs()); n != 3 {
			t.Errorf("got %d blobs, want 3", n)
		}
		change(t, db, func(ctx context.Context, tx *pg.Tx) error {
			_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = $1", d.ID)
			return errors.Join(err, storage.Move(ctx, tx, "iso", "moved"))
		})
		testkit.Must(t, s.Sweep(t.Context(), 0))
		var paths []string
		for f, err := range s.Files(t.Context()) {
			testkit.Must(t, err)
			paths = append(paths, fmt.Sprint(f.Path, " ", f.Size))
			read(t, s, f.ID)
		}
		if want := []string{"moved/across 5100", "moved/empty 0", "moved/within 100"}; !slices.Equal(paths, want) {
			t.Errorf("got the files %q, want %q", paths, want)
		}
		change(t, db, func(ctx context.Context, tx *pg.Tx) error { return storage.Remove(ctx, tx, "moved") })
		testkit.Must(t, s.Sweep(t.Context(), 0))
		if left := b.blobs(); len(left) > 0 {
			t.Errorf("got the blobs %q, want none", left)
		}
	})
}

// Sweep deletes what nothing refers to, but neither incomplete files nor blobs of others in the bucket.
func TestSweep(t *testing.T) {
	onBoth(t, func(t *testing.T, db *pg.DB, s *storage.Store, b bucket) {
		kept := write(t, db, s, []byte("kept"))
		change(t, db, func(ctx context.Context, tx *pg.Tx) error { return storage.Publish(ctx, tx, kept.ID, "drivers/1") })
		removed, expired, going := write(t, db, s, []byte("removed")), write(t, db, s, []byte("expired")), write(t, db, s, []byte("going"))
		testkit.Must(t, s.Discard(t.Context(), removed.ID))
		testkit.Must(t, s.Discard(t.Context(), kept.ID)) // published, so it stays
		change(t, db, func(ctx context.Context, tx *pg.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE stored_file SET expires_at = now() WHERE id = $1", expired.ID)
			return err
		})
		others := testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
		change(t, others, func(ctx context.Context, tx *pg.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE stored_prefix SET prefix = 'another/'")
			return err
		})
		of := storage.New(others, b.url)
		foreign := write(t, others, of, []byte("theirs"))
		testkit.Must(t, s.Sweep(t.Context(), time.Hour))
		if n := len(b.blobs()); n != 5 {
			t.Errorf("got %d blobs before any is old enough, want 5", n)
		}
		testkit.Must(t, s.Sweep(t.Context(), 0))
		if n := len(b.blobs()); n != 3 {
			t.Errorf("got %d blobs, want 3: %q", n, b.blobs())
		}
		for _, id := range []int64{kept.ID, going.ID} {
			read(t, s, id)
		}
		read(t, of, foreign.ID)
	})
}

// Without a reachable bucket, operations fail as unavailable.
func TestNoBucket(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	for _, at := range []string{"", file, "s3://files?region=eu&use_path_style=true&endpoint=http://127.0.0.1:1"} {
		s := storage.New(db, at)
		d, err := s.NewDraft(t.Context(), 0)
		testkit.Must(t, err)
		if err := d.Append(t.Context(), bytes.NewReader([]byte("x")), 1); !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: got %v, want that the store is unavailable", at, err)
		}
		for _, check := range s.Checks() {
			if check.Ask(t.Context()) == nil {
				t.Errorf("%s: got no error of the check %s, want one", at, check.Name)
			}
		}
	}
	for _, url := range []string{"gs://x", "https://x", "s3:///x", "%zz"} {
		if storage.CheckURL(url) == nil {
			t.Errorf("%s: got no error, want one", url)
		}
	}
}
