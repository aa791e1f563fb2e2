package network

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// FieldValue is what a target has in a field. The field's default has no id.
type FieldValue struct {
	rest.Versioned
	ID       int64  `json:"id,omitzero" db:"id"`
	FieldID  int64  `json:"field_id" db:"field_id"`
	TargetID int64  `json:"target_id,omitzero" db:"target_id"`
	Value    string `json:"value,omitempty" db:"value"`
}

var valueView = pg.NewView[FieldValue]("field_value")

type fieldValueBody struct {
	TargetID int64  `json:"target_id" required:"create" min:"1" example:"1" doc:"the id of a client, entity, group or server, by the field's target_type"`
	Value    string `json:"value" required:"create,edit" max:"1000" example:"2027-12-31"`
}

type (
	ofTarget struct {
		Field  int64 `path:"field_id"`
		Target int64 `query:"target_id" doc:"whose value it is; without it, the default is answered"`
	}
	valueItem struct {
		Field int64 `path:"field_id"`
		ID    int64 `path:"value_id"`
	}
	newValue struct {
		Field int64 `path:"field_id"`
		Body  rest.Body[fieldValueBody]
	}
	editValue struct {
		Field int64 `path:"field_id"`
		ID    int64 `path:"value_id"`
		Match rest.IfMatch
		Body  rest.Body[fieldValueBody]
	}
	deleteValue struct {
		Field int64 `path:"field_id"`
		ID    int64 `path:"value_id"`
		Match rest.IfMatch
	}
)

func (s *Service) fieldValues() []rest.Route {
	const all, item = "/field/{field_id}/value", "/field/{field_id}/value/{value_id}"
	guard := principal.PermissionOfTarget
	return []rest.Route{
		rest.Read[ofTarget, FieldValue]{Path: all, Guard: guard, Summary: "View the value of a field that a target has, or its default", Do: s.valueOfTarget},
		rest.Mutation[newValue, FieldValue]{Method: http.MethodPost, Path: all, Guard: guard, Summary: "Create a value of a field", Extension: true, Do: createValue},
		rest.Read[valueItem, FieldValue]{Path: item, Guard: guard, Summary: "View a value of a field",
			Do: func(ctx context.Context, req valueItem) (FieldValue, error) {
				if _, err := fieldFor(ctx, s.db, req.Field, principal.Read); err != nil {
					return FieldValue{}, err
				}
				return valueView.One(ctx, s.db, "id = $1 AND field_id = $2", req.ID, req.Field)
			}},
		rest.Mutation[editValue, FieldValue]{Method: http.MethodPatch, Path: item, Guard: guard, Summary: "Edit a value of a field", Extension: true, Do: changeValue},
		rest.Mutation[deleteValue, rest.Message]{Method: http.MethodDelete, Path: item, Guard: guard, Summary: "Delete a value of a field", Extension: true, Do: dropValue},
	}
}

// fieldFor is a field, for a caller who may do this with the values of its targets.
func fieldFor(ctx context.Context, q pg.Querier, id int64, access principal.Access) (CustomField, error) {
	field, err := fieldView.Get(ctx, q, id)
	if err != nil {
		return field, err
	}
	return field, fieldTargets[field.TargetType].Check(principal.From(ctx), access, 0)
}

func (s *Service) valueOfTarget(ctx context.Context, req ofTarget) (FieldValue, error) {
	field, err := fieldFor(ctx, s.db, req.Field, principal.Read)
	if err != nil {
		return FieldValue{}, err
	}
	value, err := valueView.One(ctx, s.db, "field_id = $1 AND target_id = $2", req.Field, req.Target)
	if !errors.Is(err, pgx.ErrNoRows) {
		return value, err
	}
	value = FieldValue{FieldID: req.Field, TargetID: req.Target}
	if field.Default != nil {
		value.Value = *field.Default
	}
	return value, nil
}

// heldField is fieldFor, and nobody edits the field until the unit of work ends.
func heldField(ctx context.Context, tx *pg.Tx, id int64) (CustomField, error) {
	if _, err := tx.Exec(ctx, "SELECT FROM field WHERE id = $1 FOR SHARE", id); err != nil {
		return CustomField{}, fmt.Errorf("hold field %d: %w", id, err)
	}
	return fieldFor(ctx, tx, id, principal.Write)
}

