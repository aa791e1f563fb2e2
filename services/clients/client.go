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
	Email           string        `json:"email" db:"email" required:"create" format:"email" example:"ben@example.com" doc:"no other client has it, in either case"`
	First           string        `json:"first" db:"first" required:"create" example:"Ben"`
	Last            string        `json:"last" db:"last" required:"create" example:"Miller"`
	Password        secret.String `json:"password" max:"1024" example:"a long walk in the rain" doc:"hard to guess, and at least as long as the setting security.password_length says (12 characters); empty: no login by password, and on edit: unchanged"`
	CurrentPassword secret.String `json:"current_password" max:"1024" ext:"true" kept:"false" example:"a long walk in the rain" doc:"on edit of a client's own email or password, by a key or a session that began more than ten minutes ago"`
	Billing         struct {
		ID                *int64      `json:"id" db:"billing_id" also:"billing_id" min:"1" doc:"no other client of the integration has it"`
		IgnoreAutoSuspend bool        `json:"ignoreAutoSuspend" db:"ignore_auto_suspend" example:"false"`
		Integration       *rest.RefID `json:"integration" db:"integration_id" also:"integration,integration_id" doc:"whose client it is; of what an integration makes, that one"`
	} `json:"billing"`
	Verify   Verify `json:"verify" ext:"true"`
	Disabled bool   `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"whether all keys are refused, as if they were revoked, until it is taken back"`

	PasswordHash          *string         `db:"password_hash"`
	ClaimedAt             *rest.Timestamp `db:"claimed_at"`
	minPasswordLength     int             // characters of Password
	passwordIgnored       bool            // Password, which the caller may not set
	newHash               *string         // of Password, once it is prepared
	confirmedHash         *string         // the hash of the calling client's password, where it is Current
	isFresh               bool            // the calling client has just signed in
	sentMembers           []string
	secondFactorConfirmed bool // the calling key has confirmed a second factor of late
}

// Sent is told which members are there.
func (b *clientBody) Sent(names []string) { b.sentMembers = names }

// Resolve checks what the tags cannot say.
func (b *clientBody) Resolve(invalid *problem.Fields) {
	if b.Email != "" {
		account.CheckEmail(b.Email, invalid)
	}
	if !b.Password.IsZero() && !b.passwordIgnored {
		account.CheckPassword(b.Password, b.minPasswordLength, invalid)
		account.CheckStrength(b.Password, []string{b.First, b.Last, b.Email}, invalid)
	}
}

func (s *Service) clientRoutes() []rest.Route {
	accounts := rest.Resource[ViewedClient, clientBody]{
		Path:    "/client",
		ID:      "client_id",
		Noun:    "client",
		Again:   rest.AgainRefused,
		Edited:  `{"first": "Benjamin", "billing": {"id": 7}}`,
		Guard:   holdersAndClients,
		Table:   "client",
		View:    "client_view",
		Without: rest.Listing | rest.Viewing,
		Scope:   whereReadable,
		Prepare: s.prepareClient,
		Allow:   checkReadable,
		Check:   s.checkClient,
		Insert:  s.insertClient,
		Update:  updateClient,
		Close:   s.acquireLeases,
		Delete:  s.deleteClient,
	}.Collection()
	routes := append(accounts.Routes(), s.subLinkEditRoute(accounts), s.superLinkEditRoute(accounts))
	return append(routes, rest.List[rest.None, Client]{
		Path:    "/client",
		Guard:   holdersAndClients,
		Name:    "listClients",
		Summary: "List clients",
		Doc:     "A client sees its sub clients here, and theirs.",
		View:    "client_seen",
		Where: func(ctx context.Context, _ rest.None) ([]pg.Condition, error) {
			return []pg.Condition{whereVisible(ctx), {SQL: "listed"}}, nil
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
			Narrow: narrowToIntegration,
		},
	}, rest.Read[rest.Item, ViewedClient]{
		Path: "/client/{client_id}", Guard: holdersAndClients, Name: "getClient", Summary: "View a client",
		Do: func(ctx context.Context, req rest.Item) (ViewedClient, error) {
			return visibleClients.Get(ctx, s.db, req.ID, whereVisible(ctx))
		},
	})
}

// searchClients finds for who holds users.clients what is asked for in a view whose indexes give the order.
func searchClients(ctx context.Context, query url.Values) []pg.Source {
	sources := rest.SearchIn("search")(ctx, query)
	if callingClient(ctx) != 0 {
		return sources
	}
	if sources == nil {
		sources = []pg.Source{{}}
	}
	sources[0].View = "client_listed"
	return sources
}

