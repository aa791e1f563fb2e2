package clients

import (
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// linkedEdit is the request of an operation that edits the account at the end of a link.
type linkedEdit struct {
	Client int64 `path:"client_id"`
	Link   int64 `path:"*"`
	Match  rest.IfMatch
	Body   rest.Body[clientBody]
}

// clientCollection is the clients as a resource.
type clientCollection = rest.Collection[ViewedClient, clientBody]

func (s *Service) subLinkEditRoute(accounts *clientCollection) rest.Route {
	const path = "/client/{client_id}/sub/{sub_id}"
	return rest.Mutation[linkedEdit, SubLink]{
		Method:  http.MethodPatch,
		Path:    path,
		Guard:   holdersAndClients,
		Name:    "updateSubLink",
		Summary: "Edit the client at the end of a sub link",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
		Example: `{"first": "Benedict"}`,
		Prepare: s.prepareLinked,
		Do: func(ctx context.Context, tx *pg.Tx, req linkedEdit) (SubLink, error) {
			if err := req.edit(ctx, tx, accounts, "SELECT child_id FROM sub_link WHERE client_id = $1 AND id = $2"); err != nil {
				return SubLink{}, err
			}
			return subLinks.Get(ctx, tx, req.Link)
		},
	}
}

func (s *Service) superLinkEditRoute(accounts *clientCollection) rest.Route {
	const path = "/client/{client_id}/super/{super_id}"
	return rest.Mutation[linkedEdit, SuperLink]{
		Method:  http.MethodPatch,
		Path:    path,
		Guard:   holdersAndClients,
		Name:    "updateSuperLink",
		Summary: "Edit the client at the end of a super link",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
		Example: `{"last": "Smith"}`,
		Prepare: s.prepareLinked,
		Do: func(ctx context.Context, tx *pg.Tx, req linkedEdit) (SuperLink, error) {
			if err := req.edit(ctx, tx, accounts, "SELECT grantee_id FROM super_link WHERE client_id = $1 AND id = $2"); err != nil {
				return SuperLink{}, err
			}
			return superLinks.Get(ctx, tx, req.Link)
		},
	}
}

func (s *Service) prepareLinked(ctx context.Context, req *linkedEdit) error {
	return s.prepareClient(ctx, rest.Editing, req.Body.Sent())
}

// edit edits the account that sql finds at the end of a link. The caller must be able to read the link.
func (r linkedEdit) edit(ctx context.Context, tx *pg.Tx, accounts *clientCollection, sql string) error {
	if err := checkLinkAccess(ctx, tx, r.Client, permission.Read); err != nil {
		return err
	}
	var id int64
	if err := tx.QueryRow(ctx, sql, r.Client, r.Link).Scan(&id); err != nil {
		return err
	}
	return accounts.Edit(ctx, tx, id, r.Match, r.Body)
}
