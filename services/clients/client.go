package clients

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Client is somebody who rents servers.
type Client struct {
	rest.Versioned
	ID          int64          `json:"id" db:"id"`
	Name        string         `json:"name" db:"name" doc:"first and last"`
	Email       string         `json:"email" db:"email"`
	First       string         `json:"first" db:"first"`
	Last        string         `json:"last" db:"last"`
	CreatedAt   rest.Timestamp `json:"created_at" db:"created_at"`
	BillingID   *int64         `json:"billing_id,omitempty" db:"billing_id" doc:"as in billing"`
	Billing     Billing        `json:"billing" db:"of_billing_"`
	Integration *rest.Ref      `json:"integration,omitempty" db:"integration_" doc:"whose client it is"`
	Servers     int64          `json:"serversCount" db:"servers_count" recorded:"false" doc:"how many servers its IP entities are of; right within a second"`
	Disabled    bool           `json:"disabled" db:"disabled" ext:"true" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`

	ClaimedAt *rest.Timestamp `json:"claimed_at,omitempty" db:"claimed_at" ext:"true" doc:"since when who created the account writes its address no more"`
}

// Billing is what a billing system knows of a client.
type Billing struct {
	ID                *int64 `json:"id,omitempty" db:"id" doc:"in the integration that the client belongs to"`
	IgnoreAutoSuspend bool   `json:"ignoreAutoSuspend" db:"ignore_auto_suspend" doc:"whether the client's servers are never suspended automatically"`
}

// ViewedClient is a client with what a list leaves out.
type ViewedClient struct {
	Client
	Verify []Verify `json:"verify" db:"verify" doc:"one item"`
}

// Verify says whether a login takes a second factor.
type Verify struct {
	Require bool `json:"require" db:"require_verify" example:"false"`
}

type clientBody struct {
	Email    string        `json:"email" db:"email" required:"create" format:"email" example:"ben@example.com" doc:"no other client has it, in either case"`
	First    string        `json:"first" db:"first" required:"create" example:"Ben"`
	Last     string        `json:"last" db:"last" required:"create" example:"Miller"`
	Password secret.String `json:"password" max:"1024" example:"a long walk in the rain" doc:"hard to guess, and at least as long as the setting security.password_length says (12 characters); empty: no login by password, and on edit: unchanged"`
	Current  secret.String `json:"current_password" max:"1024" ext:"true" kept:"false" example:"a long walk in the rain" doc:"on edit of a client's own email or password, by a key or a session that began more than ten minutes ago"`
	Billing  struct {
		ID                *int64      `json:"id" db:"billing_id" also:"billing_id" min:"1" doc:"no other client of the integration has it"`
		IgnoreAutoSuspend bool        `json:"ignoreAutoSuspend" db:"ignore_auto_suspend" example:"false"`
		Integration       *rest.RefID `json:"integration" db:"integration_id" also:"integration,integration_id" doc:"whose client it is; of what an integration makes, that one"`
	} `json:"billing"`
	Verify   Verify `json:"verify" ext:"true"`
	Disabled bool   `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`

	Hash      *string         `db:"password_hash"`
	Claimed   *rest.Timestamp `db:"claimed_at"`
	least     int             // characters of Password
	ignored   bool            // Password, which the caller may not set
	hash      *string         // of Password, once it is prepared
	confirmed *string         // the hash of the calling client's password, where it is Current
	fresh     bool            // the calling client has just signed in
	sent      []string
	verified  bool // the calling key has confirmed a second factor of late
}

// Sent is told which members are there.
func (b *clientBody) Sent(names []string) { b.sent = names }

// Resolve checks what the tags cannot say.
func (b *clientBody) Resolve(invalid *problem.Fields) {
	if b.Email != "" {
		account.CheckEmail(b.Email, invalid)
	}
	if !b.Password.IsZero() && !b.ignored {
		account.CheckPassword(b.Password, b.least, invalid)
		account.CheckStrength(b.Password, []string{b.First, b.Last, b.Email}, invalid)
	}
}

