package media

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/reference"
)

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
func (b *editionBody) Resolve(invalid *problem.Fields) {
	switch {
	case b.LicenseKey == nil:
		b.KeyEnd = nil
	case b.LicenseKey.IsZero(): // it stays
	case b.KeyEnd != nil && b.LicenseKey.Reveal() == hiddenKey+*b.KeyEnd:
		*b.LicenseKey = secret.String{}
	default:
		key := strings.ToUpper(b.LicenseKey.Reveal())
		if !licenseKey.MatchString(key) {
			invalid.Add("/license_key", "invalid", "must be five groups of five letters and digits, with dashes between")
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

func (s *ISOs) editions() []rest.Route {
	const path, one = "/pxe/iso/{iso_manager_id}/edition", "/pxe/iso/{iso_manager_id}/edition/{edition_id}"
	return append(
		rest.Resource[ISOEdition, editionBody]{
			Path:        path,
			ID:          "edition_id",
			Noun:        "ISO edition",
			Guard:       guard.Has(permission.PXESettings),
			EditExample: `{"is_enabled": true, "license_key": "ABCDE-FGHIJ-KLMNO-PQRST-UVWXY"}`,
			Table:       "iso_edition",
			View:        "iso_edition_view",
			Box:         s.box,
			Without:     rest.Listing | rest.Creating | rest.Viewing | rest.Deleting,
			Retry:       rest.RetryRefused,
			Parent: func(ctx context.Context, q pg.Querier, id int64, _ permission.Access) error {
				return isoIsThere(ctx, q, id)
			},
			Check: checkEdition,
		}.Routes(),
		rest.List[ofISO, ISOEdition]{
			Path:    path,
			Guard:   guard.HasOrClient(permission.PXESettings),
			Name:    "listISOEditions",
			Summary: "List the editions of Windows in an ISO",
			View:    "iso_edition_seen",
			Doc:     "A client sees those that are enabled, of the ISOs of its profiles, and no keys.",
			Options: rest.ListOptions{
				Sorts:   map[string]string{"number": "number"},
				Filters: map[string]string{"is_enabled": "is_enabled", "name": "name"},
			},
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
