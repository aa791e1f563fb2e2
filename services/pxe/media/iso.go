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

// ISOManager is an ISO that was downloaded from a URL or uploaded. File servers hold its files below its folder, and the ISO itself
// as <folder>.iso.
type ISOManager struct {
	rest.Versioned
	ID        int64          `json:"id" db:"id"`
	Name      string         `json:"name" db:"name"`
	Folder    string         `json:"folder" db:"folder" doc:"The folder of file servers with the ISO's files."`
	Status    string         `json:"status" db:"status" enum:"queued,downloading,extracting,ready,failed" doc:"The state of the last import."`
	CreatedAt rest.Timestamp `json:"created_at" db:"created_at"`
	Error     *string        `json:"error,omitempty" db:"error" ext:"true" doc:"Why the last import or its last attempt failed."`
	Progress  int32          `json:"progress" db:"progress" recorded:"false" ext:"true" doc:"The progress of the import in percent."`
	Size      *int64         `json:"size,omitempty" db:"size" ext:"true" doc:"The size in bytes of the last imported ISO."`
	SHA256    *string        `json:"sha256,omitempty" db:"sha256" ext:"true" doc:"The SHA-256 of the last imported ISO, in hexadecimal."`
}

// isoBody is the body that creates or edits an ISO.
type isoBody struct {
	Name   string        `json:"name" db:"name" required:"create" example:"Debian 13 netinst"`
	Folder string        `json:"folder" db:"folder" required:"create" max:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"debian-13" doc:"The folder of file servers for the ISO's files."`
	URL    secret.String `json:"url" db:"url" max:"2000" example:"https://192.0.2.10/debian-13-netinst.iso" doc:"The URL to download the ISO from, unless upload is sent. Sending it starts an import. It may contain credentials, so it is stored encrypted and never shown. An empty value in an edit changes nothing."`
	Upload string        `json:"upload" ext:"true" max:"2000" doc:"Instead of url: the path or id of a complete upload. Sending it starts an import."`
	SHA256 *string       `json:"sha256" db:"wanted" ext:"true" pattern:"^[0-9A-Fa-f]{64}$" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" doc:"The SHA-256 that the ISO must have. Without it, any content is accepted."`
}

// Resolve checks what struct tags cannot express.
func (b *isoBody) Resolve(invalid *problem.Fields) {
	if b.Folder == "drivers" || strings.HasSuffix(b.Folder, isoSuffix) {
		invalid.Add("/folder", "invalid", "cannot be drivers or end in %s", isoSuffix)
	}
	if b.SHA256 != nil {
		lower := strings.ToLower(*b.SHA256)
		b.SHA256 = &lower
	}
	if b.URL.IsZero() {
		return
	}
	if b.Upload != "" {
		invalid.Add("/upload", "invalid", "cannot be sent together with url")
	}
	if to, err := url.Parse(b.URL.Reveal()); err != nil || to.Scheme != "https" && to.Scheme != "http" || to.Hostname() == "" {
		invalid.Add("/url", "invalid", "must begin with https:// or http://")
	}
}

// isoSuffix follows the folder of an ISO in the path of the ISO itself.
const isoSuffix = ".iso"

// The states of an import.
const (
	isoQueued, isoDownloading, isoExtracting, isoReady, isoFailed = "queued", "downloading", "extracting", "ready", "failed"
)

// ISOs serves ISOs and the editions of Windows in them, and imports ISOs.
type ISOs struct {
	db       *pg.DB
	box      *seal.Box
	store    *storage.Store
	uploads  *Uploads
	client   *http.Client
	settings func() settings.Values

	// SilenceTimeout is how long a server may send no data of an ISO. The default is one minute.
	SilenceTimeout time.Duration
	// ImportJob is the job that imports an ISO.
	ImportJob service.Job
}

// NewISOs returns the ISOs of a database with the current schema. client downloads from URLs of callers, so it must
// refuse addresses that are not allowed.
func NewISOs(
	db *pg.DB, box *seal.Box, store *storage.Store, uploads *Uploads, client *http.Client, current func() settings.Values,
) *ISOs {
	s := &ISOs{db: db, box: box, store: store, uploads: uploads, client: client, settings: current, SilenceTimeout: time.Minute}
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

// isos returns the routes of ISOs.
func (s *ISOs) isos() []rest.Route {
	rows := table.New[isoBody]("iso", "iso_view", s.box)
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
			if b.URL.IsZero() && b.Upload == "" {
				return 0, problem.Member("/url", "required", "is required, unless upload is sent")
			}
			id, err := rows.Insert(ctx, tx, b)
			if err != nil {
				return 0, err
			}
			return id, s.beginImport(ctx, tx, id, b.Upload)
		},
		Update: func(ctx context.Context, tx *pg.Tx, id int64, b *isoBody) error {
			before, err := rows.Load(ctx, tx, id)
			if err == nil && before.Folder != b.Folder {
				_, err = tx.Exec(ctx, "UPDATE stored_file SET path = $2 WHERE path = $1", before.Folder+isoSuffix, b.Folder+isoSuffix)
				err = errors.Join(err, storage.Move(ctx, tx, before.Folder, b.Folder))
			}
			if err == nil {
				err = rows.Update(ctx, tx, id, b)
			}
			if err != nil || b.URL.IsZero() && b.Upload == "" {
				return err
			}
			return s.beginImport(ctx, tx, id, b.Upload)
		},
		Delete: func(ctx context.Context, tx *pg.Tx, item *ISOManager) error {
			_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1) AND path IS NULL", item.ID)
			if err != nil {
				return fmt.Errorf("delete an unfinished download: %w", err)
			}
			if err := reference.DeleteUnlessProfiles(ctx, tx, "iso", "ISO", "iso_id = $1", item.ID); err != nil {
				return err
			}
			return storage.Remove(ctx, tx, item.Folder, item.Folder+isoSuffix)
		},
	}.Routes()
}
