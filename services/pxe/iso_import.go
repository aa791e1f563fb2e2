package pxe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/process/egress"
	"github.com/ironplane/ironplane/process/jobs"
	"github.com/ironplane/ironplane/process/setting"
	"github.com/ironplane/ironplane/services/pxe/image"
	"github.com/ironplane/ironplane/services/pxe/store"
)

const (
	// importTime bounds an attempt, which goes on where the one before was.
	importTime = 24 * time.Hour
	// importAttempts is after how many that brought nothing an import is given up: two hours.
	importAttempts = 30
	longestPause   = 5 * time.Minute
	// silence is for how long who is loaded from may send nothing.
	silence = time.Minute
)

func importPause(attempt int) time.Duration {
	return min(time.Second<<min(attempt-1, 20), longestPause)
}

// refusal is why an import cannot be done, however often it is tried.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// importing is an import that is under way.
type importing struct {
	*Service
	importArgs
	job *service.Attempt

	name, folder, url string
	wanted            *string // its SHA-256
	draft             *int64
	validator         string
	most              int64 // bytes
}

// errOutdated says that the ISO is gone, or is imported anew.
var errOutdated = errors.New("it is imported anew")

func (s *Service) importISO(ctx context.Context, a *service.Attempt, args importArgs) error {
	i := &importing{Service: s, importArgs: args, job: a}
	began, err := i.run(ctx)
	switch {
	case err == nil, errors.Is(err, errOutdated):
		return nil
	case context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded): // the process ends
		return err
	}
	why, refused := errors.AsType[refusal](err)
	given, said := refused || a.Last && !began, string(why)
	if !refused {
		said = egress.Reason(err)
	}
	noted := i.fail(ctx, said, given)
	switch {
	case errors.Is(noted, errOutdated):
		return nil
	case noted != nil:
		return noted
	case refused:
		return jobs.Never(err)
	case began: // it goes on as long as something comes
		return jobs.Later(importPause(1))
	}
	return err
}

// run does what is left of the import, and tells whether it got ahead.
func (i *importing) run(ctx context.Context) (ahead bool, err error) {
	if err := i.read(ctx); err != nil {
		return false, err
	}
	d, before, err := i.open(ctx)
	if err != nil {
		return false, err
	}
	if d != nil {
		err = i.load(ctx, d)
		if ahead = d.Size > before; err != nil {
			return ahead, err
		}
		if sum := d.SHA256(); i.wanted != nil && sum != *i.wanted {
			return ahead, refuse("its SHA-256 is %s, not %s", sum, *i.wanted)
		}
		err = i.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("what comes of it is")
			_, err := d.Finish(ctx, tx)
			return err
		})
		if err != nil {
			return ahead, err
		}
	}
	return ahead, i.extract(ctx)
}

// read reads what is to be imported.
func (i *importing) read(ctx context.Context) error {
	i.most = int64(setting.ISOSize.In(i.settings.Values())) << 30
	var sealed []byte
	var validator *string
	err := i.db.QueryRow(ctx, "SELECT name, folder, url, wanted, draft_id, validator FROM iso WHERE id = $1 AND import = $2", i.ISO, i.Import).
		Scan(&i.name, &i.folder, &sealed, &i.wanted, &i.draft, &validator)
	if errors.Is(err, pgx.ErrNoRows) {
		return errOutdated
	}
	if err != nil {
		return fmt.Errorf("read what is to be imported: %w", err)
	}
	address, err := i.box.Open(seal.Place{Table: "iso", Column: "url", ID: i.ISO}, sealed)
	if err != nil {
		return fmt.Errorf("open the address of ISO %d: %w", i.ISO, err)
	}
	if i.url = address.Reveal(); validator != nil {
		i.validator = *validator
	}
	return nil
}

// open goes on with what was loaded before, or begins; nil where all of it was.
func (i *importing) open(ctx context.Context) (d *store.Draft, before int64, err error) {
	if i.draft != nil {
		d, err = i.store.Resume(ctx, *i.draft, uploadTime)
		if err == nil {
			return d, d.Size, i.note(ctx, "status = '"+isoDownloading+"'")
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, fmt.Errorf("go on with ISO %d: %w", i.ISO, err)
		}
		var whole bool
		if err = i.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM stored_file WHERE id = $1 AND sha256 IS NOT NULL)", *i.draft).Scan(&whole); err != nil {
			return nil, 0, fmt.Errorf("look for what was loaded: %w", err)
		}
		if whole {
			return nil, 0, nil
		}
	}
	d, err = i.restart(ctx, nil)
	return d, 0, err
}

