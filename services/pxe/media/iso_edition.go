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

// ISOEdition is an edition of Windows in an ISO.
type ISOEdition struct {
	ListedEdition
	Key *string `json:"key,omitempty" db:"key" example:"*****-*****-*****-*****-ABCDE" doc:"The license key with all but its last group hidden. Left out for clients."`
}

// ListedEdition is an edition as clients see it.
type ListedEdition struct {
	rest.Versioned
	ISO       int64  `json:"-" db:"iso_id"`
	ID        int64  `json:"id" db:"id"`
	Name      string `json:"name" db:"name"`
	IsEnabled bool   `json:"is_enabled" db:"is_enabled" doc:"Whether profiles may install the edition."`
	Number    int64  `json:"number" db:"number" ext:"true" doc:"The number of the image in install.wim."`
}

// editionBody is the body that edits an edition.
type editionBody struct {
	ISO        int64          `path:"iso_manager_id" db:"iso_id"`
	IsEnabled  bool           `json:"is_enabled" db:"is_enabled" example:"true" doc:"Whether profiles may install the edition."`
	LicenseKey *secret.String `json:"license_key" db:"license_key" example:"ABCDE-FGHIJ-KLMNO-PQRST-UVWXY" doc:"The license key. It is stored encrypted. The hidden form from key keeps the stored one, and null removes it."`

	KeyEnd *string `db:"key_end"`
}

const hiddenKey = "*****-*****-*****-*****-"

var licenseKey = regexp.MustCompile(`^[A-Z0-9]{5}(-[A-Z0-9]{5}){4}$`)

// Resolve checks the license key, and stores its last group.
func (b *editionBody) Resolve(invalid *problem.Fields) {
	switch {
	case b.LicenseKey == nil:
		b.KeyEnd = nil
	case b.LicenseKey.IsZero(): // the stored key stays
	case b.KeyEnd != nil && b.LicenseKey.Reveal() == hiddenKey+*b.KeyEnd:
		*b.LicenseKey = secret.String{}
	default:
		key := strings.ToUpper(b.LicenseKey.Reveal())
		if !licenseKey.MatchString(key) {
			invalid.Add("/license_key", "invalid", "must be five groups of five letters or digits, separated by dashes")
			return
		}
		end := key[len(hiddenKey):]
		*b.LicenseKey, b.KeyEnd = secret.New(key), &end
	}
}

var editionView = pg.NewView[ISOEdition]("iso_edition_seen")

type editionListRequest struct {
	ISO int64 `path:"iso_manager_id"`
}

type editionRequest struct {
	ISO int64 `path:"iso_manager_id"`
	ID  int64 `path:"edition_id"`
}

// editions returns the routes of the editions in ISOs.
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
				return checkISOVisible(ctx, q, id)
			},
			Check: checkEdition,
		}.Routes(),
		rest.List[editionListRequest, ISOEdition]{
			Path:    path,
			Guard:   guard.HasOrClient(permission.PXESettings),
			Name:    "listISOEditions",
			Summary: "List the editions of Windows in an ISO",
			View:    "iso_edition_seen",
			Doc:     "A client sees the enabled editions in the ISOs of its profiles, without keys.",
			Options: rest.ListOptions{
				Sorts:   map[string]string{"number": "number"},
				Filters: map[string]string{"is_enabled": "is_enabled", "name": "name"},
			},
			Where: func(ctx context.Context, req editionListRequest) ([]pg.Condition, error) {
				return append(visibleEditions(ctx), pg.Condition{SQL: "iso_id = $1", Args: []any{req.ISO}}), checkISOVisible(ctx, s.db, req.ISO)
			},
		},
		rest.Read[editionRequest, ISOEdition]{
			Path:    one,
			Guard:   guard.HasOrClient(permission.PXESettings),
			Name:    "getISOEdition",
			Summary: "View an edition of Windows in an ISO",
			Doc:     "A client sees the enabled editions in the ISOs of its profiles, without keys.",
			Do: func(ctx context.Context, req editionRequest) (ISOEdition, error) {
				return editionView.Get(ctx, s.db, req.ID, append(visibleEditions(ctx), pg.Condition{SQL: "iso_id = $1", Args: []any{req.ISO}})...)
			},
		},
	)
}

// visibleEditions returns the condition for the editions that the caller sees. For clients, the view has rows without
// keys.
func visibleEditions(ctx context.Context) []pg.Condition {
	if principal.FromContext(ctx).Client() != 0 {
		return []pg.Condition{{SQL: "for_client", PerRow: true}}
	}
	return []pg.Condition{{SQL: "NOT for_client", PerRow: true}}
}

// checkISOVisible fails with pgx.ErrNoRows if the ISO does not exist or the caller may not see it.
func checkISOVisible(ctx context.Context, q pg.Querier, id int64) error {
	condition := ""
	if principal.FromContext(ctx).Client() != 0 {
		condition = " AND EXISTS (SELECT FROM profile WHERE iso_id = iso.id AND access_client)"
	}
	var is bool
	if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT FROM iso WHERE id = $1"+condition+")", id).Scan(&is); err != nil {
		return fmt.Errorf("find an ISO: %w", err)
	}
	if !is {
		return pgx.ErrNoRows
	}
	return nil
}

// checkEdition refuses to disable an edition that profiles install.
func checkEdition(ctx context.Context, tx *pg.Tx, id int64, before, b *editionBody) error {
	if b.IsEnabled || !before.IsEnabled {
		return nil
	}
	if _, err := tx.Exec(
		ctx,
		"SELECT FROM iso WHERE id = $1 FOR UPDATE",
		b.ISO,
	); err != nil { // profiles lock the ISO, too, when they name an edition
		return fmt.Errorf("lock an ISO: %w", err)
	}
	usage, err := reference.DescribeProfileUse(ctx, tx, "(iso_id, iso_edition) = (SELECT iso_id, name FROM iso_edition WHERE id = $1)", id)
	if err == nil && usage != "" {
		err = problem.Member("/is_enabled", "in_use", "must be true because the edition %s", usage)
	}
	return err
}
