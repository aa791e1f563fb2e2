package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// SubLink says that a client may give its servers to another client.
type SubLink struct {
	rest.Versioned
	ID     int64  `json:"id" db:"id" doc:"The link's id."`
	Client int64  `json:"-" db:"client_id"`
	Name   string `json:"-" db:"name"`
	Kind   string `json:"-" db:"kind"`
	Child  Child  `json:"child" db:"child_" doc:"The sub client."`
}

// Child is the account at the end of a sub link. Of an account that the client has only named, it has the name and address that
// the client gave.
type Child struct {
	ID          int64          `json:"id" db:"id"`
	Name        string         `json:"name" db:"name" doc:"The first and last name."`
	Email       string         `json:"email" db:"email"`
	First       string         `json:"first" db:"first"`
	Last        string         `json:"last" db:"last"`
	CreatedAt   rest.Timestamp `json:"created_at" db:"created_at"`
	Integration *rest.Ref      `json:"integration,omitempty" db:"integration_" doc:"The integration that the client belongs to."`
	Servers     int64          `json:"serversCount" db:"servers_count" recorded:"false" doc:"The number of servers of the sub client. It is 0 for an account that the client has only named."`
}

// ParentLink is a sub link, as the sub client sees it.
type ParentLink struct {
	rest.Versioned
	ID     int64    `json:"id" db:"id" doc:"The link's id."`
	Client int64    `json:"-" db:"child_id"`
	Name   string   `json:"-" db:"name"`
	Kind   string   `json:"-" db:"kind"`
	Parent rest.Ref `json:"parent" db:"parent_" doc:"The client above."`
}

type (
	clientPath struct {
		Client int64 `path:"client_id" db:"client_id"`
	}
	childPath struct {
		Client int64 `path:"client_id" db:"child_id"`
	}
	// linkBody is the account that a link is made to.
	linkBody struct {
		Client *int64  `json:"client_id" min:"1" example:"2" doc:"The id of the account to link."`
		Email  *string `json:"client_email" ext:"true" doc:"The email address of the account to link, instead of client_id." example:"ben@example.com"`
	}
	createLink struct {
		Client int64 `path:"*"`
		Body   rest.Body[linkBody]
	}
)

// Resolve checks what the tags cannot express.
func (o *linkBody) Resolve(invalid *problem.Fields) {
	if o.Client == nil && o.Email == nil {
		invalid.Add("/client_id", "required", "is required if client_email is missing")
	} else if o.Client != nil && o.Email != nil {
		invalid.Add("/client_email", "conflict", "cannot be combined with client_id")
	}
}

var subLinks = pg.NewView[SubLink]("sub_link_view")

func (s *Service) subLinkRoutes() []rest.Route {
	const path = "/client/{client_id}/sub"
	created := rest.Mutation[createLink, SubLink]{
		Method:  http.MethodPost,
		Path:    path,
		Guard:   holdersAndClients,
		Name:    "createSubLink",
		Summary: "Make an account a sub client of a client",
		Doc: "If the link exists, it is returned. A client can link accounts that it has a sub link to; see `POST /client`. " +
			"An integration can link its own clients.",
		Effect: rest.Effect{
			Logs:     rest.LogsItem,
			Retry:    rest.RetrySafe,
			ViewPath: path + "/{sub_id}",
		},
		Example: `{"client_id": 1}`,
		Do:      s.createSubLink,
	}
	return append(append(rest.Resource[SubLink, clientPath]{
		Path: path, ID: "sub_id", Noun: "sub link", Guard: holdersAndClients, Table: "sub_link", View: "sub_link_view",
		Without: rest.Creating | rest.Editing, Extensions: rest.Deleting, Parent: checkLinkAccess, Lock: lockForLink[clientPath],
		Delete: func(ctx context.Context, tx *pg.Tx, l *SubLink) error {
			return s.deleteSubLink(ctx, tx, l.ID, l.Kind, l.Child.ID)
		},
		Related: func(l *SubLink) []pg.Target { return []pg.Target{clientTarget(l.Child.ID, l.Name)} },
	}.Routes(), created), rest.Resource[ParentLink, childPath]{
		Path:       "/client/{client_id}/parent",
		ID:         "sub_id",
		Noun:       "parent link",
		Guard:      holdersAndClients,
		Table:      "sub_link",
		View:       "sub_link_view",
		Without:    rest.Creating | rest.Editing,
		Extensions: rest.Listing | rest.Viewing | rest.Deleting,
		Parent:     checkLinkAccess,
		Lock:       lockForLink[childPath],
		Delete: func(ctx context.Context, tx *pg.Tx, l *ParentLink) error {
			return s.deleteSubLink(ctx, tx, l.ID, l.Kind, l.Client)
		},
		Related: func(l *ParentLink) []pg.Target { return []pg.Target{clientTarget(l.Parent.ID, l.Parent.Name)} },
	}.Routes()...)
}

// clientTarget returns a client as a target of a link's record.
func clientTarget(id int64, name string) pg.Target {
	return pg.Target{Type: "client", Noun: "client", ID: id, Name: name}
}

// deleteSubLink deletes a link. What its end means for the accounts below it, endReach does.
func (s *Service) deleteSubLink(ctx context.Context, tx *pg.Tx, id int64, kind string, child int64) error {
	remove := func() error {
		_, err := tx.Exec(ctx, "DELETE FROM sub_link WHERE id = $1", id)
		return err
	}
	if kind == "named" {
		return remove()
	}
	return s.endReach(ctx, tx, child, remove)
}

