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
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// ListedClient is a customer as a list shows it: it rents servers, or resells them.
type ListedClient struct {
	rest.Versioned
	ID          int64          `json:"id" db:"id"`
	Name        string         `json:"name" db:"name" doc:"The first and last name."`
	Email       string         `json:"email" db:"email" doc:"The email address, which no other client has."`
	First       string         `json:"first" db:"first"`
	Last        string         `json:"last" db:"last"`
	CreatedAt   rest.Timestamp `json:"created_at" db:"created_at"`
	BillingID   *int64         `json:"billing_id,omitempty" db:"billing_id" doc:"The same as billing.id."`
	Billing     Billing        `json:"billing" db:"of_billing_" doc:"The client in a billing system."`
	Integration *rest.Ref      `json:"integration,omitempty" db:"integration_" doc:"The integration that the client belongs to."`
	Servers     int64          `json:"serversCount" db:"servers_count" recorded:"false" doc:"The number of servers that the client's IP entities are assigned to. It is up to date within a second."`
	Disabled    bool           `json:"disabled" db:"disabled" ext:"true" doc:"Whether the client itself is suspended, by anyone in suspended_by."`

	SuspendedBy []string `json:"suspended_by" db:"suspended_by" ext:"true" doc:"The kinds of accounts that suspend the client: admin, integration and reseller. Each lifts only its own suspension."`
	Suspended   bool     `json:"suspended" db:"suspended" recorded:"false" ext:"true" doc:"Whether all keys and sessions of the client are refused: it is suspended itself, or a client is that reaches it by sub links."`

	Language *string `json:"language,omitempty" db:"language" ext:"true" doc:"The language of mails to the client, if there are templates in it."`

	ClaimedAt *rest.Timestamp `json:"claimed_at,omitempty" db:"claimed_at" ext:"true" doc:"When the account was claimed. From then on, the client that created it cannot change its email address."`
}

// Billing is the client in a billing system.
type Billing struct {
	ID                *int64 `json:"id,omitempty" db:"id" doc:"The id that the client has in its integration."`
	IgnoreAutoSuspend bool   `json:"ignoreAutoSuspend" db:"ignore_auto_suspend" doc:"Whether the client's servers are never suspended automatically."`
}

// ViewedClient is a client with the members that a list leaves out.
type ViewedClient struct {
	ListedClient
	Verify []Verify `json:"verify" db:"verify" doc:"A list of exactly one item."`
}

// Verify says whether signing in requires a second factor.
type Verify struct {
	Require bool `json:"require" db:"require_verify" example:"false" doc:"Whether signing in requires a second factor."`
}

type clientBody struct {
	Email           string        `json:"email" db:"email" required:"create" format:"email" example:"ben@example.com" doc:"The email address. No other client can have it, whatever the case of its letters."`
	First           string        `json:"first" db:"first" required:"create" example:"Ben"`
	Last            string        `json:"last" db:"last" required:"create" example:"Miller"`
	Password        secret.String `json:"password" max:"1024" example:"a long walk in the rain" doc:"A password that is hard to guess, with at least as many characters as the setting security.password_length (12). Empty: no sign-in by password, or on edit no change."`
	CurrentPassword secret.String `json:"current_password" max:"1024" ext:"true" transient:"true" example:"a long walk in the rain" doc:"The client's current password. A client needs it to change its own email or password with a key, or with a session older than ten minutes."`
	Billing         struct {
		ID                *int64      `json:"id" db:"billing_id" alias:"billing_id" min:"1" doc:"The id that the client has in its integration. No other client of the integration can have it."`
		IgnoreAutoSuspend bool        `json:"ignoreAutoSuspend" db:"ignore_auto_suspend" example:"false" doc:"Whether the client's servers are never suspended automatically."`
		Integration       *rest.RefID `json:"integration" db:"integration_id" alias:"integration,integration_id" doc:"The integration that the client belongs to. A client that an integration creates belongs to it."`
	} `json:"billing" doc:"The client in a billing system."`
	Verify   Verify  `json:"verify" ext:"true" doc:"The second factor."`
	Language *string `json:"language" db:"language" ext:"true" pattern:"^[a-z]{2,3}(-[A-Z]{2})?$" example:"de" doc:"The language of mails to the client, such as de or pt-BR."`
	Disabled bool    `json:"disabled" db:"disabled" ext:"true" example:"false" doc:"true suspends the client, false lifts the caller's own suspension, as the operations suspend and unsuspend do. The stored value changes nothing."`

	PasswordHash          *string         `db:"password_hash"`
	ClaimedAt             *rest.Timestamp `db:"claimed_at"`
	site                  settings.Values // set by prepareClient
	passwordIgnored       bool            // the caller may not set the password, so it is not checked
	newHash               *string         // of Password, set by prepareClient
	confirmedHash         *string         // of the calling client's password, if CurrentPassword matches it
	isFresh               bool            // the calling client has just signed in
	sentMembers           []string
	secondFactorConfirmed bool // by the calling key, a few minutes ago
}

