package rest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/noun"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// maxImportErrors is the number of errors at which an import ends, because its columns are probably mixed up.
	maxImportErrors = 100
	// maxPartialErrors is the same for an import that leaves out rows with errors.
	maxPartialErrors = 1000
	// maxPending is how many rows wait for preparations, such as questions to other services, before these are made.
	maxPending = 500
)

// importRun is one attempt to import rows in a unit of work.
type importRun[V, B any] struct {
	*Collection[V, B]
	tx      *pg.Tx
	req     *importRequest[B]
	rows    []importRow[V, B]
	errors  problem.Fields
	pending []pendingRow
	written body.Keys[B]
}

// importRow is a row of an import. shown is nil if it creates an item. after is nil if nothing is to be written.
type importRow[V, B any] struct {
	*body.Row[B]  // outlives the attempt
	item          int64
	shown         *V
	before, after *B
	failed        bool
}

// pendingRow is a row that can be tried again after a preparation.
type pendingRow struct {
	number  int
	prepare pg.RestartAfter
}

// importRows creates and edits the items of a CSV body: all of them, or with partial those whose rows have no errors.
func (r *Collection[V, B]) importRows(ctx context.Context, tx *pg.Tx, req *importRequest[B]) (done Import, err error) {
	run := &importRun[V, B]{Collection: r, tx: tx, req: req, errors: slices.Clone(req.sheet.Invalid)}
	if err := r.checkParent(ctx, tx, req.Parent, permission.Write); err != nil {
		return done, err
	}
	for _, row := range req.sheet.Rows {
		run.rows = append(run.rows, importRow[V, B]{Row: row, item: row.ID})
	}
	for _, step := range []func(context.Context) error{run.holdItems, run.buildRows, run.refuseColumns, run.lockRows, run.writeRows} {
		if err := step(ctx); err != nil {
			return done, err
		}
	}
	return run.finish(ctx)
}

// refuse adds errors of a row. The error that it returns ends the import: there are too many.
func (run *importRun[V, B]) refuse(i int, errs []problem.Field) error {
	row := &run.rows[i]
	row.failed, row.after = true, nil
	for _, f := range run.req.sheet.AtLine(row.Row, errs) {
		body.AddOnce(&run.errors, f)
	}
	return run.checkCount()
}

func (run *importRun[V, B]) checkCount() error {
	switch {
	case run.req.Partial && len(run.errors) >= maxPartialErrors:
		p := problem.From(run.errors.Err())
		p.Detail = fmt.Sprintf("The body has %d errors or more, so nothing was imported. The first one: %s %s.",
			maxPartialErrors, strings.TrimPrefix(p.Fields[0].Pointer, "/"), p.Fields[0].Message)
		return p
	case !run.req.Partial && len(run.errors) >= maxImportErrors:
		return run.errors.Err()
	default:
		return nil
	}
}

// holdItems locks the items that rows edit, and reads them as responses show them.
func (run *importRun[V, B]) holdItems(ctx context.Context) error {
	at := map[int64]int{}
	for i, row := range run.rows {
		if row.ID != 0 && !row.BadID {
			at[row.ID] = i
		}
	}
	if len(at) == 0 {
		return nil
	}
	if !run.has(Editing) {
		return problem.New(problem.BadRequest, "Rows cannot edit %s, so they cannot have an id.", noun.Plural(run.Noun))
	}
	visible, err := run.readItems(ctx, at)
	if err != nil {
		return err
	}
	ids := make(IDs, len(visible))
	for i := range visible {
		ids[i] = idOf(&visible[i])
	}
	if run.Allow != nil && len(ids) > 0 {
		if err := run.Allow(ctx, run.tx, ids, nil); err != nil {
			return err
		}
	}
	if err := run.Lock(ctx, run.tx, Creating|Editing); err != nil {
		return err
	}
	if err := run.table.Lock(ctx, run.tx, ids.sorted()...); err != nil {
		return err
	}
	if visible, err = run.readItems(ctx, at); err != nil {
		return err
	}
	for i := range visible {
		run.rows[at[idOf(&visible[i])]].shown = &visible[i]
	}
	for i, row := range run.rows {
		if row.ID != 0 && !row.BadID && row.shown == nil {
			missing := problem.Field{Pointer: "/id", Code: "not_found", Message: "does not exist"}
			if err := run.refuse(i, []problem.Field{missing}); err != nil {
				return err
			}
		}
	}
	return nil
}