var clientTable = table.New[clientBody]("client", "client_view", nil)

var visibleClients = pg.NewView[ViewedClient]("client_seen")

// narrowToIntegration keeps an integration to its own clients where it asks for a billing id: another one's is another customer.
func narrowToIntegration(ctx context.Context, query url.Values) ([]pg.Condition, error) {
	id, isIntegration := callingIntegration(ctx)
	if query.Get("integration_id") == "me" && !isIntegration {
		return nil, problem.New(problem.BadRequest, "The query is wrong: integration_id can be me for integrations alone.")
	}
	if isIntegration && (query.Has("billing_id") || query.Get("integration_id") == "me") {
		return []pg.Condition{{SQL: "integration_id = $1", Args: []any{id}}}, nil
	}
	return nil, nil
}

// callingIntegration is the caller, if it is an integration.
func callingIntegration(ctx context.Context) (int64, bool) {
	caller := principal.From(ctx).Principal.Owner
	return caller.ID, caller.Type == principal.Integration
}

// prepareClient counts what a client may do so often, and hashes a password that is good enough and that the caller may set:
// hashing takes much, and few at a time.
func (s *Service) prepareClient(ctx context.Context, verb rest.Verbs, b *clientBody) error {
	if err := s.countAddress(ctx, verb, b.Email); err != nil {
		return err
	}
	if verb == rest.Editing && callingClient(ctx) != 0 {
		b.isFresh = time.Since(principal.From(ctx).Principal.SignedIn) < credentials.FreshTime
		if !b.isFresh && !b.CurrentPassword.IsZero() {
			if err := s.confirmPassword(ctx, b); err != nil {
				return err
			}
		}
	}
	if verb == rest.Editing && callingClient(ctx) != 0 && slices.Contains(b.sentMembers, "verify") && !b.Verify.Require {
		if err := s.askSecondFactor(ctx, b); err != nil {
			return err
		}
	}
	b.minPasswordLength = settings.PasswordLength.In(s.settings.Values())
	var invalid problem.Fields
	b.passwordIgnored = b.confirmedHash == nil && !b.isFresh && !principal.From(ctx).Principal.May(permission.UsersClients, permission.Write)
	if b.Password.IsZero() || b.passwordIgnored {
		return nil
	}
	if b.Resolve(&invalid); len(invalid) > 0 { // which is said later
		return nil
	}
	hash, err := s.hasher.Hash(ctx, b.Password)
	b.newHash = &hash
	return err
}

// checkClient looks whether the caller may write this, and whether all that it names is there and free.
func (s *Service) checkClient(ctx context.Context, tx *pg.Tx, id int64, before, b *clientBody) error {
	if before != nil {
		s.revoke(tx, id)
		if b.Email != before.Email || !b.Password.IsZero() || b.Verify != before.Verify {
			if err := refuseActing(ctx); err != nil {
				return err
			}
		}
		if caller := callingClient(ctx); caller != 0 {
			if err := b.checkClientEdit(ctx, tx, caller, id, before); err != nil {
				return err
			}
		} else if b.ClaimedAt == nil {
			b.ClaimedAt = &rest.Timestamp{Time: time.Now()}
		}
	} else {
		if existing, err := s.linkExisting(ctx, tx, b); err != nil {
			return err
		} else if existing != nil {
			return rest.Instead(existing)
		}
		before = &clientBody{}
	}
	if integration, isIntegration := callingIntegration(ctx); isIntegration {
		if err := b.checkIntegrationEdit(rest.RefID(integration), id == 0, before); err != nil {
			return err
		}
	}
	if integration := b.Billing.Integration; integration != nil && !equal(integration, before.Billing.Integration) {
		if err := s.integrations.Hold(ctx, tx, int64(*integration), "/billing/integration"); err != nil {
			return err
		}
	}
	if id != 0 && (b.newHash != nil || b.Email != before.Email) {
		if err := endSessions(ctx, tx, id, b.Email != before.Email); err != nil {
			return err
		}
	}
	if b.newHash != nil {
		b.PasswordHash = b.newHash
	}
	if err := b.checkUnique(ctx, tx, id); err != nil || id == 0 {
		return err
	}
	return s.notifyEdited(ctx, tx, id, before, b)
}

// retryOnConflict has a change begin again that found something free which somebody else was just faster with: it will find
// who.
func retryOnConflict(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23505" {
		return pg.RestartAfter(func(context.Context) error { return nil })
	}
	return err
}

