package field

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// FieldValue is the value of a field for one item. A default has no id.
type FieldValue struct {
	rest.Versioned
	ID         int64  `json:"id,omitzero" db:"id"`
	FieldID    int64  `json:"field_id" db:"field_id" doc:"the id of the field"`
	TargetID   int64  `json:"target_id,omitzero" db:"target_id" doc:"the id of the item that has the value"`
	Value      string `json:"value,omitempty" db:"value" doc:"the value, in the spelling of the field's type"`
	Name       string `json:"-" db:"name"` // of the field
	TargetType string `json:"-" db:"target_type"`
}

type fieldValueBody struct {
	FieldID    int64  `path:"field_id" db:"field_id"`
	TargetType string `db:"target_type"`
	TargetID   int64  `json:"target_id" db:"target_id" required:"create" min:"1" example:"1" doc:"the id of a client, IP entity, IP group or server, depending on the field's target_type"`
	Value      string `json:"value" db:"value" required:"create,edit" max:"1000" lines:"true" example:"2027-12-31" doc:"the value, in the spelling of the field's type"`
}

// targetGuard admits keys with the permission of any target. checkAccess then requires that of the field's target.
type targetGuard struct{ guard.Guard }

func (targetGuard) String() string { return "the target's permission" }

// Check refuses a key without any of the permissions.
func (g targetGuard) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := g.Guard.Check(c, a, id); err != nil {
		return err
	}
	var names []string
	for _, target := range fieldTargets {
		if c.Principal.Holds(target.permission, a) {
			return nil
		}
		names = append(names, target.permission.String())
	}
	slices.Sort(names)
	return problem.New(problem.Forbidden, "The key lacks %s access to the field's target: one of %s.", a, strings.Join(names, ", "))
}

func (f *Fields) values() []rest.Route {
	return append(rest.Resource[FieldValue, fieldValueBody]{
		Path: "/field/{field_id}/value", ID: "value_id", Noun: "field value", Guard: targetGuard{guard.AnyKey},
		Table: "field_value", View: "field_value_view", Without: rest.Listing, Extensions: rest.Creating | rest.Editing | rest.Deleting,
		Retry: rest.RetryRefused, EditExample: `{"value": "2028-12-31"}`,
		Parent: checkAccess, Check: f.checkValue,
		Related: valueTarget,
	}.Routes(), rest.Read[targetRequest, FieldValue]{Path: "/field/{field_id}/value", Guard: targetGuard{guard.AnyKey},
		Name:    "getFieldValueOfTarget",
		Summary: "View the value of a field that a target has, or its default", Do: f.getTargetValue})
}

// valueTarget returns the item that has a value, as a target of records.
func valueTarget(v *FieldValue) []pg.Target {
	return []pg.Target{{Type: v.TargetType, Noun: fieldTargets[v.TargetType].noun, ID: v.TargetID}}
}

// checkAccess refuses callers without the permission of the field's target. For writers it locks the field, so that its
// type and target stay the same until the commit.
func checkAccess(ctx context.Context, q pg.Querier, field int64, a permission.Access) error {
	sql := "SELECT target_type FROM field WHERE id = $1"
	if a == permission.Write {
		sql += " FOR SHARE"
	}
	var target string
	if err := q.QueryRow(ctx, sql, field).Scan(&target); err != nil {
		return err
	}
	return guard.Has(fieldTargets[target].permission).Check(principal.FromContext(ctx), a, 0)
}

// checkValue refuses a value that does not fit the field. A client that gets a value cannot be deleted until the commit.
func (f *Fields) checkValue(ctx context.Context, tx *pg.Tx, _ int64, before, b *fieldValueBody) error {
	field, err := fieldView.Get(ctx, tx, b.FieldID)
	if err != nil {
		return err
	}
	b.TargetType = field.TargetType
	if reason := valueCheck(field.Type, field.Options)(b.Value); reason != "" {
		return problem.Member("/value", "invalid", "%s", reason)
	}
	if field.TargetType != "client" || before != nil && before.TargetID == b.TargetID {
		return nil
	}
	return f.Clients.Hold(ctx, tx, b.TargetID, "/target_id")
}

type targetRequest struct {
	Field  int64 `path:"field_id"`
	Target int64 `query:"target_id" doc:"the item whose value to view; without it, the field's default"`
}

func (f *Fields) getTargetValue(ctx context.Context, req targetRequest) (value FieldValue, err error) {
	if err := checkAccess(ctx, f.DB, req.Field, permission.Read); err != nil {
		return value, err
	}
	err = f.DB.QueryRow(ctx, `
		SELECT coalesce(v.version, 0), coalesce(v.id, 0), f.id, coalesce(v.value, f.default_value, '')
		FROM field f LEFT JOIN field_value v ON v.field_id = f.id AND v.target_id = $2 WHERE f.id = $1`, req.Field, req.Target).
		Scan(&value.Version, &value.ID, &value.FieldID, &value.Value)
	value.TargetID = req.Target
	return value, err
}

// ShownField is a custom field on the view of its target.
type ShownField struct {
	ID    int64  `json:"id" doc:"the field's id"`
	Name  string `json:"name"`
	Slug  string `json:"slug"`
	Value string `json:"value" doc:"the item's value, or the field's default"`
}

// ListShown returns the fields of a target that have a value or a default. A caller that may not read them gets a 403.
func ListShown(ctx context.Context, q pg.Querier, targetType string, id int64) ([]ShownField, error) {
	if err := guard.Has(fieldTargets[targetType].permission).Check(principal.FromContext(ctx), permission.Read, 0); err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, `
		SELECT f.id, f.name, f.slug, coalesce(v.value, f.default_value)
		FROM field f LEFT JOIN field_value v ON v.field_id = f.id AND v.target_id = $2
		WHERE f.target_type = $1 AND coalesce(v.value, f.default_value) IS NOT NULL ORDER BY f.name, f.id`, targetType, id)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s %d: %w", targetType, id, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ShownField])
}

// ClearReleased deletes the values that IP entities lose with their owners.
func ClearReleased(ctx context.Context, tx *pg.Tx, entities []int64) error {
	rows, err := tx.Query(ctx, `
		DELETE FROM field_value v USING field f
		WHERE f.id = v.field_id AND f.clear_on_release AND v.entity_id = ANY ($1)
		RETURNING v.version, v.id, v.field_id, v.target_id, v.value, f.name, v.target_type`, entities)
	if err != nil {
		return fmt.Errorf("clear the fields of IP entities: %w", err)
	}
	var v FieldValue
	_, err = pgx.ForEachRow(rows, []any{&v.Version, &v.ID, &v.FieldID, &v.TargetID, &v.Value, &v.Name, &v.TargetType}, func() error {
		tx.Record(pg.Record{Kind: "field.value", Action: pg.Deleted, Before: v, Targets: append([]pg.Target{
			{Type: fmt.Sprintf("field/%d/value", v.FieldID), Noun: "field value", ID: v.ID, Name: v.Name, Version: v.Version}}, valueTarget(&v)...)})
		return nil
	})
	return err
}
