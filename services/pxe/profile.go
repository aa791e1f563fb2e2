package pxe

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// ListedProfile is a profile as lists and clients see it.
type ListedProfile struct {
	rest.Versioned
	ID           int64       `json:"id" db:"id"`
	Name         string      `json:"name" db:"name"`
	BillingID    *string     `json:"billing_id,omitempty" db:"billing_id"`
	AccessClient bool        `json:"access_client" db:"access_client" doc:"whether clients see it"`
	ISO          *ProfileISO `json:"iso,omitempty" db:"iso_"`
}

// ProfileISO is what is installed from.
type ProfileISO struct {
	ID      int64   `json:"id" db:"id"`
	Name    string  `json:"name" db:"name"`
	Edition *string `json:"edition,omitempty" db:"edition" doc:"of Windows, unless who asks for an installation names another one"`
}

// OSReloadProfile is a way to install a machine, or to boot one over the network.
type OSReloadProfile struct {
	ListedProfile
	BootScript            *rest.Ref    `json:"boot_script,omitempty" db:"boot_script_" doc:"left out for clients, like all that follows"`
	Preseed               *rest.Ref    `json:"preseed,omitempty" db:"preseed_"`
	Drivers               []rest.Ref   `json:"drivers" db:"drivers"`
	Email                 ProfileEmail `json:"email" db:"email_"`
	Shell                 ProfileShell `json:"shell" db:"shell_"`
	TimeUntilMarkedFailed *int32       `json:"time_until_marked_failed,omitempty" db:"time_until_marked_failed" ext:"true" doc:"in minutes"`
}

// ProfileEmail is what the client is written when it is done.
type ProfileEmail struct {
	Template *rest.Ref `json:"template,omitempty" db:"template_"`
}

// ProfileShell is what runs on the machine.
type ProfileShell struct {
	After  []int64 `json:"after" db:"after" doc:"shell scripts that run on the installed system, in their order"`
	During []int64 `json:"during" db:"during" ext:"true" doc:"shell scripts that run within the installation, in their order"`
}

type profileBody struct {
	Name         string         `json:"name" db:"name" required:"create" example:"Debian 13 of ours"`
	BillingID    *string        `json:"billing_id" db:"billing_id" example:"debian13"`
	AccessClient bool           `json:"access_client" db:"access_client" example:"false" doc:"whether clients see it"`
	BootScript   rest.RefID     `json:"boot_script" db:"boot_script_id" also:"boot_script_id" required:"create" example:"1" doc:"one of /pxe/boot-script"`
	Preseed      *rest.RefID    `json:"preseed" db:"preseed_id" also:"preseed_id" doc:"one of /pxe/preseed"`
	Drivers      []rest.RefID   `json:"drivers" db:"driver_ids" doc:"of /pxe/driver"`
	ISO          profileISOBody `json:"iso" db:"iso_"`
	Email        struct {
		Template *rest.RefID `json:"template" db:"template_id" doc:"one of /email/template"`
	} `json:"email" db:"email_"`
	Shell struct {
		After  []rest.RefID `json:"after" db:"after" order:"kept" doc:"shell scripts of /pxe/shell that run on the installed system, in this order"`
		During []rest.RefID `json:"during" db:"during" ext:"true" order:"kept" doc:"shell scripts that run within the installation, in this order"`
	} `json:"shell" db:"shell_"`
	TimeUntilMarkedFailed *int32 `json:"time_until_marked_failed" db:"time_until_marked_failed" ext:"true" min:"1" max:"10080" example:"90" doc:"in minutes"`
}

type profileISOBody struct {
	ID      *rest.RefID     `json:"id" db:"id" doc:"one of /pxe/iso"`
	Name    *string         `json:"name" doc:"means nothing"`
	Edition *rest.RefOrName `json:"edition" db:"edition" doc:"one of the ISO's enabled editions, by its name or id"`
}

// Resolve checks what the tags cannot say.
func (b *profileBody) Resolve(wrong *problem.Fields) {
	b.ISO.Name = nil
	if b.ISO.ID == nil && b.ISO.Edition != nil {
		wrong.Add("/iso/id", "required", "is required where an edition is named")
	}
}

// orClient lets those through who hold pxe.settings, and clients, who see the profiles with access_client.
var orClient = guard.HasOrClient(permission.PXESettings)

func isClient(ctx context.Context) bool { return principal.From(ctx).Client() != 0 }

// open are the profiles that there are for the caller.
func open(ctx context.Context) []pg.Condition {
	if !isClient(ctx) {
		return nil
	}
	return []pg.Condition{{SQL: "access_client"}}
}