func updateClient(ctx context.Context, tx *pg.Tx, id int64, b *clientBody) error {
	return retryOnConflict(clientTable.Update(ctx, tx, id, b))
}

// checkIntegrationEdit refuses what an integration may not write, and makes a client its own that is nobody's and that it gives a
// billing id.
func (b *clientBody) checkIntegrationEdit(caller rest.RefID, isNew bool, before *clientBody) error {
	current, isOwn := before.Billing.Integration, equal(before.Billing.Integration, &caller)
	if b.Billing.Integration == nil && (isNew || current == nil && b.Billing.ID != nil) {
		b.Billing.Integration = &caller
	}
	billing := !equal(b.Billing.ID, before.Billing.ID) || b.Billing.IgnoreAutoSuspend != before.Billing.IgnoreAutoSuspend ||
		!equal(b.Billing.Integration, current)
	account := b.Email != before.Email || b.newHash != nil || b.Verify != before.Verify || b.Disabled != before.Disabled
	switch {
	case b.Billing.Integration != nil && !equal(b.Billing.Integration, &caller) && billing, current != nil && !isOwn && billing:
		return problem.New(problem.Forbidden, "An integration writes the billing of its own clients alone.")
	case !isNew && !isOwn && account:
		return problem.New(problem.Forbidden, "An integration writes email, password, verify and disabled of its own clients alone.")
	}
	return nil
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// checkUnique names the client that has what is to be this one's. That nobody takes it in between is the indexes' part.
func (b *clientBody) checkUnique(ctx context.Context, tx *pg.Tx, id int64) error {
	if callingClient(ctx) != 0 && id == 0 { // which is linked to who has the address: linkExisting has looked
		return nil
	}
	var invalid problem.Fields
	for pointer, query := range map[string]struct {
		sql  string
		args []any
	}{
		"/email":      {"lower(email) = lower($2)", []any{id, b.Email}},
		"/billing/id": {"billing_id = $2 AND integration_id IS NOT DISTINCT FROM $3", []any{id, b.Billing.ID, b.Billing.Integration}},
	} {
		var other int64
		var name string
		err := tx.QueryRow(ctx, "SELECT id, name FROM client WHERE id <> $1 AND "+query.sql, query.args...).Scan(&other, &name)
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

// acquireLeases refuses while something is assigned to one of them.
func (s *Service) acquireLeases(ctx context.Context, tx *pg.Tx, clients []ViewedClient) error {
	if callingClient(ctx) != 0 {
		return problem.New(problem.Forbidden, "A client deletes no accounts.")
	}
	var ids []int64
	for _, c := range clients {
		if id, isIntegration := callingIntegration(ctx); isIntegration && (c.Integration == nil || c.Integration.ID != id) {
			return problem.New(problem.Forbidden, "An integration deletes its own clients alone.")
		}
		ids = append(ids, c.ID)
	}
	return s.leases.Close(ctx, tx, ids)
}

func (s *Service) deleteClient(ctx context.Context, tx *pg.Tx, c *ViewedClient) error {
	s.revoke(tx, c.ID)
	if err := lockLinks(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM client WHERE id = $1", c.ID)
	return err
}

// describeUse says how many clients an integration has, which cannot be deleted then.
func describeUse(ctx context.Context, q pg.Querier, integration int64) (has string, err error) {
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

// detachBatch is of how many clients an integration is taken in one unit of work: nobody waits long who edits one of them.
const detachBatch = 100

// detachClients takes an integration from some of the clients that it has, with their billing ids.
func detachClients(ctx context.Context, tx *pg.Tx, id int64, name string) (detached int64, err error) {
	rows, err := tx.Query(ctx, `
		WITH had AS (SELECT id, billing_id FROM client WHERE integration_id = $1 ORDER BY id LIMIT $2 FOR UPDATE)
		UPDATE client c SET integration_id = NULL, billing_id = NULL, version = version + 1 FROM had WHERE c.id = had.id
		RETURNING c.id, c.name, c.version, had.billing_id`, id, detachBatch)
	if err != nil {
		return 0, fmt.Errorf("clear integration %d: %w", id, err)
	}
	var target pg.Target
	var billing *int64
	tag, err := pgx.ForEachRow(rows, []any{&target.ID, &target.Name, &target.Version, &billing}, func() error {
		target.Type, target.Noun = "client", "client"
		before := map[string]any{"integration": rest.Ref{ID: id, Name: name}}
		if billing != nil {
			before["billing_id"] = *billing
		}
		tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Targets: []pg.Target{target}, Before: before, After: struct{}{}})
		return nil
	})
	return tag.RowsAffected(), err
}
