package templates

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
	"github.com/ironplane/ironplane/services/pxe/reference"
)

// ListedProfile is a profile as it appears in lists, and as clients see it.
type ListedProfile struct {
	rest.Versioned
	ID           int64       `json:"id" db:"id"`
	Name         string      `json:"name" db:"name"`
	BillingID    *string     `json:"billing_id,omitempty" db:"billing_id"`
	AccessClient bool        `json:"access_client" db:"access_client" doc:"Whether clients see the profile."`
	ISO          *ProfileISO `json:"iso,omitempty" db:"iso_" doc:"The ISO to install from."`
	Experimental bool        `json:"experimental" db:"experimental" ext:"true" doc:"Whether nobody has installed a machine with the profile yet."`
}

// ProfileISO is the ISO that a profile installs from.
type ProfileISO struct {
	ID      int64   `json:"id" db:"id"`
	Name    string  `json:"name" db:"name"`
	Edition *string `json:"edition,omitempty" db:"edition" doc:"The edition of Windows to install."`
}

// OSReloadProfile describes how to install a machine, or to boot it over the network.
type OSReloadProfile struct {
	ListedProfile
	BootScript            *rest.Ref    `json:"boot_script,omitempty" db:"boot_script_" doc:"The script that the machine boots. Left out for clients."`
	Preseed               *rest.Ref    `json:"preseed,omitempty" db:"preseed_" doc:"The configuration for the installer. Left out for clients."`
	Drivers               []rest.Ref   `json:"drivers" db:"drivers" doc:"The drivers for the installer. Left out for clients."`
	Email                 ProfileEmail `json:"email" db:"email_" doc:"The emails about the result. Left out for clients."`
	Shell                 ProfileShell `json:"shell" db:"shell_" doc:"The shell scripts. Left out for clients."`
	TimeUntilMarkedFailed *int32       `json:"time_until_marked_failed,omitempty" db:"time_until_marked_failed" ext:"true" doc:"How many minutes after the boot script an install fails if it is not done. Left out for clients."`
}

// ProfileEmail are the emails that the client gets when an install has ended.
type ProfileEmail struct {
	Template *rest.Ref `json:"template,omitempty" db:"template_" doc:"The email template. Without one, no email is sent about a success."`
	Failed   *rest.Ref `json:"failed,omitempty" db:"failed_" ext:"true" doc:"The email template for installs that failed. Left out: they use template."`
}

// ProfileShell are the shell scripts that run on the machine.
type ProfileShell struct {
	After  []int64 `json:"after" db:"after" doc:"The ids of the shell scripts that run on the installed system, in order."`
	During []int64 `json:"during" db:"during" ext:"true" doc:"The ids of the shell scripts that run during the installation, in order."`
}

// profileBody is the body that creates or edits a profile.
type profileBody struct {
	Name         string         `json:"name" db:"name" required:"create" example:"Debian 13 of ours"`
	BillingID    *string        `json:"billing_id" db:"billing_id" example:"debian13"`
	AccessClient bool           `json:"access_client" db:"access_client" example:"false" doc:"Whether clients see the profile."`
	Experimental bool           `json:"experimental" db:"experimental" ext:"true" example:"false" doc:"Whether nobody has installed a machine with the profile yet."`
	BootScript   rest.RefID     `json:"boot_script" db:"boot_script_id" alias:"boot_script_id" required:"create" example:"1" doc:"The id of the boot script, one of /pxe/boot-script."`
	Preseed      *rest.RefID    `json:"preseed" db:"preseed_id" alias:"preseed_id" doc:"The id of the preseed, one of /pxe/preseed."`
	Drivers      []rest.RefID   `json:"drivers" db:"driver_ids" doc:"The ids of the drivers, each one of /pxe/driver."`
	ISO          profileISOBody `json:"iso" db:"iso_" doc:"The ISO to install from."`
	Email        struct {
		Template *rest.RefID `json:"template" db:"template_id" doc:"The id of the email template, one of /email/template."`
		Failed   *rest.RefID `json:"failed" db:"failed_id" ext:"true" doc:"The id of the email template for installs that failed, one of /email/template. null: they use template."`
	} `json:"email" db:"email_" doc:"The emails about the result."`
	Shell struct {
		After  []rest.RefID `json:"after" db:"after" ordered:"true" doc:"The ids of the shell scripts that run on the installed system, in order. Each is one of /pxe/shell."`
		During []rest.RefID `json:"during" db:"during" ext:"true" ordered:"true" doc:"The ids of the shell scripts that run during the installation, in order. Each is one of /pxe/shell."`
	} `json:"shell" db:"shell_" doc:"The shell scripts."`
	TimeUntilMarkedFailed *int32 `json:"time_until_marked_failed" db:"time_until_marked_failed" ext:"true" min:"1" max:"10080" example:"90" doc:"How many minutes after the boot script an install fails if it is not done. The default is the setting pxe.install_time."`
}

// profileISOBody is the part of a body with the ISO of a profile.
type profileISOBody struct {
	ID      *rest.RefID     `json:"id" db:"id" doc:"The id of the ISO, one of /pxe/iso."`
	Name    *string         `json:"name" doc:"Has no effect."`
	Edition *rest.RefOrName `json:"edition" db:"edition" doc:"The name or id of an enabled edition of the ISO."`
}

// Resolve checks what struct tags cannot express.
func (b *profileBody) Resolve(invalid *problem.Fields) {
	b.ISO.Name = nil
	if b.ISO.ID == nil && b.ISO.Edition != nil {
		invalid.Add("/iso/id", "required", "is required if iso.edition is set")
	}
}