// restart begins to load anew.
func (i *importing) restart(ctx context.Context, instead *store.Draft) (*store.Draft, error) {
	d, err := i.store.Draft(ctx, uploadTime)
	if err != nil {
		return nil, err
	}
	i.draft, i.validator = &d.ID, ""
	err = i.note(ctx, "status = '"+isoDownloading+"', draft_id = $3, validator = NULL, expected = NULL", d.ID)
	if err != nil {
		return nil, errors.Join(err, i.store.Discard(ctx, d.ID))
	}
	if instead != nil {
		err = i.store.Discard(ctx, instead.ID)
	}
	return d, err
}

// note changes the ISO's row, unless it is imported anew.
func (i *importing) note(ctx context.Context, set string, args ...any) error {
	err := i.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what comes of it is")
		return i.set(ctx, tx, set, args...)
	})
	if err != nil {
		return fmt.Errorf("note how far an import is: %w", err)
	}
	return nil
}

func (i *importing) set(ctx context.Context, tx *pg.Tx, set string, args ...any) error {
	done, err := tx.Exec(ctx, "UPDATE iso SET "+set+" WHERE id = $1 AND import = $2", append([]any{i.ISO, i.Import}, args...)...)
	if err == nil && done.RowsAffected() == 0 {
		err = errOutdated
	}
	return err
}

// fail says why it failed, or why it is tried again.
func (i *importing) fail(ctx context.Context, why string, given bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the attempt may have taken too long
	defer cancel()
	if !given {
		return i.note(ctx, "error = $3", why)
	}
	return i.conclude(ctx, func(tx *pg.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1 AND import = $2) AND path IS NULL", i.ISO, i.Import); err != nil {
			return fmt.Errorf("discard what was loaded: %w", err)
		}
		return i.set(ctx, tx, "status = '"+isoFailed+"', error = $3, draft_id = NULL, validator = NULL, expected = NULL", why)
	})
}

// conclude ends the import, which the log tells.
func (i *importing) conclude(ctx context.Context, change func(*pg.Tx) error) error {
	return i.db.InTx(ctx, func(tx *pg.Tx) error {
		was, err := isoView.Get(ctx, tx, i.ISO)
		if errors.Is(err, pgx.ErrNoRows) {
			return errOutdated
		}
		if err == nil {
			err = change(tx)
		}
		if err != nil {
			return err
		}
		is, err := isoView.Get(ctx, tx, i.ISO)
		tx.Record(pg.Record{Kind: "pxe.iso", Action: pg.Edited, Targets: []pg.Target{{Type: "pxe/iso", Noun: "ISO", ID: i.ISO, Name: is.Name, Version: is.Version}}, Before: was, After: is})
		return err
	})
}

// contentRange is the header of an answer with a part: bytes 0-99/200
var contentRange = regexp.MustCompile(`^bytes (\d+)-\d+/(\d+|\*)$`)

