// Package field serves the custom fields of clients, IP entities, IP groups and servers, and their values.
package field

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Fields serves custom fields and their values.
type Fields struct {
	DB      *pg.DB
	Clients *events.Refs
}

// Routes returns the operations on fields and on values.
func (f *Fields) Routes() []rest.Route { return slices.Concat(f.fields(), f.values()) }

// CustomField is a field that operators add to a kind of item, such as clients.
type CustomField struct {
	rest.Versioned
	ID          int64   `json:"id" db:"id"`
	Name        string  `json:"name" db:"name"`
	Slug        string  `json:"slug" db:"slug"`
	Desc        *string `json:"desc,omitempty" db:"description" doc:"a longer explanation of the field"`
	Placeholder *string `json:"placeholder,omitempty" db:"placeholder" doc:"an example to show in an empty input"`
	Default     *string `json:"default,omitempty" db:"default_value" doc:"the value of items that have none of their own"`
	TargetType  string  `json:"target_type" db:"target_type" enum:"client,entity,group,server" doc:"the kind of item that has the field"`
	Type        string  `json:"type" db:"type" enum:"checkbox,date,integer,select,text" doc:"the type of its values"`
	Options     *string `json:"options,omitempty" db:"options" doc:"the values of a select, separated by |"`

	ClearOnRelease bool `json:"clear_on_release" db:"clear_on_release" ext:"true" doc:"whether an IP entity loses its value when its ownership ends"`
}

type fieldBody struct {
	Name        string  `json:"name" db:"name" required:"create" example:"Contract until"`
	Slug        string  `json:"slug" db:"slug" required:"create" max:"64" pattern:"^[a-z0-9][a-z0-9_-]*$" example:"contract-until" doc:"lower case letters, digits, - and _; unique among the fields of a target_type"`
	Desc        *string `json:"desc" db:"description" max:"1000" lines:"true" example:"When it may be cancelled" doc:"a longer explanation of the field"`
	Placeholder *string `json:"placeholder" db:"placeholder" example:"2027-12-31" doc:"an example to show in an empty input"`
	Default     *string `json:"default" db:"default_value" max:"1000" lines:"true" example:"2026-12-31" doc:"the value of items that have none of their own"`
	TargetType  string  `json:"target_type" db:"target_type" required:"create" example:"client" enum:"client,entity,group,server" doc:"the kind of item that has the field"`
	Type        string  `json:"type" db:"type" ext:"true" enum:"checkbox,date,integer,select,text" example:"date" doc:"the type of its values; default text"`
	Options     *string `json:"options" db:"options" ext:"true" max:"10000" doc:"the values of a select, separated by |"`

	ClearOnRelease *bool `json:"clear_on_release" db:"clear_on_release" ext:"true" doc:"whether an IP entity loses its value when its ownership ends; default true"`
}

// fieldTarget is a kind of item that can have fields.
type fieldTarget struct {
	permission permission.Permission // guards the values
	noun       string
}

var fieldTargets = map[string]fieldTarget{
	"client": {permission.UsersClients, "client"}, "entity": {permission.NetworkEntities, "IP entity"},
	"group": {permission.NetworkGroups, "IP group"}, "server": {permission.ServerSettings, "server"},
}

// valueCheck returns a function that says why a value does not fit the field's type, or returns an empty text.
func valueCheck(fieldType string, options *string) func(value string) (reason string) {
	switch fieldType {
	case "integer":
		return func(value string) string {
			if n, err := strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(n, 10) != value {
				return "must be an integer such as 12"
			}
			return ""
		}
	case "checkbox":
		return func(value string) string {
			if value != "true" && value != "false" {
				return "must be true or false"
			}
			return ""
		}
	case "date":
		return func(value string) string {
			if _, err := time.Parse(time.DateOnly, value); err != nil {
				return "must be a date such as 2026-11-21"
			}
			return ""
		}
	case "select":
		known := map[string]bool{}
		all := *options // a select has options
		for option := range strings.SplitSeq(all, "|") {
			known[option] = true
		}
		return func(value string) string {
			if !known[value] {
				return "must be one of " + strings.ReplaceAll(all, "|", ", ")
			}
			return ""
		}
	default:
		return func(string) string { return "" }
	}
}

// Resolve checks the members that depend on the type.
func (b *fieldBody) Resolve(invalid *problem.Fields) {
	if b.Type == "" {
		b.Type = "text"
	}
	if b.ClearOnRelease == nil {
		b.ClearOnRelease = new(true)
	}
	switch {
	case b.Type != "select" && b.Options != nil:
		invalid.Add("/options", "conflict", "can only be set for a select")
	case b.Type == "select" && b.Options == nil:
		invalid.Add("/options", "required", "is required for a select")
	case b.Options != nil && slices.Contains(strings.Split(*b.Options, "|"), ""):
		invalid.Add("/options", "invalid", "must not have an empty value")
	case b.Default != nil:
		if reason := valueCheck(b.Type, b.Options)(*b.Default); reason != "" {
			invalid.Add("/default", "invalid", "%s", reason)
		}
	}
}

var fieldView = pg.NewView[CustomField]("field")

func (f *Fields) fields() []rest.Route {
	return rest.Resource[CustomField, fieldBody]{
		Path:        "/field",
		ID:          "field_id",
		Noun:        "field",
		Guard:       guard.Has(permission.SystemSettings),
		ReadGuard:   guard.EveryKey,
		Table:       "field",
		Extensions:  rest.Creating | rest.Editing | rest.Deleting,
		Retry:       rest.RetryRefused,
		Example:     `{"name": "Contract until", "slug": "contract-until", "target_type": "client", "type": "date"}`,
		EditExample: `{"name": "Contract ends", "desc": null}`,
		List: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "slug": "slug"},
			Filters: map[string]string{"target_type": "target_type", "name": "name", "slug": "slug", "type": "type"}},
		Check: checkField,
	}.Routes()
}

// checkField refuses an edit that existing values would not fit.
func checkField(ctx context.Context, tx *pg.Tx, id int64, before, b *fieldBody) error {
	if before == nil {
		return nil
	}
	rows, err := tx.Query(ctx, "SELECT DISTINCT value FROM field_value WHERE field_id = $1", id)
	if err != nil {
		return fmt.Errorf("read the values: %w", err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the values: %w", err)
	}
	var invalid problem.Fields
	if b.TargetType != before.TargetType && len(values) > 0 {
		invalid.Add("/target_type", "conflict", "cannot change while the field has values")
	}
	check := valueCheck(b.Type, b.Options)
	for _, value := range values {
		if reason := check(value); reason != "" {
			invalid.Add("/type", "conflict", "does not fit the existing value %.100q: it %s", value, reason)
			break
		}
	}
	return invalid.Err()
}
