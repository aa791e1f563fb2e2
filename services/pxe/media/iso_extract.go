package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/pxe/media/image"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

// extract has file servers hold what was loaded.
func (i *importing) extract(ctx context.Context) error {
	if err := i.note(ctx, "status = '"+isoExtracting+"', error = NULL"); err != nil {
		return err
	}
	content, err := i.store.Open(ctx, *i.draft)
	if err != nil {
		return fmt.Errorf("open what was loaded: %w", err)
	}
	defer content.Close()
	if i.wanted != nil && content.SHA256 != *i.wanted {
		return refuse("its SHA-256 is %s, not %s", content.SHA256, *i.wanted)
	}
	from := &blocks{from: content, kept: map[int64][]byte{}}
	files, err := image.Files(from, content.Size)
	if err == nil && from.failed == nil {
		err = i.publish(ctx, content, from, files)
	}
	return wrong(errors.Join(from.failed, err), from.failed)
}

// wrong is an error of the image's, unless the store has failed.
func wrong(err, failed error) error {
	if err == nil || failed != nil {
		return err
	}
	if _, ours := errors.AsType[notOfImage](err); ours || errors.Is(err, errOutdated) {
		return err
	}
	return refuse("%s", err)
}

// notOfImage is an error that another attempt may not have.
type notOfImage struct{ error }

func (n notOfImage) Unwrap() error { return n.error }

// publish puts the files and the editions in the place of those that there were.
func (i *importing) publish(ctx context.Context, content *storage.Content, from io.ReaderAt, files []image.File) error {
	editions, err := image.Editions(from, files)
	if err != nil {
		return err
	}
	parts := make([]storage.Part, len(files))
	inOrder := make([]int, len(files))
	for n := range inOrder {
		inOrder[n] = n
	}
	slices.SortFunc(
		inOrder,
		func(a, b int) int { return int(min(max(beginOf(files[a])-beginOf(files[b]), -1), 1)) },
	) // as they lie on the image
	for _, n := range inOrder {
		if parts[n], err = hashed(content, files[n]); err != nil {
			return notOfImage{err}
		}
	}
	err = i.conclude(ctx, func(tx *pg.Tx) error {
		if err := i.set(ctx, tx, "status = '"+isoReady+"', error = NULL, draft_id = NULL, validator = NULL, expected = NULL"); err != nil {
			return err
		}
		var folder string
		if err := tx.QueryRow(ctx, "SELECT folder FROM iso WHERE id = $1", i.ISO).Scan(&folder); err != nil {
			return err
		}
		for n := range parts {
			parts[n].Path = folder + "/" + files[n].Path
		}
		if err := errors.Join(
			storage.Remove(ctx, tx, folder, folder+imageEnd),
			storage.Publish(ctx, tx, content.ID, folder+imageEnd),
		); err != nil {
			return err
		}
		if err := storage.PublishParts(ctx, tx, content.ID, parts); err != nil {
			return err
		}
		return i.putEditions(ctx, tx, editions)
	})
	if _, refused := errors.AsType[refusal](err); refused || err == nil {
		return err
	}
	return notOfImage{err}
}

func beginOf(f image.File) int64 {
	if len(f.Extents) == 0 {
		return 0
	}
	return f.Extents[0].At
}

// hashed is a file as a part of the image.
func hashed(content *storage.Content, f image.File) (storage.Part, error) {
	sum := sha256.New()
	p := storage.Part{}
	for _, e := range f.Extents {
		p.Extents = append(p.Extents, storage.Extent(e))
		if _, err := content.Seek(e.At, io.SeekStart); err != nil {
			return p, err
		}
		if _, err := io.CopyN(sum, content, e.Size); err != nil {
			return p, fmt.Errorf("hash %s: %w", f.Path, err)
		}
	}
	p.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// putEditions notes the editions. One that was there before stays as it was set up.
func (i *importing) putEditions(ctx context.Context, tx *pg.Tx, found []image.Edition) error {
	numbers, names := []int64{}, []string{}
	for _, one := range found {
		if !slices.Contains(names, one.Name) {
			numbers, names = append(numbers, one.Number), append(names, one.Name)
		}
	}
	uses, err := reference.ByProfile(ctx, tx, "iso_id = $1 AND iso_edition <> ALL ($2)", i.ISO, names)
	if err != nil {
		return err
	}
	if uses != "" {
		return refuse("an edition that %s is not in it", uses)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM iso_edition WHERE iso_id = $1 AND name <> ALL ($2)", i.ISO, names); err != nil {
		return fmt.Errorf("forget editions: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO iso_edition (iso_id, number, name) SELECT $1, * FROM unnest($2::bigint[], $3::text[])
		ON CONFLICT (iso_id, name) DO UPDATE SET number = EXCLUDED.number, version = iso_edition.version + 1 WHERE iso_edition.number <> EXCLUDED.number`, i.ISO, numbers, names)
	if err != nil {
		return fmt.Errorf("note the editions: %w", err)
	}
	return nil
}

const (
	blockSize  = 256 << 10
	mostBlocks = 32
)

// blocks keeps a few blocks of an image: what is read of its folders lies close together.
type blocks struct {
	from   *storage.Content
	kept   map[int64][]byte
	order  []int64
	failed error // of the store
}

func (b *blocks) ReadAt(p []byte, at int64) (n int, err error) {
	for n < len(p) {
		block, err := b.block(at / blockSize)
		if err != nil {
			return n, err
		}
		within := at % blockSize
		if within >= int64(len(block)) {
			return n, io.EOF
		}
		copied := copy(p[n:], block[within:])
		n, at = n+copied, at+int64(copied)
	}
	return n, nil
}

func (b *blocks) block(number int64) ([]byte, error) {
	if block, kept := b.kept[number]; kept {
		return block, nil
	}
	block := make([]byte, max(0, min(blockSize, b.from.Size-number*blockSize)))
	if _, err := b.from.ReadAt(block, number*blockSize); err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
		return nil, err
	}
	if len(b.order) == mostBlocks {
		delete(b.kept, b.order[0])
		b.order = b.order[1:]
	}
	b.kept[number], b.order = block, append(b.order, number)
	return block, nil
}
