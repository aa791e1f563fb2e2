package media

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const (
	// importTimeout bounds an attempt. The next attempt continues where it ended.
	importTimeout = 24 * time.Hour
	// maxAttempts is how many attempts without progress an import has: about two hours.
	maxAttempts = 30
	maxBackoff  = 5 * time.Minute
)

// importBackoff returns the time before the next attempt of an import.
func importBackoff(attempt int) time.Duration {
	return min(time.Second<<min(attempt-1, 20), maxBackoff)
}

// maxISOSize returns the maximum size of an ISO in bytes.
func maxISOSize(v settings.Values) int64 { return int64(settings.ISOSize.In(v)) << 30 }

// importArgs are the arguments of an import job.
type importArgs struct {
	ISO    int64 `json:"iso"`
	Import int64 `json:"import"`
}

// beginImport starts an import of an ISO, from an upload unless that is empty. It ends an earlier import of the same ISO.
func (s *ISOs) beginImport(ctx context.Context, tx *pg.Tx, id int64, upload string) error {
	args := importArgs{ISO: id}
	var file *int64
	if upload != "" {
		claimed, err := s.uploads.claim(ctx, tx, upload, maxISOSize(s.settings()))
		if err != nil {
			return err
		}
		file = &claimed
	}
	_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1) AND path IS NULL", id)
	if err == nil {
		err = tx.QueryRow(ctx, `UPDATE iso SET status = $2, error = NULL, import = import + 1, draft_id = $3,
			url = CASE WHEN $3::bigint IS NULL THEN url END, validator = NULL, expected = NULL
			WHERE id = $1 RETURNING import`, id, isoQueued, file).Scan(&args.Import)
	}
	if err != nil {
		return fmt.Errorf("start an import: %w", err)
	}
	return jobs.Enqueue(ctx, tx, &s.ImportJob, args)
}

// refusal is an error that another attempt would not solve.
type refusal string

func (r refusal) Error() string { return string(r) }

// refuse returns a refusal.
func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// isoImport is one attempt of an import.
type isoImport struct {
	*ISOs
	importArgs
	job *service.Attempt

	name, folder string
	url          string  // empty: the draft is an upload
	wantSHA256   *string // nil: any content
	draftID      *int64
	validator    string
	maxSize      int64 // in bytes
}

// errSuperseded says that the ISO was deleted, or that a later import of it has started.
var errSuperseded = errors.New("a later import has started")

// importISO does one attempt of an import, and stores its result. Only attempts without progress count.
func (s *ISOs) importISO(ctx context.Context, a *service.Attempt, args importArgs) error {
	i := &isoImport{ISOs: s, importArgs: args, job: a}
	progressed, err := i.run(ctx)
	switch {
	case err == nil, errors.Is(err, errSuperseded):
		return nil
	case context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded): // the process is being stopped
		return err
	}
	reason, refused := errors.AsType[refusal](err)
	isFinal, message := refused || a.Last && !progressed, string(reason)
	if !refused {
		message = egress.Describe(err)
	}
	stored := i.fail(ctx, message, isFinal)
	switch {
	case errors.Is(stored, errSuperseded):
		return nil
	case stored != nil:
		return stored
	case refused:
		return jobs.GiveUp(err)
	case progressed: // an attempt with progress does not count
		return jobs.Snooze(importBackoff(1))
	}
	return err
}

// run does the rest of the import. ahead reports whether it downloaded anything, which an upload does not need.
func (i *isoImport) run(ctx context.Context) (ahead bool, err error) {
	if err := i.readSource(ctx); err != nil {
		return false, err
	}
	d, before, err := i.openDraft(ctx)
	if err != nil {
		return false, err
	}
	if d != nil {
		if i.url != "" {
			err = i.download(ctx, d)
		}
		if ahead = d.Size > before; err != nil {
			return ahead, err
		}
		if sum := d.SHA256(); i.wantSHA256 != nil && sum != *i.wantSHA256 {
			return ahead, refuse("the ISO's SHA-256 is %s, not %s", sum, *i.wantSHA256)
		}
		err = i.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the end of the import is recorded")
			_, err := d.Finish(ctx, tx)
			return err
		})
		if err != nil {
			return ahead, err
		}
	}
	return ahead, i.extract(ctx)
}

