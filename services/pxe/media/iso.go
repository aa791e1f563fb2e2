package media

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

// ISOManager is an ISO that is loaded from an address. File servers have what is in it below its folder, and itself as
// <folder>.iso.
type ISOManager struct {
	rest.Versioned
	ID        int64          `json:"id" db:"id"`
	Name      string         `json:"name" db:"name"`
	Folder    string         `json:"folder" db:"folder"`
	Status    string         `json:"status" db:"status" enum:"queued,downloading,extracting,ready,failed"`
	CreatedAt rest.Timestamp `json:"created_at" db:"created_at"`
	Error     *string        `json:"error,omitempty" db:"error" ext:"true" doc:"why it failed, or is tried again"`
	Progress  int32          `json:"progress" db:"progress" recorded:"false" ext:"true" doc:"of the import, in percent"`
	Size      *int64         `json:"size,omitempty" db:"size" ext:"true" doc:"in bytes, of the last import that was done, like sha256"`
	SHA256    *string        `json:"sha256,omitempty" db:"sha256" ext:"true" doc:"in hexadecimal"`
}

type isoBody struct {
	Name   string        `json:"name" db:"name" required:"create" example:"Debian 13 netinst"`
	Folder string        `json:"folder" db:"folder" required:"create" max:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"debian-13" doc:"where file servers have what is in it"`
	URL    secret.String `json:"url" db:"url" required:"create" max:"2000" example:"https://192.0.2.10/debian-13-netinst.iso" doc:"where it is loaded from, which begins when it is sent; kept sealed and never shown, as it may hold credentials; on edit, empty: unchanged"`
	SHA256 *string       `json:"sha256" db:"wanted" ext:"true" pattern:"^[0-9A-Fa-f]{64}$" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" doc:"that it has to have, if it is known"`
}

// Resolve checks what the tags cannot say.
func (b *isoBody) Resolve(invalid *problem.Fields) {
	if b.Folder == "drivers" || strings.HasSuffix(b.Folder, imageEnd) {
		invalid.Add("/folder", "invalid", "cannot be drivers, nor end with %s", imageEnd)
	}
	if b.SHA256 != nil {
		lower := strings.ToLower(*b.SHA256)
		b.SHA256 = &lower
	}
	if b.URL.IsZero() {
		return
	}
	if to, err := url.Parse(b.URL.Reveal()); err != nil || to.Scheme != "https" && to.Scheme != "http" || to.Hostname() == "" {
		invalid.Add("/url", "invalid", "must begin with https:// or http://")
	}
}

// imageEnd stands behind the folder of an ISO where file servers have the ISO itself.
const imageEnd = ".iso"

// What an import is at.
const (
	isoQueued, isoDownloading, isoExtracting, isoReady, isoFailed = "queued", "downloading", "extracting", "ready", "failed"
)

// ISOs serves ISOs and the editions of Windows in them, and imports ISOs from the addresses that callers gave.
type ISOs struct {
	db       *pg.DB
	box      *seal.Box
	store    *storage.Store
	client   *http.Client
	settings func() settings.Values

	// SilenceTimeout is how long a server may send nothing of an ISO.
	SilenceTimeout time.Duration
	// ImportJob is the job that imports an ISO.
	ImportJob service.Job
}

// NewISOs makes the ISOs of a migrated schema. client loads from addresses that callers gave, so it has to keep to those that are
// allowed.
func NewISOs(db *pg.DB, box *seal.Box, store *storage.Store, client *http.Client, current func() settings.Values) *ISOs {
	s := &ISOs{db: db, box: box, store: store, client: client, settings: current, SilenceTimeout: time.Minute}
	s.ImportJob = service.Job{
		Kind:     "iso-import",
		Timeout:  importTimeout,
		Attempts: maxAttempts,
		Backoff:  importBackoff,
		Workers:  2,
		Unique:   true,
		Do:       jobs.Do(s.importISO),
	}
	return s
}

// Routes returns the documented routes.
func (s *ISOs) Routes() []rest.Route { return slices.Concat(s.isos(), s.editions()) }

var isoView = pg.NewView[ISOManager]("iso_view")

func (s *ISOs) isos() []rest.Route {
	of := table.New[isoBody]("iso", "iso_view", s.box)
	return rest.Resource[ISOManager, isoBody]{
		Path:        "/pxe/iso",
		ID:          "iso_manager_id",
		Noun:        "ISO",
		Guard:       guard.Has(permission.PXESettings),
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "Debian 13, small"}`,
		Table:       "iso",
		View:        "iso_view",
		Box:         s.box,
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name", "created_at": "created_at"},
			Filters: map[string]string{"name": "name", "folder": "folder", "status": "status"},
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *isoBody) (int64, error) {
			if b.URL.IsZero() {
				return 0, problem.Member("/url", "required", "is required and cannot be empty")
			}
			id, err := of.Insert(ctx, tx, b)
			if err != nil {
				return 0, err
			}
			return id, s.beginImport(ctx, tx, id)
		},
		Update: func(ctx context.Context, tx *pg.Tx, id int64, b *isoBody) error {
			was, err := of.Load(ctx, tx, id)
			if err == nil && was.Folder != b.Folder {
				_, err = tx.Exec(ctx, "UPDATE stored_file SET path = $2 WHERE path = $1", was.Folder+imageEnd, b.Folder+imageEnd)
				err = errors.Join(err, storage.Move(ctx, tx, was.Folder, b.Folder))
			}
			if err == nil {
				err = of.Update(ctx, tx, id, b)
			}
			if err != nil || b.URL.IsZero() {
				return err
			}
			return s.beginImport(ctx, tx, id)
		},
		Delete: func(ctx context.Context, tx *pg.Tx, item *ISOManager) error {
			_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1) AND path IS NULL", item.ID)
			if err != nil {
				return fmt.Errorf("discard what was loaded: %w", err)
			}
			if err := reference.DeleteUnlessProfiles(ctx, tx, "iso", "ISO", "iso_id = $1", item.ID); err != nil {
				return err
			}
			return storage.Remove(ctx, tx, item.Folder, item.Folder+imageEnd)
		},
	}.Routes()
}