func lockForLink[B any](ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*B) error {
	return lockLinks(ctx, tx)
}

// lockLinks makes units of work that change sub links wait for one another. So what each of them has read is still true when it
// commits.
func lockLinks(ctx context.Context, tx *pg.Tx) error { return tx.Lock(ctx, "sub links", 0) }

func (s *Service) createSubLink(ctx context.Context, tx *pg.Tx, req createLink) (SubLink, error) {
	child, err := req.findTarget(ctx, tx)
	if err != nil {
		return SubLink{}, err
	}
	return s.link(ctx, tx, req.Client, linkTarget{ID: child, kind: "given"})
}

// findTarget returns the account to link. Both accounts stay until the unit of work ends.
func (r createLink) findTarget(ctx context.Context, tx *pg.Tx) (id int64, err error) {
	if err := checkLinkAccess(ctx, tx, r.Client, permission.Write); err != nil {
		return 0, err
	}
	target, err := r.Body.New()
	if err != nil {
		return 0, err
	}
	pointer := "/client_id"
	if target.Email != nil {
		pointer = "/client_email"
	}
	caller := callingClient(ctx)
	err = tx.QueryRow(ctx, `
		SELECT child_id FROM sub_link_view WHERE client_id = $1 AND (child_id = $2 OR lower(child_email) = lower($3))
		UNION ALL SELECT id FROM client WHERE $1 = 0 AND (id = $2 OR lower(email) = lower($3)) LIMIT 1`, caller, target.Client, target.Email).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		if caller != 0 {
			return 0, problem.Member(pointer, "not_found", "is not an account that the client has a sub link to")
		}
		return 0, problem.Member(pointer, "not_found", "does not exist")
	}
	if err != nil {
		return 0, fmt.Errorf("find the account to link: %w", err)
	}
	if id == r.Client {
		return 0, problem.Member(pointer, "invalid", "is the client itself")
	}
	if err := lockClients(ctx, tx, r.Client, id); err != nil {
		return 0, err
	}
	return id, checkIntegrationOwns(ctx, tx, id)
}

// lockClients keeps the clients from being deleted until the unit of work ends. The error is pgx.ErrNoRows if one is missing.
func lockClients(ctx context.Context, tx *pg.Tx, ids ...int64) error {
	tag, err := tx.Exec(ctx, "SELECT FROM client WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE", ids)
	if err == nil && tag.RowsAffected() < int64(len(ids)) {
		err = pgx.ErrNoRows
	}
	return err
}

// linkTarget is the account that a link is made to. For an account that the client only names, it has the name and address that
// the link shows.
type linkTarget struct {
	ID                 int64
	kind               string
	Email, First, Last *string
}

// maxReachedPairs bounds the pairs of clients that can read one another because of one new link. It keeps the lock on links short:
// a second or two.
const maxReachedPairs = 200_000

// link creates a sub link, or returns the existing one. The caller has locked both clients.
func (s *Service) link(ctx context.Context, tx *pg.Tx, client int64, target linkTarget) (created SubLink, err error) {
	if err := lockLinks(ctx, tx); err != nil {
		return created, err
	}
	created, err = subLinks.Find(ctx, tx, "client_id = $1 AND child_id = $2", client, target.ID)
	if !errors.Is(err, pgx.ErrNoRows) {
		tx.Unrecorded("the link exists")
		return created, err
	}
	var cycle bool
	var above, below int64
	err = tx.QueryRow(ctx, `
		WITH RECURSIVE above AS (SELECT $1::bigint AS id UNION SELECT l.client_id FROM sub_link l JOIN above a ON l.child_id = a.id)
		SELECT EXISTS (SELECT FROM above WHERE id = $2), 1 + (SELECT count(*) FROM client_reach WHERE descendant = $1),
			1 + (SELECT count(*) FROM client_reach WHERE ancestor = $2)`, client, target.ID).Scan(&cycle, &above, &below)
	switch {
	case err != nil:
		return created, fmt.Errorf("check for a cycle: %w", err)
	case cycle:
		return created, problem.Member("/client_id", "cycle", "is above client %d, so the link would close a cycle", client)
	case target.kind != "named" && above*below > maxReachedPairs:
		return created, problem.Member(
			"/client_id",
			"too_many",
			"has %d sub clients, which client %d and the %d clients above it could then read: %d pairs, more than the limit of %d",
			below-1,
			client,
			above-1,
			above*below,
			maxReachedPairs,
		)
	}
	var id int64
	err = tx.QueryRow(ctx, "INSERT INTO sub_link (client_id, child_id, kind, email, first, last) VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
		client, target.ID, target.kind, target.Email, target.First, target.Last).
		Scan(&id)
	if err != nil {
		return created, fmt.Errorf("link client %d: %w", target.ID, err)
	}
	if created, err = subLinks.Get(ctx, tx, id); err != nil {
		return created, fmt.Errorf("read the link: %w", err)
	}
	if target.kind != "named" { // the client may be suspended from now on
		if _, err := s.revokeAll(ctx, tx, target.ID); err != nil {
			return created, err
		}
	}
	if target.kind != "created" {
		if err := s.notifyLinked(ctx, tx, target.ID, client, "sub"); err != nil {
			return created, err
		}
	}
	tx.Record(pg.Record{Kind: "client.sub", Action: pg.Created, After: created, Targets: []pg.Target{
		{
			Type:    fmt.Sprintf("client/%d/sub", client),
			Noun:    "sub link",
			ID:      id,
			Name:    created.Name,
			Version: created.Version,
		},
		clientTarget(target.ID, created.Name),
	}})
	return created, nil
}