// readSource reads what to import. It fails with errSuperseded if this is not the latest import.
func (i *isoImport) readSource(ctx context.Context) error {
	i.maxSize = maxISOSize(i.settings())
	var sealed []byte
	var validator *string
	err := i.db.QueryRow(ctx, "SELECT name, folder, url, wanted, draft_id, validator FROM iso WHERE id = $1 AND import = $2", i.ISO, i.Import).
		Scan(&i.name, &i.folder, &sealed, &i.wantSHA256, &i.draftID, &validator)
	if errors.Is(err, pgx.ErrNoRows) {
		return errSuperseded
	}
	if err != nil {
		return fmt.Errorf("read ISO %d: %w", i.ISO, err)
	}
	if validator != nil {
		i.validator = *validator
	}
	if sealed == nil {
		return nil
	}
	address, err := i.box.Open(seal.Location{Table: "iso", Column: "url", ID: i.ISO}, sealed)
	if err != nil {
		return fmt.Errorf("unseal the URL of ISO %d: %w", i.ISO, err)
	}
	i.url = address.Reveal()
	return nil
}

// openDraft returns the draft of an earlier attempt, or a new one. It returns nil if the download is complete.
func (i *isoImport) openDraft(ctx context.Context) (d *storage.Draft, before int64, err error) {
	if i.draftID != nil {
		d, err = i.store.Resume(ctx, *i.draftID, uploadTTL)
		if err == nil {
			return d, d.Size, i.update(ctx, "status = '"+isoDownloading+"'")
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, fmt.Errorf("resume the download of ISO %d: %w", i.ISO, err)
		}
		var whole bool
		if err = i.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM stored_file WHERE id = $1 AND sha256 IS NOT NULL)", *i.draftID).
			Scan(&whole); err != nil {
			return nil, 0, fmt.Errorf("find the download of ISO %d: %w", i.ISO, err)
		}
		if whole {
			return nil, 0, nil
		}
	}
	if i.url == "" {
		return nil, 0, refuse("the uploaded file is no longer stored: upload it again")
	}
	d, err = i.restart(ctx, nil)
	return d, 0, err
}

// restart begins the download from the start, and discards the draft before.
func (i *isoImport) restart(ctx context.Context, before *storage.Draft) (*storage.Draft, error) {
	d, err := i.store.NewDraft(ctx, uploadTTL)
	if err != nil {
		return nil, err
	}
	i.draftID, i.validator = &d.ID, ""
	err = i.update(ctx, "status = '"+isoDownloading+"', draft_id = $3, validator = NULL, expected = NULL", d.ID)
	if err != nil {
		return nil, errors.Join(err, i.store.Discard(ctx, d.ID))
	}
	if before != nil {
		err = i.store.Discard(ctx, before.ID)
	}
	return d, err
}

// update changes the ISO's row in a unit of work of its own.
func (i *isoImport) update(ctx context.Context, set string, args ...any) error {
	err := i.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the end of the import is recorded")
		return i.updateIn(ctx, tx, set, args...)
	})
	if err != nil {
		return fmt.Errorf("store the progress of an import: %w", err)
	}
	return nil
}

// updateIn changes the ISO's row. It fails with errSuperseded if a later import has started.
func (i *isoImport) updateIn(ctx context.Context, tx *pg.Tx, set string, args ...any) error {
	done, err := tx.Exec(ctx, "UPDATE iso SET "+set+" WHERE id = $1 AND import = $2", append([]any{i.ISO, i.Import}, args...)...)
	if err == nil && done.RowsAffected() == 0 {
		err = errSuperseded
	}
	return err
}

// fail stores the error of an attempt. If it is final, the import fails.
func (i *isoImport) fail(ctx context.Context, message string, isFinal bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the attempt may have run out of time
	defer cancel()
	if !isFinal {
		return i.update(ctx, "error = $3", message)
	}
	return i.finish(ctx, func(tx *pg.Tx) error {
		if _, err := tx.Exec(
			ctx,
			"DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1 AND import = $2) AND path IS NULL",
			i.ISO,
			i.Import,
		); err != nil {
			return fmt.Errorf("delete an unfinished download: %w", err)
		}
		return i.updateIn(ctx, tx, "status = '"+isoFailed+"', error = $3, draft_id = NULL, validator = NULL, expected = NULL", message)
	})
}

// finish ends the import in a unit of work, and records how the ISO changed.
func (i *isoImport) finish(ctx context.Context, change func(*pg.Tx) error) error {
	return i.db.InTx(ctx, func(tx *pg.Tx) error {
		before, err := isoView.Get(ctx, tx, i.ISO)
		if errors.Is(err, pgx.ErrNoRows) {
			return errSuperseded
		}
		if err == nil {
			err = change(tx)
		}
		if err != nil {
			return err
		}
		after, err := isoView.Get(ctx, tx, i.ISO)
		tx.Record(
			pg.Record{
				Kind:    "pxe.iso",
				Action:  pg.Edited,
				Targets: []pg.Target{{Type: "pxe/iso", Noun: "ISO", ID: i.ISO, Name: after.Name, Version: after.Version}},
				Before:  before,
				After:   after,
			},
		)
		return err
	})
}
