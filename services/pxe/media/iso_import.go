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
	// importTimeout bounds an attempt. The next one goes on where it ended.
	importTimeout = 24 * time.Hour
	// maxAttempts is after how many attempts that loaded nothing an import is given up: two hours.
	maxAttempts = 30
	maxBackoff  = 5 * time.Minute
)

func importBackoff(attempt int) time.Duration {
	return min(time.Second<<min(attempt-1, 20), maxBackoff)
}

// importArgs are what an import is of.
type importArgs struct {
	ISO    int64 `json:"iso"`
	Import int64 `json:"import"`
}

// beginImport has an ISO imported. An earlier import of it ends.
func (s *ISOs) beginImport(ctx context.Context, tx *pg.Tx, id int64) error {
	args := importArgs{ISO: id}
	_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1) AND path IS NULL", id)
	if err == nil {
		err = tx.QueryRow(ctx, `UPDATE iso SET status = $2, error = NULL, import = import + 1, draft_id = NULL, validator = NULL, expected = NULL
			WHERE id = $1 RETURNING import`, id, isoQueued).Scan(&args.Import)
	}
	if err != nil {
		return fmt.Errorf("begin an import: %w", err)
	}
	return jobs.Enqueue(ctx, tx, &s.ImportJob, args)
}

// refusal is why an import cannot be done, however often it is tried.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// importing is an import that is under way.
type importing struct {
	*ISOs
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

func (s *ISOs) importISO(ctx context.Context, a *service.Attempt, args importArgs) error {
	i := &importing{ISOs: s, importArgs: args, job: a}
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
		return jobs.Later(importBackoff(1))
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
	i.most = int64(settings.ISOSize.In(i.settings())) << 30
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
func (i *importing) open(ctx context.Context) (d *storage.Draft, before int64, err error) {
	if i.draft != nil {
		d, err = i.store.Resume(ctx, *i.draft, uploadTTL)
		if err == nil {
			return d, d.Size, i.note(ctx, "status = '"+isoDownloading+"'")
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, 0, fmt.Errorf("go on with ISO %d: %w", i.ISO, err)
		}
		var whole bool
		if err = i.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM stored_file WHERE id = $1 AND sha256 IS NOT NULL)", *i.draft).
			Scan(&whole); err != nil {
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
func (i *importing) restart(ctx context.Context, instead *storage.Draft) (*storage.Draft, error) {
	d, err := i.store.Draft(ctx, uploadTTL)
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
		if _, err := tx.Exec(
			ctx,
			"DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1 AND import = $2) AND path IS NULL",
			i.ISO,
			i.Import,
		); err != nil {
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
		tx.Record(
			pg.Record{
				Kind:    "pxe.iso",
				Action:  pg.Edited,
				Targets: []pg.Target{{Type: "pxe/iso", Noun: "ISO", ID: i.ISO, Name: is.Name, Version: is.Version}},
				Before:  was,
				After:   is,
			},
		)
		return err
	})
}