// readGuard admits callers with pxe.settings, and clients. Clients see only profiles with access_client.
var readGuard = guard.HasOrClient(permission.PXESettings)

// visibleProfiles returns the condition for the profiles that the caller sees.
func visibleProfiles(ctx context.Context) []pg.Condition {
	if principal.FromContext(ctx).Client() == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "access_client"}}
}

var (
	profiles     = pg.NewView[OSReloadProfile]("profile_view")
	profileTable = table.New[profileBody]("profile", "profile_view", nil)
)

// hiddenFromClients hides the members that are not in lists from clients.
var hiddenFromClients = rest.Hide{
	From:    func(ctx context.Context) bool { return principal.FromContext(ctx).Client() != 0 },
	Members: []string{"boot_script", "preseed", "drivers", "email", "shell", "time_until_marked_failed"},
}

// profiles returns the routes of profiles.
func (s *Profiles) profiles() []rest.Route {
	return append(rest.Resource[OSReloadProfile, profileBody]{
		Path:        "/pxe/profile",
		ID:          "profile_id",
		Noun:        "profile",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "Debian 13, small", "time_until_marked_failed": 60}`,
		Guard:       guard.Has(permission.PXESettings),
		Table:       "profile",
		View:        "profile_view",
		Hide:        hiddenFromClients,
		Without:     rest.Listing | rest.Viewing,
		Check:       s.checkProfile,
		Delete: func(ctx context.Context, tx *pg.Tx, p *OSReloadProfile) error {
			return reference.DeleteUnlessInstalls(ctx, tx, "profile", "Profile", "profile_id", p.ID)
		},
	}.Routes(), rest.List[rest.None, ListedProfile]{
		Path:    "/pxe/profile",
		Guard:   readGuard,
		Name:    "listProfiles",
		Summary: "List profiles",
		Doc:     "A client sees the profiles with access_client.",
		View:    "profile_view",
		Where:   func(ctx context.Context, _ rest.None) ([]pg.Condition, error) { return visibleProfiles(ctx), nil },
		Options: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name", "billing_id": "billing_id", "access_client": "access_client",
				"experimental": "experimental"}},
	}, rest.Read[rest.Item, OSReloadProfile]{
		Path:    "/pxe/profile/{profile_id}",
		Guard:   readGuard,
		Name:    "getProfile",
		Summary: "View a profile",
		Doc:     "A client sees the members that lists have.",
		Hide:    hiddenFromClients,
		Do: func(ctx context.Context, req rest.Item) (OSReloadProfile, error) {
			return profiles.Get(ctx, s.DB, req.ID, visibleProfiles(ctx)...)
		},
	})
}

// checkProfile holds the email templates and the edition of Windows of a profile until the commit.
func (s *Profiles) checkProfile(ctx context.Context, tx *pg.Tx, _ int64, before, b *profileBody) error {
	if err := holdEdition(ctx, tx, before, b); err != nil {
		return err
	}
	var held profileBody
	if before != nil {
		held = *before
	}
	if err := s.holdEmailTemplate(ctx, tx, held.Email.Template, b.Email.Template, "/email/template"); err != nil {
		return err
	}
	return s.holdEmailTemplate(ctx, tx, held.Email.Failed, b.Email.Failed, "/email/failed")
}

// holdEmailTemplate holds an email template until the commit, unless the profile named it before.
func (s *Profiles) holdEmailTemplate(ctx context.Context, tx *pg.Tx, before, named *rest.RefID, pointer string) error {
	if named == nil || before != nil && *before == *named {
		return nil
	}
	return s.EmailTemplates.Hold(ctx, tx, int64(*named), pointer)
}

// holdEdition finds the edition that a profile names by name or id, and writes its name into the body. It locks the ISO,
// so that the edition stays enabled until the commit.
func holdEdition(ctx context.Context, tx *pg.Tx, before, b *profileBody) error {
	iso := &b.ISO
	if iso.ID == nil || iso.Edition == nil {
		return nil
	}
	if _, err := tx.Exec(ctx, "SELECT FROM iso WHERE id = $1 FOR SHARE", *iso.ID); err != nil {
		return fmt.Errorf("lock an ISO: %w", err)
	}
	column, value := "name", any(string(*iso.Edition))
	if id, isID := iso.Edition.ID(); isID {
		column, value = "id", id
	}
	var name string
	err := tx.QueryRow(ctx, "SELECT name FROM iso_edition WHERE iso_id = $1 AND is_enabled AND "+column+" = $2", *iso.ID, value).Scan(&name)
	switch {
	// The body repeats the edition of the earlier ISO, which the new ISO does not have.
	case errors.Is(err, pgx.ErrNoRows) && before != nil && before.ISO.Edition != nil && *before.ISO.Edition == *iso.Edition:
		iso.Edition = nil
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return problem.Member("/iso/edition", "not_found", "is not an enabled edition of the ISO")
	case err != nil:
		return fmt.Errorf("find an edition: %w", err)
	}
	*iso.Edition = rest.RefOrName(name)
	return nil
}

// clearEmailTemplate removes a deleted email template from the profiles that name it.
func clearEmailTemplate(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	for column, member := range map[string]string{"email_template_id": "template", "email_failed_id": "failed"} {
		err := reference.ClearReferences(ctx, tx, "profile", column, id, pg.Target{Type: "pxe/profile", Noun: "profile"},
			map[string]any{"email": map[string]rest.Ref{member: {ID: id, Name: name}}})
		if err != nil {
			return err
		}
	}
	return nil
}
