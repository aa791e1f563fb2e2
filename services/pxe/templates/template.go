package templates

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// ListedTemplate is a template without its body.
type ListedTemplate struct {
	rest.Versioned
	ID          int64   `json:"id" db:"id"`
	Name        string  `json:"name" db:"name"`
	Description *string `json:"description,omitempty" db:"description"`
	Problem     *string `json:"problem,omitempty" db:"problem" ext:"true" doc:"Why the template is not valid in this version of Ironplane. Edit its body to solve it."`
}

// OSPreseed is a template for the configuration of an operating system's installer.
type OSPreseed struct {
	ListedPreseed
	Body string `json:"body" db:"body" doc:"The template."`
}

// ListedPreseed is a preseed without its body.
type ListedPreseed struct {
	ListedTemplate
	IsInstallable bool `json:"is_installable" db:"is_installable" doc:"Whether the preseed installs an operating system."`
}

// OSBootScript is a template for the iPXE script of a machine that boots over the network.
type OSBootScript struct {
	ListedTemplate
	Body string `json:"body" db:"body" doc:"The template."`
}

// OSShellScript is a template for a script that runs on a machine during or after its installation.
type OSShellScript struct {
	ListedTemplate
	Body string `json:"body" db:"body" doc:"The template."`
}

// templateBody is the body that creates or edits a template.
type templateBody struct {
	Name        string  `json:"name" db:"name" required:"create" example:"Debian 13 of ours"`
	Description *string `json:"description" db:"description" max:"1000" lines:"true" example:"with the site's mirror"`
	Body        *string `json:"body" db:"body" max:"262144" lines:"true" trim:"false" example:"# of {{.Host.Hostname}}" doc:"The template, in the syntax of Go templates. Errors are reported with line and column."`

	Problem *string `db:"problem"`
}

// check parses the template. A template that was saved is valid, so its stored problem is cleared.
func (b *templateBody) check(kind script.Kind, invalid *problem.Fields) {
	if b.Body == nil {
		b.Body = new(string)
	}
	if _, reason := kind.Parse(*b.Body); reason != "" {
		invalid.Add("/body", "template", "%s", reason)
	}
	b.Problem = nil
}

type preseedBody struct {
	templateBody
	IsInstallable bool `json:"is_installable" db:"is_installable" example:"true" doc:"Whether the preseed installs an operating system."`
}

type bootScriptBody struct{ templateBody }

type shellScriptBody struct{ templateBody }

// Resolve parses the template.
func (b *preseedBody) Resolve(invalid *problem.Fields) { b.check(script.Preseed, invalid) }

// Resolve parses the template.
func (b *bootScriptBody) Resolve(invalid *problem.Fields) { b.check(script.Boot, invalid) }

// Resolve parses the template.
func (b *shellScriptBody) Resolve(invalid *problem.Fields) { b.check(script.Shell, invalid) }

var (
	byTemplate = rest.ListOptions{
		Search:  rest.SearchIn("search"),
		Sorts:   map[string]string{"name": "name"},
		Filters: map[string]string{"name": "name"},
	}
	byPreseed = rest.ListOptions{
		Search:  byTemplate.Search,
		Sorts:   byTemplate.Sorts,
		Filters: map[string]string{"name": "name", "is_installable": "is_installable"},
	}
)

const editedTemplate = `{"name": "Debian 13, small", "body": "# {{quote .Host.Name}}"}`

// preseeds returns the routes of preseeds.
func (s *Profiles) preseeds() []rest.Route {
	return append(rest.Resource[OSPreseed, preseedBody]{
		Path: "/pxe/preseed", ID: "preseed_id", Noun: "preseed", Retry: rest.RetryRefused, EditExample: editedTemplate,
		Guard: guard.Has(permission.PXESettings), Table: "preseed", Without: rest.Listing,
		Delete: func(ctx context.Context, tx *pg.Tx, item *OSPreseed) error {
			return reference.DeleteUnlessProfiles(ctx, tx, "preseed", "Preseed", "preseed_id = $1", item.ID)
		},
	}.Routes(), rest.List[rest.None, ListedPreseed]{
		Path: "/pxe/preseed", Guard: guard.Has(permission.PXESettings), Name: "listPreseeds", Summary: "List preseeds", View: "preseed",
		Options: byPreseed,
	})
}