var (
	profiles     = pg.NewView[OSReloadProfile]("profile_view")
	profileTable = table.New[profileBody]("profile", "profile_view", nil)
)

func (s *Service) profiles() []rest.Route {
	return append(rest.Resource[OSReloadProfile, profileBody]{
		DB:     s.db,
		Path:   "/pxe/profile",
		ID:     "profile_id",
		Noun:   "profile",
		Again:  rest.AgainRefused,
		Edited: `{"name": "Debian 13, small", "time_until_marked_failed": 60}`,
		Guard: guard.Has(
			permission.PXESettings,
		),
		Table:   "profile",
		View:    "profile_view",
		Without: rest.Listing | rest.Viewing,
		Check:   s.checkProfile,
		Delete: func(ctx context.Context, tx *pg.Tx, p *OSReloadProfile) error {
			return unlessInstalls(ctx, tx, "profile", "Profile", "profile_id", p.ID)
		},
	}.Routes(), rest.List[rest.None, ListedProfile]{
		DB:      s.db,
		Path:    "/pxe/profile",
		Guard:   orClient,
		Name:    "listProfiles",
		Summary: "List profiles",
		Doc:     "A client sees those with access_client.",
		View:    "profile_view",
		Where:   func(ctx context.Context, _ rest.None) ([]pg.Condition, error) { return open(ctx), nil },
		By: rest.By{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name", "billing_id": "billing_id", "access_client": "access_client"}},
	}, rest.Read[rest.Item, OSReloadProfile]{
		Path:    "/pxe/profile/{profile_id}",
		Guard:   orClient,
		Name:    "getProfile",
		Summary: "View a profile",
		Doc:     "A client sees what lists have of it.",
		Do: func(ctx context.Context, req rest.Item) (OSReloadProfile, error) {
			found, err := profiles.Get(ctx, s.db, req.ID, open(ctx)...)
			if isClient(ctx) {
				found = OSReloadProfile{ListedProfile: found.ListedProfile, Drivers: []rest.Ref{}, Shell: ProfileShell{[]int64{}, []int64{}}}
			}
			return found, err
		},
	})
}

// checkProfile keeps an email template there that is named anew.
func (s *Service) checkProfile(ctx context.Context, tx *pg.Tx, _ int64, before, b *profileBody) error {
	if err := checkISO(ctx, tx, before, b); err != nil {
		return err
	}
	named := b.Email.Template
	if named == nil || before != nil && before.Email.Template != nil && *before.Email.Template == *named {
		return nil
	}
	return s.emailTemplates.Hold(ctx, tx, int64(*named), "/email/template")
}

// profilesWith says which profiles use an email template, which cannot be deleted then.
func profilesWith(ctx context.Context, q pg.Querier, id int64) (string, error) {
	return usedBy(ctx, q, "email_template_id = $1", id)
}

// usedBy names a profile of those of which the condition is true; nothing where there is none.
func usedBy(ctx context.Context, q pg.Querier, condition string, args ...any) (string, error) {
	var user rest.Ref
	var more int64
	err := q.QueryRow(ctx, "SELECT id, name, count(*) OVER () - 1 FROM profile WHERE "+condition+" ORDER BY id LIMIT 1", args...).
		Scan(&user.ID, &user.Name, &more)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for profiles: %w", err)
	case more == 0:
		return fmt.Sprintf("is used by profile %d (%s)", user.ID, user.Name), nil
	default:
		return fmt.Sprintf("is used by profile %d (%s) and %d more", user.ID, user.Name, more), nil
	}
}

// unlessUsed deletes an item unless a profile uses it. That none comes to do so in between is the foreign keys' part.
func unlessUsed(ctx context.Context, tx *pg.Tx, table, noun, condition string, id int64) error {
	uses, err := usedBy(ctx, tx, condition, id)
	if err != nil {
		return err
	}
	return deleteUnused(ctx, tx, table, noun, id, uses)
}

// deleteUnused deletes an item, unless it is said how it is used.
func deleteUnused(ctx context.Context, tx *pg.Tx, table, noun string, id int64, uses string) error {
	if uses != "" {
		return problem.New(problem.Conflict, "%s %d %s.", noun, id, uses)
	}
	_, err := tx.Exec(ctx, "DELETE FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1", id)
	return err
}

// clearEmailTemplate takes an email template that is gone from the profiles that name it.
func clearEmailTemplate(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	return cleared(ctx, tx, "profile", "email_template_id", id, pg.Target{Type: "pxe/profile", Noun: "profile"},
		map[string]any{"email": map[string]rest.Ref{"template": {ID: id, Name: name}}})
}