// fits answers what is wrong with a value as the fault of its member.
func (f *CustomField) fits(value string) error {
	if why := (&fieldBody{Type: f.Type, Options: f.Options}).unfit(value); why != "" {
		return problem.Member("/value", "invalid", "%s", why)
	}
	return nil
}

func createValue(ctx context.Context, tx *pg.Tx, req newValue) (FieldValue, error) {
	field, err := heldField(ctx, tx, req.Field)
	if err != nil {
		return FieldValue{}, err
	}
	body, err := req.Body.New()
	if err != nil {
		return FieldValue{}, err
	}
	if err := field.fits(body.Value); err != nil {
		return FieldValue{}, err
	}
	after := FieldValue{Versioned: rest.Versioned{Version: 1}, FieldID: field.ID, TargetID: body.TargetID, Value: body.Value}
	err = tx.QueryRow(ctx, "INSERT INTO field_value (field_id, target_type, target_id, value) VALUES ($1, $2, $3, $4) RETURNING id",
		field.ID, field.TargetType, body.TargetID, body.Value).Scan(&after.ID)
	if err != nil {
		return after, fmt.Errorf("create a value of field %d: %w", field.ID, err)
	}
	tx.Record(field.changed("created", &after, nil, after))
	return after, nil
}

// heldValue is a value that the caller has seen as it is, and its field.
func heldValue(ctx context.Context, tx *pg.Tx, fieldID, id int64, match rest.IfMatch) (CustomField, FieldValue, error) {
	field, err := heldField(ctx, tx, fieldID)
	if err != nil {
		return field, FieldValue{}, err
	}
	value, err := valueView.One(ctx, tx, "id = $1 AND field_id = $2 FOR UPDATE", id, fieldID)
	if err != nil {
		return field, value, err
	}
	return field, value, match.Check(value.Version)
}

func changeValue(ctx context.Context, tx *pg.Tx, req editValue) (FieldValue, error) {
	field, before, err := heldValue(ctx, tx, req.Field, req.ID, req.Match)
	if err != nil {
		return before, err
	}
	body, err := req.Body.Over(&fieldValueBody{before.TargetID, before.Value})
	if err != nil {
		return before, err
	}
	if err := field.fits(body.Value); err != nil {
		return before, err
	}
	after := before
	after.TargetID, after.Value = body.TargetID, body.Value
	err = tx.QueryRow(ctx, "UPDATE field_value SET version = version + 1, target_id = $2, value = $3 WHERE id = $1 RETURNING version",
		req.ID, body.TargetID, body.Value).Scan(&after.Version)
	if err != nil {
		return after, fmt.Errorf("edit value %d of field %d: %w", req.ID, req.Field, err)
	}
	tx.Record(field.changed("edited", &after, before, after))
	return after, nil
}

func dropValue(ctx context.Context, tx *pg.Tx, req deleteValue) (rest.Message, error) {
	field, before, err := heldValue(ctx, tx, req.Field, req.ID, req.Match)
	if err != nil {
		return rest.Message{}, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM field_value WHERE id = $1", req.ID); err != nil {
		return rest.Message{}, fmt.Errorf("delete value %d of field %d: %w", req.ID, req.Field, err)
	}
	tx.Record(field.changed("deleted", &before, before, nil))
	return rest.Deleted("Field value", req.ID), nil
}

// changed is the record of what happened to a value.
func (f *CustomField) changed(what string, value *FieldValue, before, after any) pg.Change {
	return pg.Change{Type: "field.value." + what, Before: before, After: after,
		Targets: []pg.Target{{Type: fmt.Sprintf("field/%d/value", f.ID), ID: value.ID, Name: f.Name}, {Type: f.TargetType, ID: value.TargetID}}}
}

// ShownField is a custom field on the view of its target.
type ShownField struct {
	ID    int64  `json:"id" doc:"the field's"`
	Name  string `json:"name"`
	Slug  string `json:"slug"`
	Value string `json:"value"`
}

// shownFields are the fields of a target that have a value, or a default.
func shownFields(ctx context.Context, q pg.Querier, targetType string, id int64) ([]ShownField, error) {
	rows, err := q.Query(ctx, `
		SELECT f.id, f.name, f.slug, coalesce(v.value, f.default_value)
		FROM field f LEFT JOIN field_value v ON v.field_id = f.id AND v.target_id = $2
		WHERE f.target_type = $1 AND coalesce(v.value, f.default_value) IS NOT NULL ORDER BY f.name, f.id`, targetType, id)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s %d: %w", targetType, id, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[ShownField])
}