// Sent receives the names of the members that the request has.
func (b *clientBody) Sent(names []string) { b.sentMembers = names }

// Resolve checks what the tags cannot express.
func (b *clientBody) Resolve(invalid *problem.Fields) {
	if !b.Password.IsZero() && !b.passwordIgnored {
		account.CheckPassword(b.Password, b.site, invalid)
		account.CheckStrength(b.Password, b.site, []string{b.First, b.Last, b.Email}, invalid)
	}
}

func (s *Service) clientRoutes() []rest.Route {
	accounts := rest.Resource[ViewedClient, clientBody]{
		Path:         "/client",
		ID:           "client_id",
		Noun:         "client",
		Retry:        rest.RetryRefused,
		EditExample:  `{"first": "Benjamin", "billing": {"id": 7}}`,
		Guard:        holdersAndClients,
		DeleteGuard:  guard.Has(permission.UsersClients),
		Table:        "client",
		View:         "client_view",
		Without:      rest.Listing | rest.Viewing,
		Scope:        whereReadable,
		CSV:          &rest.CSV{Guard: guard.Has(permission.UsersClients), Without: []string{"password", "current_password", "verify"}},
		Prepare:      s.prepareClient,
		Allow:        checkReadable,
		Check:        s.checkClient,
		Insert:       s.insertClient,
		Update:       updateClient,
		BeforeDelete: s.acquireLeases,
		Delete:       s.deleteClient,
	}.Collection()
	routes := append(accounts.Routes(), s.subLinkEditRoute(accounts), s.superLinkEditRoute(accounts))
	return append(routes, rest.List[rest.None, ListedClient]{
		Path:    "/client",
		Guard:   holdersAndClients,
		Name:    "listClients",
		Summary: "List clients",
		Doc:     "A client sees its sub clients and their sub clients.",
		View:    "client_seen",
		Where: func(ctx context.Context, _ rest.None) ([]pg.Condition, error) {
			return []pg.Condition{whereVisible(ctx), {SQL: "listed"}}, nil
		},
		Options: rest.ListOptions{
			Search: searchClients,
			Sorts:  map[string]string{"name": "name", "email": "email", "created_at": "created_at"},
			Filters: map[string]string{
				"email":          "lower(email)",
				"billing_id":     "billing_id",
				"integration_id": "integration_id",
				"disabled":       "disabled",
				"name":           "name",
			},
			MeFilter: "integration_id",
			Narrow:   narrowToIntegration,
		},
	}, rest.Read[rest.Item, ViewedClient]{
		Path: "/client/{client_id}", Guard: holdersAndClients, Name: "getClient", Summary: "View a client",
		Do: func(ctx context.Context, req rest.Item) (ViewedClient, error) {
			return visibleClients.Get(ctx, s.db, req.ID, whereVisible(ctx))
		},
	})
}

// searchClients returns the rows that match the query. For callers with users.clients it searches a view whose indexes also give
// the order.
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

// narrowToIntegration restricts an integration's search by billing id to its own clients, because the same billing id is another
// customer in another integration.
func narrowToIntegration(ctx context.Context, query url.Values) ([]pg.Condition, error) {
	id, isIntegration := callingIntegration(ctx)
	if query.Get("integration_id") == "me" && !isIntegration {
		return nil, problem.New(problem.BadRequest, "The query is invalid: integration_id can be me only if the caller is an integration.")
	}
	if isIntegration && (query.Has("billing_id") || query.Get("integration_id") == "me") {
		return []pg.Condition{{SQL: "integration_id = $1", Args: []any{id}}}, nil
	}
	return nil, nil
}