// load loads what is missing.
func (i *importing) load(ctx context.Context, d *store.Draft) error {
	if d.Size > 0 && i.validator == "" && i.wanted == nil { // nobody would know that it is another one by now
		anew, err := i.restart(ctx, d)
		if err != nil {
			return err
		}
		*d = *anew
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	late := time.AfterFunc(silence, func() { stop(errSilent) })
	defer late.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url, nil)
	if err != nil {
		return refuse("its address cannot be read")
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "Ironplane")
	if d.Size > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.Size))
		if i.validator != "" {
			r.Header.Set("If-Range", i.validator)
		}
	}
	answer, err := i.client.Do(r)
	if err != nil {
		if silent := context.Cause(ctx); errors.Is(silent, errSilent) {
			return silent
		}
		if errors.Is(err, egress.ErrOwnNetwork) || errors.Is(err, egress.ErrPlain) || errors.Is(err, egress.ErrRedirects) {
			return refuse("%s", egress.Reason(err))
		}
		return err
	}
	defer answer.Body.Close()
	whole, err := i.answered(answer, d)
	if errors.Is(err, errChanged) {
		var anew *store.Draft
		if anew, err = i.restart(ctx, d); err == nil {
			*d = *anew
			whole, err = i.answered(answer, d)
		}
	}
	if err != nil {
		return err
	}
	if whole > i.most {
		return i.tooLarge()
	}
	validator := answer.Header.Get("ETag")
	if validator == "" || validator[0] != '"' { // a weak one is none
		validator = answer.Header.Get("Last-Modified")
	}
	if d.Size == 0 {
		if err := i.note(ctx, "validator = nullif($3, ''), expected = nullif($4, -1), error = NULL", validator, whole); err != nil {
			return err
		}
	}
	err = d.Append(ctx, &heard{answer.Body, late}, i.most)
	switch silent := context.Cause(ctx); {
	case errors.Is(err, store.ErrTooLarge):
		return i.tooLarge()
	case errors.Is(err, store.ErrMovedOn):
		return errOutdated
	case err != nil && errors.Is(silent, errSilent):
		return silent
	case errors.Is(err, io.ErrUnexpectedEOF) && whole >= 0:
		return fmt.Errorf("it broke off after %d of %d bytes", d.Size, whole)
	case err != nil:
		return err
	case whole >= 0 && d.Size != whole:
		return fmt.Errorf("it ended after %d of %d bytes", d.Size, whole)
	}
	return nil
}

func (i *importing) tooLarge() error {
	return refuse("it is larger than %d GiB, which the setting pxe.iso_size allows", i.most>>30)
}

var (
	errSilent  = fmt.Errorf("it sent nothing for %s", silence)
	errChanged = errors.New("it is another one now")
)

// answered tells how long the whole is, -1 where nobody knows. The draft is to be gone on with then.
func (i *importing) answered(answer *http.Response, d *store.Draft) (whole int64, err error) {
	switch status := answer.StatusCode; {
	case status == http.StatusOK && d.Size == 0:
		return answer.ContentLength, nil
	case status == http.StatusOK:
		return 0, errChanged
	case status == http.StatusPartialContent:
		part := contentRange.FindStringSubmatch(answer.Header.Get("Content-Range"))
		if part == nil || part[1] != strconv.FormatInt(d.Size, 10) {
			return 0, refuse("it answers another part than was asked for")
		}
		if whole, err = strconv.ParseInt(part[2], 10, 64); err != nil {
			whole = -1
		}
		return whole, nil
	case status == http.StatusRequestedRangeNotSatisfiable && answer.Header.Get("Content-Range") == fmt.Sprintf("bytes */%d", d.Size):
		answer.Body = http.NoBody
		return d.Size, nil // all of it was loaded
	case status == http.StatusRequestedRangeNotSatisfiable && d.Size > 0:
		if _, err := i.restart(answer.Request.Context(), d); err != nil {
			return 0, err
		}
		return 0, errors.New("it is shorter than it was")
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return 0, fmt.Errorf("it answered %d", status)
	default:
		return 0, refuse("it answered %d", status)
	}
}

// heard notes that something comes.
type heard struct {
	io.Reader
	late *time.Timer
}

func (h *heard) Read(p []byte) (int, error) {
	h.late.Reset(silence)
	n, err := h.Reader.Read(p)
	h.late.Stop()
	return n, err
}

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
func (i *importing) publish(ctx context.Context, content *store.Content, from io.ReaderAt, files []image.File) error {
	editions, err := image.Editions(from, files)
	if err != nil {
		return err
	}
	parts := make([]store.Part, len(files))
	inOrder := make([]int, len(files))
	for n := range inOrder {
		inOrder[n] = n
	}
	slices.SortFunc(inOrder, func(a, b int) int { return int(min(max(beginOf(files[a])-beginOf(files[b]), -1), 1)) }) // as they lie on the image
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
		if err := errors.Join(store.Remove(ctx, tx, folder, folder+imageEnd), store.Publish(ctx, tx, content.ID, folder+imageEnd)); err != nil {
			return err
		}
		if err := store.PublishParts(ctx, tx, content.ID, parts); err != nil {
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
func hashed(content *store.Content, f image.File) (store.Part, error) {
	sum := sha256.New()
	p := store.Part{}
	for _, e := range f.Extents {
		p.Extents = append(p.Extents, store.Extent(e))
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
	uses, err := usedBy(ctx, tx, "iso_id = $1 AND iso_edition <> ALL ($2)", i.ISO, names)
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
	from   *store.Content
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
