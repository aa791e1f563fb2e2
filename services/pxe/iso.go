package pxe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
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
	Progress  int32          `json:"progress" db:"progress" ext:"true" doc:"of the import, in percent"`
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
func (b *isoBody) Resolve(wrong *problem.Fields) {
	if b.Folder == "drivers" || strings.HasSuffix(b.Folder, imageEnd) {
		wrong.Add("/folder", "invalid", "cannot be drivers, nor end with %s", imageEnd)
	}
	if b.SHA256 != nil {
		lower := strings.ToLower(*b.SHA256)
		b.SHA256 = &lower
	}
	if b.URL.IsZero() {
		return
	}
	if to, err := url.Parse(b.URL.Reveal()); err != nil || to.Scheme != "https" && to.Scheme != "http" || to.Hostname() == "" {
		wrong.Add("/url", "invalid", "must begin with https:// or http://")
	}
}

// imageEnd stands behind the folder of an ISO where file servers have the ISO itself.
const imageEnd = ".iso"

// What an import is at.
const (
	isoQueued, isoDownloading, isoExtracting, isoReady, isoFailed = "queued", "downloading", "extracting", "ready", "failed"
)

var isoView = pg.NewView[ISOManager]("iso_view")

func (s *Service) isos() []rest.Route {
	of := table.New[isoBody]("iso", "iso_view", s.box)
	return rest.Resource[ISOManager, isoBody]{
		DB:     s.db,
		Path:   "/pxe/iso",
		ID:     "iso_manager_id",
		Noun:   "ISO",
		Guard:  guard.Has(permission.PXESettings),
		Again:  rest.AgainRefused,
		Edited: `{"name": "Debian 13, small"}`,
		Table:  "iso",
		View:   "iso_view",
		Box:    s.box,
		By: rest.By{
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

// importArgs are what an import is of.
type importArgs struct {
	ISO    int64 `json:"iso"`
	Import int64 `json:"import"`
}

// beginImport has an ISO imported. An earlier import of it ends.
func (s *Service) beginImport(ctx context.Context, tx *pg.Tx, id int64) error {
	args := importArgs{ISO: id}
	_, err := tx.Exec(ctx, "DELETE FROM stored_file WHERE id = (SELECT draft_id FROM iso WHERE id = $1) AND path IS NULL", id)
	if err == nil {
		err = tx.QueryRow(ctx, `UPDATE iso SET status = $2, error = NULL, import = import + 1, draft_id = NULL, validator = NULL, expected = NULL
			WHERE id = $1 RETURNING import`, id, isoQueued).Scan(&args.Import)
	}
	if err != nil {
		return fmt.Errorf("begin an import: %w", err)
	}
	return jobs.Enqueue(ctx, tx, &s.importJob, args)
}

// ISOEdition is one of the editions of Windows that are in an ISO.
type ISOEdition struct {
	ListedEdition
	Key *string `json:"key,omitempty" db:"key" example:"*****-*****-*****-*****-ABCDE" doc:"the license key's last group; left out for clients"`
}

// ListedEdition is an edition as clients see it.
type ListedEdition struct {
	rest.Versioned
	ISO       int64  `json:"-" db:"iso_id"`
	ID        int64  `json:"id" db:"id"`
	Name      string `json:"name" db:"name"`
	IsEnabled bool   `json:"is_enabled" db:"is_enabled"`
	Number    int64  `json:"number" db:"number" ext:"true" doc:"of the image in install.wim"`
}

type editionBody struct {
	ISO        int64          `path:"iso_manager_id" db:"iso_id"`
	IsEnabled  bool           `json:"is_enabled" db:"is_enabled" example:"true"`
	LicenseKey *secret.String `json:"license_key" db:"license_key" example:"ABCDE-FGHIJ-KLMNO-PQRST-UVWXY" doc:"kept sealed; what key shows means the one that there is, and null removes it"`

	KeyEnd *string `db:"key_end"`
}

const hiddenKey = "*****-*****-*****-*****-"

var licenseKey = regexp.MustCompile(`^[A-Z0-9]{5}(-[A-Z0-9]{5}){4}$`)

// Resolve checks the key, and notes its end.
func (b *editionBody) Resolve(wrong *problem.Fields) {
	switch {
	case b.LicenseKey == nil:
		b.KeyEnd = nil
	case b.LicenseKey.IsZero(): // it stays
	case b.KeyEnd != nil && b.LicenseKey.Reveal() == hiddenKey+*b.KeyEnd:
		*b.LicenseKey = secret.String{}
	default:
		key := strings.ToUpper(b.LicenseKey.Reveal())
		if !licenseKey.MatchString(key) {
			wrong.Add("/license_key", "invalid", "must be five groups of five letters and digits, with dashes between")
			return
		}
		end := key[len(hiddenKey):]
		*b.LicenseKey, b.KeyEnd = secret.New(key), &end
	}
}

var seenEdition = pg.NewView[ISOEdition]("iso_edition_seen")

type ofISO struct {
	ISO int64 `path:"iso_manager_id"`
}

type ofEdition struct {
	ISO int64 `path:"iso_manager_id"`
	ID  int64 `path:"edition_id"`
}

func (s *Service) editions() []rest.Route {
	const path, one = "/pxe/iso/{iso_manager_id}/edition", "/pxe/iso/{iso_manager_id}/edition/{edition_id}"
	return append(
		rest.Resource[ISOEdition, editionBody]{
			DB:      s.db,
			Path:    path,
			ID:      "edition_id",
			Noun:    "ISO edition",
			Guard:   guard.Has(permission.PXESettings),
			Edited:  `{"is_enabled": true, "license_key": "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"}`,
			Table:   "iso_edition",
			View:    "iso_edition_view",
			Box:     s.box,
			Without: rest.Listing | rest.Creating | rest.Viewing | rest.Deleting,
			Again:   rest.AgainRefused,
			Parent: func(ctx context.Context, q pg.Querier, id int64, _ permission.Access) error {
				return isoIsThere(ctx, q, id)
			},
			Check: checkEdition,
		}.Routes(),
		rest.List[ofISO, ISOEdition]{
			DB:      s.db,
			Path:    path,
			Guard:   guard.HasOrClient(permission.PXESettings),
			Name:    "listISOEditions",
			Summary: "List the editions of Windows in an ISO",
			View:    "iso_edition_seen",
			Doc:     "A client sees those that are enabled, of the ISOs of its profiles, and no keys.",
			By:      rest.By{Sorts: map[string]string{"number": "number"}, Filters: map[string]string{"is_enabled": "is_enabled", "name": "name"}},
			Where: func(ctx context.Context, req ofISO) ([]pg.Condition, error) {
				return append(seenEditions(ctx), pg.Condition{SQL: "iso_id = $1", Args: []any{req.ISO}}), isoIsThere(ctx, s.db, req.ISO)
			},
		},
		rest.Read[ofEdition, ISOEdition]{
			Path:    one,
			Guard:   guard.HasOrClient(permission.PXESettings),
			Name:    "getISOEdition",
			Summary: "View an edition of Windows in an ISO",
			Doc:     "A client sees what lists have for it.",
			Do: func(ctx context.Context, req ofEdition) (ISOEdition, error) {
				return seenEdition.Get(ctx, s.db, req.ID, append(seenEditions(ctx), pg.Condition{SQL: "iso_id = $1", Args: []any{req.ISO}})...)
			},
		},
	)
}

// seenEditions are those that there are for the caller, with the keys that it may see.
func seenEditions(ctx context.Context) []pg.Condition {
	if principal.From(ctx).Client() != 0 {
		return []pg.Condition{{SQL: "for_client", Each: true}}
	}
	return []pg.Condition{{SQL: "NOT for_client", Each: true}}
}

// isoIsThere fails where there is no such ISO for the caller.
func isoIsThere(ctx context.Context, q pg.Querier, id int64) error {
	condition := ""
	if principal.From(ctx).Client() != 0 {
		condition = " AND EXISTS (SELECT FROM profile WHERE iso_id = iso.id AND access_client)"
	}
	var is bool
	if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT FROM iso WHERE id = $1"+condition+")", id).Scan(&is); err != nil {
		return fmt.Errorf("look for an ISO: %w", err)
	}
	if !is {
		return pgx.ErrNoRows
	}
	return nil
}

// checkEdition keeps an edition enabled that profiles install.
func checkEdition(ctx context.Context, tx *pg.Tx, id int64, before, b *editionBody) error {
	if b.IsEnabled || !before.IsEnabled {
		return nil
	}
	if _, err := tx.Exec(ctx, "SELECT FROM iso WHERE id = $1 FOR UPDATE", b.ISO); err != nil { // which profiles hold that name an edition
		return fmt.Errorf("hold an ISO: %w", err)
	}
	uses, err := reference.ByProfile(ctx, tx, "(iso_id, iso_edition) = (SELECT iso_id, name FROM iso_edition WHERE id = $1)", id)
	if err == nil && uses != "" {
		err = problem.Member("/is_enabled", "in_use", "must be true, as the edition %s", uses)
	}
	return err
}