// prepareClient does what must not happen inside the unit of work: it counts limited actions, checks the current password and the
// second factor, and hashes a new password. Only a password that is strong enough and that the caller may set is hashed, because
// hashing is expensive.
func (s *Service) prepareClient(ctx context.Context, verb rest.Verbs, b *clientBody) error {
	if err := s.countAddress(ctx, verb, b.Email); err != nil {
		return err
	}
	if verb == rest.Editing && callingClient(ctx) != 0 {
		b.isFresh = time.Since(principal.FromContext(ctx).Principal.SignedIn) < credentials.FreshLoginTTL
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
	b.site = s.settings.Values()
	var invalid problem.Fields
	b.passwordIgnored = b.confirmedHash == nil && !b.isFresh &&
		!principal.FromContext(ctx).Principal.Holds(permission.UsersClients, permission.Write)
	if b.Password.IsZero() || b.passwordIgnored {
		return nil
	}
	if b.Resolve(&invalid); len(invalid) > 0 { // the body's own check reports it
		return nil
	}
	hash, err := s.hasher.Hash(ctx, b.Password)
	b.newHash = &hash
	return err
}

// checkClient checks that the caller may make this change, and that what it refers to exists and is free.
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
		}
	} else {
		if existing, err := s.linkExisting(ctx, tx, b); err != nil {
			return err
		} else if existing != nil {
			return rest.RespondWith(existing)
		}
		before = &clientBody{}
	}
	if integration, isIntegration := callingIntegration(ctx); isIntegration {
		if err := b.checkIntegrationEdit(rest.RefID(integration), id == 0, before); err != nil {
			return err
		}
	}
	if id != 0 {
		b.claim(ctx)
		if err := s.editSuspension(ctx, tx, id, before, b); err != nil {
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

// retryOnConflict starts the unit of work again if another one has just used a value that must be unique. The next try names the
// client that has it.
func retryOnConflict(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23505" {
		return pg.RestartAfter(func(context.Context) error { return nil })
	}
	return err
}

func updateClient(ctx context.Context, tx *pg.Tx, id int64, b *clientBody) error {
	return retryOnConflict(clientTable.Update(ctx, tx, id, b))
}

// checkIntegrationEdit returns an error if an integration changes a client of somebody else. A client that it creates becomes its
// own.
func (b *clientBody) checkIntegrationEdit(caller rest.RefID, isNew bool, before *clientBody) error {
	current, isOwn := before.Billing.Integration, equal(before.Billing.Integration, &caller)
	if b.Billing.Integration == nil && isNew {
		b.Billing.Integration = &caller
	}
	billing := !equal(b.Billing.ID, before.Billing.ID) || b.Billing.IgnoreAutoSuspend != before.Billing.IgnoreAutoSuspend ||
		!equal(b.Billing.Integration, current)
	account := b.First != before.First || b.Last != before.Last || b.Email != before.Email || b.newHash != nil ||
		b.Verify != before.Verify || b.Disabled != before.Disabled
	switch {
	case !isNew && !isOwn && billing:
		return problem.New(problem.Forbidden, "The client is not the integration's own. Ask the client with POST /client/{client_id}/adopt.")
	case b.Billing.Integration != nil && !equal(b.Billing.Integration, &caller) && billing:
		return problem.New(problem.Forbidden, "An integration can create clients only for itself, and cannot move them.")
	case !isNew && !isOwn && account:
		return errForeign()
	}
	return nil
}

// claim marks the account as its own user's after an edit by a caller with users.clients. An integration's edit does so only for its
// own clients.
func (b *clientBody) claim(ctx context.Context) {
	integration, isIntegration := callingIntegration(ctx)
	isForeign := isIntegration && !equal(b.Billing.Integration, new(rest.RefID(integration)))
	if callingClient(ctx) == 0 && b.ClaimedAt == nil && !isForeign {
		b.ClaimedAt = &rest.Timestamp{Time: time.Now()}
	}
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// checkUnique returns field errors that name the client with the same email address or billing id. Unique indexes catch what other
// units of work insert meanwhile.
func (b *clientBody) checkUnique(ctx context.Context, tx *pg.Tx, id int64) error {
	if callingClient(ctx) != 0 && id == 0 { // linkExisting has handled an account with the same address
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
				invalid.Add(pointer, "taken", "is already used")
			} else {
				invalid.Add(pointer, "taken", "is already used by client %d (%s)", other, name)
				invalid[len(invalid)-1].Existing = &rest.Ref{ID: other, Name: name}
			}
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("find another client with the same value: %w", err)
		}
	}
	return invalid.Err()
}

// acquireLeases gets the deletion leases for clients. Services that still use one of the clients refuse.
func (s *Service) acquireLeases(ctx context.Context, tx *pg.Tx, clients []ViewedClient) error {
	var ids []int64
	for _, c := range clients {
		if id, isIntegration := callingIntegration(ctx); isIntegration && (c.Integration == nil || c.Integration.ID != id) {
			return problem.New(problem.Forbidden, "An integration can delete only its own clients.")
		}
		ids = append(ids, c.ID)
	}
	return s.leases.Acquire(ctx, tx, ids)
}

func (s *Service) deleteClient(ctx context.Context, tx *pg.Tx, c *ViewedClient) error {
	if err := lockLinks(ctx, tx); err != nil {
		return err
	}
	return s.endReach(ctx, tx, c.ID, func() error {
		_, err := tx.Exec(ctx, "DELETE FROM client WHERE id = $1", c.ID)
		return err
	})
}
