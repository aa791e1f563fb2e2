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

// extract finds the files in the downloaded ISO, and publishes them.
func (i *isoImport) extract(ctx context.Context) error {
	if err := i.update(ctx, "status = '"+isoExtracting+"', error = NULL"); err != nil {
		return err
	}
	content, err := i.store.Open(ctx, *i.draftID)
	if err != nil {
		return fmt.Errorf("open the downloaded ISO: %w", err)
	}
	defer content.Close()
	if i.wantSHA256 != nil && content.SHA256 != *i.wantSHA256 {
		return refuse("the ISO's SHA-256 is %s, not %s", content.SHA256, *i.wantSHA256)
	}
	from := &blockCache{from: content, cached: map[int64][]byte{}}
	files, err := image.ReadFiles(from, content.Size)
	if err == nil && from.failed == nil {
		err = i.publish(ctx, content, from, files)
	}
	return classifyError(errors.Join(from.failed, err), from.failed)
}

// classifyError makes an error of the ISO a refusal, because another attempt would not solve it. storeErr is an error of
// the store, which another attempt may solve.
func classifyError(err, storeErr error) error {
	if err == nil || storeErr != nil {
		return err
	}
	if _, retryable := errors.AsType[retryableError](err); retryable || errors.Is(err, errSuperseded) {
		return err
	}
	return refuse("%s", err)
}

// retryableError is an error that another attempt may not have.
type retryableError struct{ error }

func (n retryableError) Unwrap() error { return n.error }

// publish replaces the published files and the editions of the ISO.
func (i *isoImport) publish(ctx context.Context, content *storage.Content, from io.ReaderAt, files []image.File) error {
	editions, err := image.ReadEditions(from, files)
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
		func(a, b int) int { return int(min(max(firstOffset(files[a])-firstOffset(files[b]), -1), 1)) },
	) // in the order of the bytes, to read the ISO once from front to end
	for _, n := range inOrder {
		if parts[n], err = hashPart(content, files[n]); err != nil {
			return retryableError{err}
		}
	}
	err = i.finish(ctx, func(tx *pg.Tx) error {
		if err := i.updateIn(ctx, tx, "status = '"+isoReady+"', error = NULL, draft_id = NULL, validator = NULL, expected = NULL"); err != nil {
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
			storage.Remove(ctx, tx, folder, folder+isoSuffix),
			storage.Publish(ctx, tx, content.ID, folder+isoSuffix),
		); err != nil {
			return err
		}
		if err := storage.PublishParts(ctx, tx, content.ID, parts); err != nil {
			return err
		}
		return i.storeEditions(ctx, tx, editions)
	})
	if _, refused := errors.AsType[refusal](err); refused || err == nil {
		return err
	}
	return retryableError{err}
}

// firstOffset returns the offset of a file in the image; 0 for an empty file.
func firstOffset(f image.File) int64 {
	if len(f.Extents) == 0 {
		return 0
	}
	return f.Extents[0].At
}

// hashPart reads a file of the ISO and returns it as a part with its SHA-256.
func hashPart(content *storage.Content, f image.File) (storage.Part, error) {
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

// storeEditions stores the editions. An edition that existed before keeps its settings.
func (i *isoImport) storeEditions(ctx context.Context, tx *pg.Tx, found []image.Edition) error {
	numbers, names := []int64{}, []string{}
	for _, one := range found {
		if !slices.Contains(names, one.Name) {
			numbers, names = append(numbers, one.Number), append(names, one.Name)
		}
	}
	usage, err := reference.DescribeProfileUse(ctx, tx, "iso_id = $1 AND iso_edition <> ALL ($2)", i.ISO, names)
	if err != nil {
		return err
	}
	if usage != "" {
		return refuse("the ISO lacks an edition that %s", usage)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM iso_edition WHERE iso_id = $1 AND name <> ALL ($2)", i.ISO, names); err != nil {
		return fmt.Errorf("delete editions: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO iso_edition (iso_id, number, name) SELECT $1, * FROM unnest($2::bigint[], $3::text[])
		ON CONFLICT (iso_id, name) DO UPDATE SET number = EXCLUDED.number, version = iso_edition.version + 1 WHERE iso_edition.number <> EXCLUDED.number`, i.ISO, numbers, names)
	if err != nil {
		return fmt.Errorf("store the editions: %w", err)
	}
	return nil
}

const (
	blockSize = 256 << 10
	maxBlocks = 32
)

// blockCache caches blocks of an image. The folders of an image lie close together, so few blocks are enough.
type blockCache struct {
	from   *storage.Content
	cached map[int64][]byte
	order  []int64
	failed error // an error of the store
}

// ReadAt implements io.ReaderAt by whole blocks of the store, which stay cached.
func (b *blockCache) ReadAt(p []byte, at int64) (n int, err error) {
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

// block returns a block from the cache, or reads it.
func (b *blockCache) block(number int64) ([]byte, error) {
	if block, cached := b.cached[number]; cached {
		return block, nil
	}
	block := make([]byte, max(0, min(blockSize, b.from.Size-number*blockSize)))
	if _, err := b.from.ReadAt(block, number*blockSize); err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
		return nil, err
	}
	if len(b.order) == maxBlocks {
		delete(b.cached, b.order[0])
		b.order = b.order[1:]
	}
	b.cached[number], b.order = block, append(b.order, number)
	return block, nil
}