// readItems returns those of the items that the caller may see.
func (run *importRun[V, B]) readItems(ctx context.Context, at map[int64]int) ([]V, error) {
	ids := make([]int64, 0, len(at))
	for id := range at {
		ids = append(ids, id)
	}
	return run.view.GetMany(ctx, run.tx, ids, run.visibleTo(ctx, run.req.Parent)...)
}

// buildRows makes the values that the rows create or change, and reports all invalid cells.
func (run *importRun[V, B]) buildRows(ctx context.Context) error {
	for i := range run.rows {
		row := &run.rows[i]
		if row.failed {
			continue
		}
		var err error
		if !row.BadID {
			err = run.build(ctx, row)
		}
		errs, isOfRow := rowErrors(err)
		if err != nil && !isOfRow {
			return atLine(err, row.Line)
		}
		if len(row.Invalid) > 0 {
			row.failed, row.after = true, nil
			for _, f := range row.Invalid {
				body.AddOnce(&run.errors, f)
			}
		}
		errs = append(errs, run.req.refused[i]...)
		if len(errs) > 0 {
			err = run.refuse(i, errs)
		} else {
			err = run.checkCount()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// build makes the value of a row. after stays nil if the item is as the row says.
func (run *importRun[V, B]) build(ctx context.Context, row *importRow[V, B]) (err error) {
	if row.shown == nil {
		run.req.sheet.Decode(row.Row, nil)
		if row.after, err = row.Body.New(); err != nil {
			return err
		}
		run.setParent(row.after, run.req.Parent)
		if run.Allow != nil {
			return run.Allow(ctx, run.tx, nil, row.after)
		}
		return nil
	}
	shown := maskFor(ctx, run.hidden, *row.shown)
	if !run.req.sheet.Decode(row.Row, run.cells.Cells(reflect.ValueOf(shown))) {
		return nil
	}
	if row.before, err = run.table.Load(ctx, run.tx, row.ID); err != nil {
		return err
	}
	if row.after, err = row.MergeFor(0, row.before, shown); err != nil {
		return err
	}
	run.setParent(row.after, run.req.Parent)
	if !row.IsChanged(row.after, row.before) {
		row.after = nil
	}
	return nil
}

// refuseColumns ends the import if a column is wrong, because then every row is.
func (run *importRun[V, B]) refuseColumns(context.Context) error {
	if len(run.req.sheet.Invalid) == 0 {
		return nil
	}
	return run.errors.Err()
}

// lockRows takes the locks of the changes.
func (run *importRun[V, B]) lockRows(ctx context.Context) error {
	var changed []*B
	for i := range run.rows {
		if run.rows[i].after != nil {
			changed = append(changed, run.rows[i].after)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return run.Lock(ctx, run.tx, Creating|Editing, changed...)
}

// writeRows creates and edits the items. The first attempt has no savepoints, because they are only needed if a row fails.
func (run *importRun[V, B]) writeRows(ctx context.Context) error {
	if run.insertTogether(ctx) {
		return nil
	}
	for i := range run.rows {
		row := &run.rows[i]
		if row.after == nil {
			continue
		}
		var err error
		if run.req.isCareful {
			err = run.tx.Savepoint(ctx, func() error { return run.write(ctx, row) })
		} else {
			err = run.write(ctx, row)
		}
		if err == nil {
			run.written.Add(row.Line, row.after)
			continue
		}
		if prepare, ok := errors.AsType[pg.RestartAfter](err); ok {
			run.pending, row.after = append(run.pending, pendingRow{i, prepare}), nil
			if len(run.pending) == maxPending {
				break
			}
			continue
		}
		if len(run.pending) > 0 { // the error may follow from the row that could not be written
			break
		}
		errs, isOfRow := rowErrors(err)
		if !isOfRow {
			return atLine(err, row.Line)
		}
		if !run.req.isCareful {
			run.req.isCareful = true
			return pg.RestartAfter(func(context.Context) error { return nil })
		}
		if err := run.refuse(i, run.nameOtherLine(err, errs, i)); err != nil {
			return err
		}
	}
	if len(run.pending) > 0 {
		return pg.RestartAfter(run.preparePending)
	}
	return nil
}

// preparePending makes the preparations of pending rows, and keeps the errors of their rows for the next attempt.
func (run *importRun[V, B]) preparePending(ctx context.Context) error {
	for _, p := range run.pending {
		err := p.prepare(ctx)
		errs, isOfRow := rowErrors(err)
		if err != nil && !isOfRow {
			return err
		}
		if err != nil {
			run.req.refused[p.number] = errs
		}
	}
	return nil
}

// write writes the item of a row. It sets the id of a new one.
func (run *importRun[V, B]) write(ctx context.Context, row *importRow[V, B]) (err error) {
	if row.shown == nil {
		if row.item, err = run.insert(ctx, run.tx, row.after); err != nil {
			return row.MapError(err)
		}
		return nil
	}
	if err := run.Check(ctx, run.tx, row.item, row.before, row.after); err != nil {
		return row.MapError(err)
	}
	update := run.table.Update
	if run.Update != nil {
		update = run.Update
	}
	if err := update(ctx, run.tx, row.item, row.after); err != nil {
		return row.MapError(fmt.Errorf("edit %s %d: %w", run.Noun, row.item, err))
	}
	return nil
}

// nameOtherLine makes the errors of row i name the lines of new items that it is in conflict with. These have no id that the
// caller knows.
func (run *importRun[V, B]) nameOtherLine(err error, errs []problem.Field, i int) []problem.Field {
	errs = slices.Clone(errs)
	for n := range errs {
		if existing := errs[n].Existing; existing != nil {
			at := slices.IndexFunc(run.rows[:i], func(row importRow[V, B]) bool { return row.shown == nil && row.item == existing.ID })
			if at >= 0 {
				errs[n].Existing, errs[n].Message = nil, fmt.Sprintf("is in conflict with line %d", run.rows[at].Line)
			}
		} else if line := run.written.Find(err, run.rows[i].after); line > 0 {
			errs[n].Message += fmt.Sprintf(" by line %d", line)
		}
	}
	return errs
}

// finish records the changes, and returns the report.
func (run *importRun[V, B]) finish(ctx context.Context) (done Import, err error) {
	if len(run.errors) > 0 && !run.req.Partial {
		return done, run.errors.Err()
	}
	var ids IDs
	for i := range run.rows {
		switch row := &run.rows[i]; {
		case row.failed:
			done.Refused++
		case row.after == nil:
			done.Unchanged++
		case row.shown == nil:
			done.Count++
			ids = append(ids, row.item)
		default:
			done.Updated++
			ids = append(ids, row.item)
		}
	}
	if done.Errors = []problem.Field{}; len(run.errors) > 0 {
		done.Errors = problem.From(run.errors.Err()).Fields
	}
	if len(ids) == 0 {
		run.tx.Unrecorded("no row changed an item")
		return done, nil
	}
	after, err := run.readAfter(ctx, run.tx, ids)
	if err != nil {
		return done, err
	}
	for i := range run.rows {
		row := &run.rows[i]
		if row.after == nil {
			continue
		}
		run.recordRow(row, &after[0])
		if after = after[1:]; row.shown == nil && !run.tx.IsDryRun() {
			if done.Last = row.item; done.First == 0 {
				done.First = row.item
			}
		}
	}
	return done, nil
}

func (run *importRun[V, B]) recordRow(row *importRow[V, B], after *V) {
	if row.shown == nil {
		run.record(run.tx, pg.Created, after, nil, secret.Marked(*after, body.NewSecrets(row.after)...))
		return
	}
	was, is := row.ChangedSecrets(row.after, row.before)
	run.record(run.tx, pg.Edited, after, secret.Marked(*row.shown, was...), secret.Marked(*after, is...))
}
