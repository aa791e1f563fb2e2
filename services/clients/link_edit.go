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
	return linkEdit[SubLink]{
		path:    "/client/{client_id}/sub/{sub_id}",
		kind:    "sub",
		name:    "updateSubLink",
		example: `{"first": "Benedict"}`,
		end:     "SELECT child_id FROM sub_link WHERE client_id = $1 AND id = $2",
		links:   subLinks,
	}.route(s, accounts)
}

func (s *Service) superLinkEditRoute(accounts *clientCollection) rest.Route {
	return linkEdit[SuperLink]{
		path:    "/client/{client_id}/super/{super_id}",
		kind:    "super",
		name:    "updateSuperLink",
		example: `{"last": "Smith"}`,
		end:     "SELECT grantee_id FROM super_link WHERE client_id = $1 AND id = $2",
		links:   superLinks,
	}.route(s, accounts)
}

// linkEdit is the operation that edits the client at the end of a kind of link.
type linkEdit[L any] struct {
	path, kind, name string
	example          string
	end              string // SQL that selects the id of the client
	links            *pg.View[L]
}

func (l linkEdit[L]) route(s *Service, accounts *clientCollection) rest.Route {
	return rest.Mutation[linkedEdit, L]{
		Method:  http.MethodPatch,
		Path:    l.path,
		Guard:   holdersAndClients,
		Name:    l.name,
		Summary: "Edit the client at the end of a " + l.kind + " link",
		Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: l.path},
		Example: l.example,
		Prepare: s.prepareLinked,
		Do: func(ctx context.Context, tx *pg.Tx, req linkedEdit) (link L, err error) {
			if err := req.edit(ctx, tx, accounts, l.end); err != nil {
				return link, err
			}
			return l.links.Get(ctx, tx, req.Link)
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