func (s *Service) clients() []rest.Route {
	accounts := rest.Resource[ViewedClient, clientBody]{
		Path:    "/client",
		ID:      "client_id",
		Noun:    "client",
		Again:   rest.AgainRefused,
		Edited:  `{"first": "Benjamin", "billing": {"id": 7}}`,
		Guard:   orClient,
		Table:   "client",
		View:    "client_view",
		Without: rest.Listing | rest.Viewing,
		Scope:   reached,
		Prepare: s.prepare,
		Allow:   mayWrite,
		Check:   s.checkClient,
		Insert:  s.insertClient,
		Update:  updateClient,
		Close:   s.closeClients,
		Delete:  s.deleteClient,
	}.Collection()
	routes := append(accounts.Routes(), s.subLinkEdit(accounts), s.superLinkEdit(accounts))
	return append(routes, rest.List[rest.None, Client]{
		Path:    "/client",
		Guard:   orClient,
		Name:    "listClients",
		Summary: "List clients",
		Doc:     "A client sees its sub clients here, and theirs.",
		View:    "client_seen",
		Where: func(ctx context.Context, _ rest.None) ([]pg.Condition, error) {
			return []pg.Condition{seen(ctx), {SQL: "listed"}}, nil
		},
		By: rest.By{
			Search: searchClients,
			Sorts:  map[string]string{"name": "name", "email": "email", "created_at": "created_at"},
			Filters: map[string]string{
				"email":          "lower(email)",
				"billing_id":     "billing_id",
				"integration_id": "integration_id",
				"disabled":       "disabled",
				"name":           "name",
			},
			Me:     "integration_id",
			Narrow: narrow,
		},
	}, rest.Read[rest.Item, ViewedClient]{
		Path: "/client/{client_id}", Guard: orClient, Name: "getClient", Summary: "View a client",
		Do: func(ctx context.Context, req rest.Item) (ViewedClient, error) {
			return clientsSeen.Get(ctx, s.db, req.ID, seen(ctx))
		},
	})
}

// searchClients finds for who holds users.clients what is asked for in a view whose indexes give the order.
func searchClients(ctx context.Context, asked url.Values) []pg.Source {
	found := rest.SearchIn("search")(ctx, asked)
	if callingClient(ctx) != 0 {
		return found
	}
	if found == nil {
		found = []pg.Source{{}}
	}
	found[0].View = "client_listed"
	return found
}

var clientTable = table.New[clientBody]("client", "client_view", nil)

var clientsSeen = pg.NewView[ViewedClient]("client_seen")

// narrow keeps an integration to its own clients where it asks for a billing id: another one's is another customer.
func narrow(ctx context.Context, asked url.Values) ([]pg.Condition, error) {
	id, is := callingIntegration(ctx)
	if asked.Get("integration_id") == "me" && !is {
		return nil, problem.New(problem.BadRequest, "The query is wrong: integration_id can be me for integrations alone.")
	}
	if is && (asked.Has("billing_id") || asked.Get("integration_id") == "me") {
		return []pg.Condition{{SQL: "integration_id = $1", Args: []any{id}}}, nil
	}
	return nil, nil
}

// callingIntegration is the caller, if it is an integration.
func callingIntegration(ctx context.Context) (int64, bool) {
	caller := principal.From(ctx).Principal.Owner
	return caller.ID, caller.Type == principal.Integration
}

// prepare counts what a client may do so often, and hashes a password that is good enough and that the caller may set:
// hashing takes much, and few at a time.
func (s *Service) prepare(ctx context.Context, verb rest.Verbs, b *clientBody) error {
	if err := s.countAddress(ctx, verb, b.Email); err != nil {
		return err
	}
	if verb == rest.Editing && callingClient(ctx) != 0 {
		b.fresh = time.Since(principal.From(ctx).Principal.SignedIn) < credentials.FreshTime
		if !b.fresh && !b.Current.IsZero() {
			if err := s.confirm(ctx, b); err != nil {
				return err
			}
		}
	}
	if verb == rest.Editing && callingClient(ctx) != 0 && slices.Contains(b.sent, "verify") && !b.Verify.Require {
		if err := s.askConfirmed(ctx, b); err != nil {
			return err
		}
	}
	b.least = settings.PasswordLength.In(s.settings.Values())
	var invalid problem.Fields
	b.ignored = b.confirmed == nil && !b.fresh && !principal.From(ctx).Principal.May(permission.UsersClients, permission.Write)
	if b.Password.IsZero() || b.ignored {
		return nil
	}
	if b.Resolve(&invalid); len(invalid) > 0 { // which is said later
		return nil
	}
	hash, err := s.hasher.Hash(ctx, b.Password)
	b.hash = &hash
	return err
}