// bootScripts returns the routes of boot scripts.
func (s *Profiles) bootScripts() []rest.Route {
	return append(rest.Resource[OSBootScript, bootScriptBody]{
		Path:        "/pxe/boot-script",
		ID:          "boot_script_id",
		Noun:        "boot script",
		Retry:       rest.RetryRefused,
		EditExample: editedTemplate,
		Guard:       guard.Has(permission.PXESettings),
		Table:       "boot_script",
		Without:     rest.Listing,
		Extensions:  rest.Creating | rest.Viewing | rest.Editing | rest.Deleting,
		Delete: func(ctx context.Context, tx *pg.Tx, item *OSBootScript) error {
			return reference.DeleteUnlessProfiles(ctx, tx, "boot_script", "Boot script", "boot_script_id = $1", item.ID)
		},
	}.Routes(), rest.List[rest.None, ListedTemplate]{
		Path: "/pxe/boot-script", Guard: guard.Has(permission.PXESettings), Name: "listBootScripts", Summary: "List boot scripts",
		Extension: true, View: "boot_script", Options: byTemplate,
	})
}

// shellScripts returns the routes of shell scripts.
func (s *Profiles) shellScripts() []rest.Route {
	return rest.Resource[OSShellScript, shellScriptBody]{
		Path: "/pxe/shell", ID: "shell_script_id", Noun: "shell script", Retry: rest.RetryRefused, EditExample: editedTemplate,
		Guard: guard.Has(permission.PXESettings), Table: "shell_script", Extensions: rest.Viewing | rest.Editing, List: byTemplate,
		Delete: func(ctx context.Context, tx *pg.Tx, item *OSShellScript) error {
			return reference.DeleteUnlessProfiles(ctx, tx, "shell_script", "Shell script", "$1 = ANY (shell_after || shell_during)", item.ID)
		},
	}.Routes()
}

// templateTable is the table with the templates of a kind.
type templateTable struct {
	name, path, noun, kind string
	of                     script.Kind
}

var templateTables = []templateTable{
	{"boot_script", "pxe/boot-script", "boot script", "pxe.boot-script", script.Boot},
	{"preseed", "pxe/preseed", "preseed", "pxe.preseed", script.Preseed},
	{"shell_script", "pxe/shell", "shell script", "pxe.shell", script.Shell},
}

// CheckStored parses all stored templates again. An older version may have saved a template with variables that no
// longer exist. Such a problem is stored with the template, and recorded.
func CheckStored(ctx context.Context, db *pg.DB) error {
	for _, table := range templateTables {
		for after, more := int64(0), true; more; {
			var err error
			if after, more, err = checkBatch(ctx, db, table, after); err != nil {
				return fmt.Errorf("check each %s: %w", table.noun, err)
			}
		}
	}
	return nil
}

// checkBatchSize is how many templates are read at once.
const checkBatchSize = 20

// checkBatch checks the templates with an id above after. It returns the last id, and whether there may be more.
func checkBatch(ctx context.Context, db *pg.DB, table templateTable, after int64) (last int64, more bool, err error) {
	rows, err := db.Query(
		ctx,
		"SELECT id, body, coalesce(problem, '') FROM "+table.name+" WHERE id > $1 ORDER BY id LIMIT $2",
		after,
		checkBatchSize,
	)
	if err != nil {
		return 0, false, err
	}
	type stored struct {
		ID            int64
		Body, Problem string
	}
	some, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	if err != nil {
		return 0, false, err
	}
	for _, t := range some {
		last = t.ID
		_, reason := table.of.Parse(t.Body)
		if reason == t.Problem {
			continue
		}
		err := db.InTx(ctx, func(tx *pg.Tx) error {
			target := pg.Target{Type: table.path, Noun: table.noun, ID: t.ID}
			err := tx.QueryRow(ctx, "UPDATE "+table.name+" SET problem = nullif($2, ''), version = version + 1 "+
				"WHERE id = $1 AND body = $3 RETURNING name, version", t.ID, reason, t.Body).
				Scan(&target.Name, &target.Version)
			if errors.Is(err, pgx.ErrNoRows) { // the template was edited meanwhile
				tx.Unrecorded("the template was edited meanwhile")
				return nil
			}
			tx.Record(
				pg.Record{
					Kind:    table.kind,
					Action:  pg.Edited,
					Targets: []pg.Target{target},
					Before:  problemRecord{t.Problem},
					After:   problemRecord{reason},
				},
			)
			return err
		})
		if err != nil {
			return 0, false, fmt.Errorf("store the problem of %s %d: %w", table.noun, t.ID, err)
		}
	}
	return last, len(some) == checkBatchSize, nil
}

// problemRecord is a template's problem in a record.
type problemRecord struct {
	Problem string `json:"problem,omitempty"`
}
