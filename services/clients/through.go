package clients

import (
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// editLinked is the request of an operation that edits the account at the end of a link.
type editLinked struct {
	Client int64 `path:"client_id"`
	Link   int64 `path:"*"`
	Match  rest.IfMatch
	Body   rest.Body[clientBody]
}

// accounts are the clients as a resource.
type accounts = rest.Collection[ViewedClient, clientBody]

func (s *Service) subLinkEdit(of *accounts) rest.Route {
	const path = "/client/{client_id}/sub/{sub_id}"
	return rest.Mutation[editLinked, SubLink]{
		Method:  http.MethodPatch,
		Path:    path,
		Guard:   orClient,
		Name:    "updateSubLink",
		Summary: "Edit the client at the end of a sub link",
		Effect:  rest.Effect{Logs: rest.LogsItem, Again: rest.AgainSame, Shows: path},
		Example: `{"first": "Benedict"}`,
		Prepare: s.prepareLinked,
		Do: func(ctx context.Context, tx *pg.Tx, req editLinked) (SubLink, error) {
			if err := req.edit(ctx, tx, of, "SELECT child_id FROM sub_link WHERE client_id = $1 AND id = $2"); err != nil {
				return SubLink{}, err
			}
			return subLinks.Get(ctx, tx, req.Link)
		},
	}
}

func (s *Service) superLinkEdit(of *accounts) rest.Route {
	const path = "/client/{client_id}/super/{super_id}"
	return rest.Mutation[editLinked, SuperLink]{
		Method:  http.MethodPatch,
		Path:    path,
		Guard:   orClient,
		Name:    "updateSuperLink",
		Summary: "Edit the client at the end of a super link",
		Effect:  rest.Effect{Logs: rest.LogsItem, Again: rest.AgainSame, Shows: path},
		Example: `{"last": "Smith"}`,
		Prepare: s.prepareLinked,
		Do: func(ctx context.Context, tx *pg.Tx, req editLinked) (SuperLink, error) {
			if err := req.edit(ctx, tx, of, "SELECT grantee_id FROM super_link WHERE client_id = $1 AND id = $2"); err != nil {
				return SuperLink{}, err
			}
			return superLinks.Get(ctx, tx, req.Link)
		},
	}
}

func (s *Service) prepareLinked(ctx context.Context, req *editLinked) error {
	return s.prepare(ctx, rest.Editing, req.Body.Sent())
}

// edit edits the account that sql finds at the end of a link that the caller may read.
func (r editLinked) edit(ctx context.Context, tx *pg.Tx, of *accounts, sql string) error {
	if err := below(ctx, tx, r.Client, permission.Read); err != nil {
		return err
	}
	var id int64
	if err := tx.QueryRow(ctx, sql, r.Client, r.Link).Scan(&id); err != nil {
		return err
	}
	return of.Edit(ctx, tx, id, r.Match, r.Body)
}