// checkClient looks whether the caller may write this, and whether all that it names is there and free.
func (s *Service) checkClient(ctx context.Context, tx *pg.Tx, id int64, before, b *clientBody) error {
	if before != nil {
		s.revoke(tx, id)
		if b.Email != before.Email || !b.Password.IsZero() || b.Verify != before.Verify {
			if err := notActing(ctx); err != nil {
				return err
			}
		}
		if me := callingClient(ctx); me != 0 {
			if err := b.mayClient(ctx, tx, me, id, before); err != nil {
				return err
			}
		} else if b.Claimed == nil {
			b.Claimed = &rest.Timestamp{Time: time.Now()}
		}
	} else {
		if there, err := s.knownAddress(ctx, tx, b); err != nil {
			return err
		} else if there != nil {
			return rest.Instead(there)
		}
		before = &clientBody{}
	}
	if integration, is := callingIntegration(ctx); is {
		if err := b.mayIntegration(rest.RefID(integration), id == 0, before); err != nil {
			return err
		}
	}
	if of := b.Billing.Integration; of != nil && !same(of, before.Billing.Integration) {
		if err := s.integrations.Hold(ctx, tx, int64(*of), "/billing/integration"); err != nil {
			return err
		}
	}
	if id != 0 && (b.hash != nil || b.Email != before.Email) {
		if err := changeCredentials(ctx, tx, id, b.Email != before.Email); err != nil {
			return err
		}
	}
	if b.hash != nil {
		b.Hash = b.hash
	}
	if err := b.checkTaken(ctx, tx, id); err != nil || id == 0 {
		return err
	}
	return s.tellEdited(ctx, tx, id, before, b)
}

// againWhereTaken has a change begin again that found something free which somebody else was just faster with: it will find
// who.
func againWhereTaken(err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "23505" {
		return pg.RestartAfter(func(context.Context) error { return nil })
	}
	return err
}

func updateClient(ctx context.Context, tx *pg.Tx, id int64, b *clientBody) error {
	return againWhereTaken(clientTable.Update(ctx, tx, id, b))
}

