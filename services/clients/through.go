package clients

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// through is a collection of links, by which the accounts at their ends are edited.
type through = struct {
	Path, Noun, Edited string
	Link               any
	Item               func(ctx context.Context, q pg.Querier, parent, link int64) (id int64, err error)
	Show               func(ctx context.Context, q pg.Querier, parent, link int64) (any, error)
}

var (
	throughSub = through{"/client/{client_id}/sub/{sub_id}", "sub link", `{"first": "Benedict"}`, SubLink{},
		atEnd("SELECT child_id FROM sub_link WHERE client_id = $1 AND id = $2"),
		func(ctx context.Context, q pg.Querier, _, link int64) (any, error) { return subLinks.Get(ctx, q, link) }}
	throughSuper = through{"/client/{client_id}/super/{super_id}", "super link", `{"last": "Smith"}`, SuperLink{},
		atEnd("SELECT grantee_id FROM super_link WHERE client_id = $1 AND id = $2"),
		func(ctx context.Context, q pg.Querier, _, link int64) (any, error) {
			return superLinks.Get(ctx, q, link)
		}}
)

func atEnd(sql string) func(context.Context, pg.Querier, int64, int64) (int64, error) {
	return func(ctx context.Context, q pg.Querier, client, link int64) (id int64, err error) {
		if err := below(ctx, q, client, permission.Read); err != nil {
			return 0, err
		}
		err = q.QueryRow(ctx, sql, client, link).Scan(&id)
		return id, err
	}
}
