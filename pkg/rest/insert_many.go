package rest

import "context"

// insertTogether checks the rows and inserts them with InsertMany. It reports false if the resource has no InsertMany, a row edits
// an item, or a row has an error. Then each row has to be written by itself, to find those with errors.
func (run *importRun[V, B]) insertTogether(ctx context.Context) bool {
	var rows []*importRow[V, B]
	var values []*B
	for i := range run.rows {
		row := &run.rows[i]
		if row.after == nil {
			continue
		}
		if run.InsertMany == nil || run.req.isCareful || row.shown != nil {
			return false
		}
		rows, values = append(rows, row), append(values, row.after)
	}
	if len(rows) == 0 {
		return true
	}
	return nil == run.tx.Savepoint(ctx, func() error {
		for _, value := range values {
			if err := run.Check(ctx, run.tx, 0, nil, value); err != nil {
				return err
			}
		}
		ids, err := run.InsertMany(ctx, run.tx, values)
		for i, id := range ids {
			rows[i].item = id
		}
		return err
	})
}