// mayIntegration refuses what an integration may not write, and makes a client its own that is nobody's and that it gives a
// billing id.
func (b *clientBody) mayIntegration(me rest.RefID, isNew bool, before *clientBody) error {
	was, own := before.Billing.Integration, same(before.Billing.Integration, &me)
	if b.Billing.Integration == nil && (isNew || was == nil && b.Billing.ID != nil) {
		b.Billing.Integration = &me
	}
	billing := !same(b.Billing.ID, before.Billing.ID) || b.Billing.IgnoreAutoSuspend != before.Billing.IgnoreAutoSuspend ||
		!same(b.Billing.Integration, was)
	account := b.Email != before.Email || b.hash != nil || b.Verify != before.Verify || b.Disabled != before.Disabled
	switch {
	case b.Billing.Integration != nil && !same(b.Billing.Integration, &me) && billing, was != nil && !own && billing:
		return problem.New(problem.Forbidden, "An integration writes the billing of its own clients alone.")
	case !isNew && !own && account:
		return problem.New(problem.Forbidden, "An integration writes email, password, verify and disabled of its own clients alone.")
	}
	return nil
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// checkTaken names the client that has what is to be this one's. That nobody takes it in between is the indexes' part.
func (b *clientBody) checkTaken(ctx context.Context, tx *pg.Tx, id int64) error {
	if callingClient(ctx) != 0 && id == 0 { // which is linked to who has the address: knownAddress has looked
		return nil
	}
	var invalid problem.Fields
	for pointer, of := range map[string]struct {
		sql  string
		args []any
	}{
		"/email":      {"lower(email) = lower($2)", []any{id, b.Email}},
		"/billing/id": {"billing_id = $2 AND integration_id IS NOT DISTINCT FROM $3", []any{id, b.Billing.ID, b.Billing.Integration}},
	} {
		var other int64
		var name string
		err := tx.QueryRow(ctx, "SELECT id, name FROM client WHERE id <> $1 AND "+of.sql, of.args...).Scan(&other, &name)
		if err == nil {
			if callingClient(ctx) != 0 {
				invalid.Add(pointer, "taken", "is taken")
			} else {
				invalid.Add(pointer, "taken", "is client %d's (%s)", other, name)
				invalid[len(invalid)-1].Existing = &rest.Ref{ID: other, Name: name}
			}
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for another client's: %w", err)
		}
	}
	return invalid.Err()
}

// closeClients refuses while something is assigned to one of them.
func (s *Service) closeClients(ctx context.Context, tx *pg.Tx, clients []ViewedClient) error {
	if callingClient(ctx) != 0 {
		return problem.New(problem.Forbidden, "A client deletes no accounts.")
	}
	var ids []int64
	for _, c := range clients {
		if id, is := callingIntegration(ctx); is && (c.Integration == nil || c.Integration.ID != id) {
			return problem.New(problem.Forbidden, "An integration deletes its own clients alone.")
		}
		ids = append(ids, c.ID)
	}
	return s.closing.Close(ctx, tx, ids)
}

func (s *Service) deleteClient(ctx context.Context, tx *pg.Tx, c *ViewedClient) error {
	s.revoke(tx, c.ID)
	if err := lockLinks(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM client WHERE id = $1", c.ID)
	return err
}

// clientsOf says how many clients an integration has, which cannot be deleted then.
func clientsOf(ctx context.Context, q pg.Querier, integration int64) (has string, err error) {
	err = q.QueryRow(ctx, `
		SELECT CASE n WHEN 0 THEN '' WHEN 1 THEN 'has 1 client' ELSE 'has ' || n || ' clients' END
		FROM (SELECT count(*) AS n FROM client WHERE integration_id = $1) counted`, integration).Scan(&has)
	return has, err
}

// clearIntegration takes an integration that is gone from the clients that it had, with their billing ids.
func clearIntegration(ctx context.Context, tx *pg.Tx, id int64, name string) error {
	for {
		if detached, err := detachClients(ctx, tx, id, name); err != nil || detached == 0 {
			return err
		}
	}
}

// detachAtOnce is of how many clients an integration is taken in one unit of work: nobody waits long who edits one of them.
const detachAtOnce = 100

// detachClients takes an integration from some of the clients that it has, with their billing ids.
func detachClients(ctx context.Context, tx *pg.Tx, id int64, name string) (detached int64, err error) {
	rows, err := tx.Query(ctx, `
		WITH had AS (SELECT id, billing_id FROM client WHERE integration_id = $1 ORDER BY id LIMIT $2 FOR UPDATE)
		UPDATE client c SET integration_id = NULL, billing_id = NULL, version = version + 1 FROM had WHERE c.id = had.id
		RETURNING c.id, c.name, c.version, had.billing_id`, id, detachAtOnce)
	if err != nil {
		return 0, fmt.Errorf("clear integration %d: %w", id, err)
	}
	var of pg.Target
	var billing *int64
	tag, err := pgx.ForEachRow(rows, []any{&of.ID, &of.Name, &of.Version, &billing}, func() error {
		of.Type, of.Noun = "client", "client"
		before := map[string]any{"integration": rest.Ref{ID: id, Name: name}}
		if billing != nil {
			before["billing_id"] = *billing
		}
		tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Targets: []pg.Target{of}, Before: before, After: struct{}{}})
		return nil
	})
	return tag.RowsAffected(), err
}
