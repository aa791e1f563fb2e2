package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// SuperLink says that a client lets another client read its account and all accounts that it reads.
type SuperLink struct {
	rest.Versioned
	ID      int64    `json:"id" db:"id" doc:"The link's id."`
	Client  int64    `json:"-" db:"client_id"`
	Name    string   `json:"-" db:"name"`
	Grantee rest.Ref `json:"grantee" db:"grantee_" doc:"The client that may read the account."`
}

// GranterLink is a super link, as the grantee sees it.
type GranterLink struct {
	rest.Versioned
	ID      int64    `json:"id" db:"id" doc:"The link's id."`
	Client  int64    `json:"-" db:"grantee_id"`
	Name    string   `json:"-" db:"name"`
	Granter rest.Ref `json:"granter" db:"granter_" doc:"The client whose account can be read."`
}

type granteePath struct {
	Client int64 `path:"client_id" db:"grantee_id"`
}

var superLinks = pg.NewView[SuperLink]("super_link_view")

func (s *Service) superLinkRoutes() []rest.Route {
	const path = "/client/{client_id}/super"
	created := rest.Mutation[createLink, SuperLink]{
		Method:  http.MethodPost,
		Path:    path,
		Guard:   guard.ForCredentials(holdersAndClients),
		Name:    "createSuperLink",
		Summary: "Let an account read a client and its sub clients",
		Doc: "If the link exists, it is returned. A client can link accounts that it has a sub link to; see `POST /client`. " +
			"An integration can link its own clients.",
		Effect: rest.Effect{
			Logs:     rest.LogsItem,
			Retry:    rest.RetrySafe,
			ViewPath: path + "/{super_id}",
		},
		Example: `{"client_id": 1}`,
		Do:      s.createSuperLink,
	}
	return append(append(rest.Resource[SuperLink, clientPath]{
		Path: path, ID: "super_id", Noun: "super link", Guard: holdersAndClients, Table: "super_link", View: "super_link_view",
		Without: rest.Creating | rest.Editing, Parent: checkLinkAccess,
		Related: func(l *SuperLink) []pg.Target { return []pg.Target{clientTarget(l.Grantee.ID, l.Name)} },
	}.Routes(), created), rest.Resource[GranterLink, granteePath]{
		Path:       "/client/{client_id}/granter",
		ID:         "super_id",
		Noun:       "granter link",
		Guard:      holdersAndClients,
		Table:      "super_link",
		View:       "super_link_view",
		Without:    rest.Creating | rest.Editing,
		Extensions: rest.Listing | rest.Viewing | rest.Deleting,
		Parent:     checkLinkAccess,
		Related:    func(l *GranterLink) []pg.Target { return []pg.Target{clientTarget(l.Granter.ID, l.Granter.Name)} },
	}.Routes()...)
}

func (s *Service) createSuperLink(ctx context.Context, tx *pg.Tx, req createLink) (created SuperLink, err error) {
	grantee, err := req.findTarget(ctx, tx)
	if err != nil {
		return created, err
	}
	var id int64
	err = tx.QueryRow(ctx, `
		INSERT INTO super_link AS l (client_id, grantee_id, given, name)
		SELECT $1, $2, $3, (SELECT first || ' ' || last FROM sub_link WHERE client_id = $1 AND child_id = $2 AND kind = 'named' AND NOT $3)
		ON CONFLICT DO NOTHING RETURNING id`, req.Client, grantee, callingClient(ctx) == 0).Scan(&id)
	exists := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !exists {
		return created, fmt.Errorf("link client %d: %w", grantee, err)
	}
	if created, err = superLinks.Find(ctx, tx, "client_id = $1 AND grantee_id = $2", req.Client, grantee); err != nil || exists {
		tx.Unrecorded("the link exists")
		return created, err
	}
	if err := s.notifyLinked(ctx, tx, grantee, req.Client, "super"); err != nil {
		return created, err
	}
	if err := s.notifyChanged(ctx, tx, req.Client, created.Name+" may read the account and its sub clients."); err != nil {
		return created, err
	}
	tx.Record(pg.Record{Kind: "client.super", Action: pg.Created, After: created, Targets: []pg.Target{
		{
			Type:    fmt.Sprintf("client/%d/super", req.Client),
			Noun:    "super link",
			ID:      id,
			Name:    created.Name,
			Version: created.Version,
		},
		clientTarget(grantee, created.Name),
	}})
	return created, nil
}
