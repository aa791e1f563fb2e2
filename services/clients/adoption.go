package clients

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	// adoptionTTL is how long a client can confirm an adoption.
	adoptionTTL = 72 * time.Hour
	// adoptionInterval is how often an integration can ask the same client.
	adoptionInterval = 24 * time.Hour
)

// Adoption is what came of a request to adopt a client.
type Adoption struct {
	Status    string          `json:"status" enum:"adopted,asked" doc:"adopted: the client belongs to the integration. asked: the client was sent a mail, and belongs to the integration as soon as it confirms."`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" doc:"Until when the client can confirm. Left out if the status is adopted."`
}

type adoptRequest struct {
	Client int64 `path:"*"`
	Body   rest.Body[adoptBody]
}

type adoptBody struct {
	Billing struct {
		ID          *int64      `json:"id" alias:"billing_id" required:"create" min:"1" example:"4711" doc:"The id that the client gets in the integration. No other client of the integration can have it."`
		Integration *rest.RefID `json:"integration" alias:"integration,integration_id" doc:"The integration that adopts the client. An admin has to name it. An integration can name only itself."`
	} `json:"billing" doc:"The client in a billing system."`
}

type confirmAdoption struct {
	Client int64 `path:"*"`
	Body   rest.Body[adoptionCode]
}

type adoptionCode struct {
	Code secret.String `json:"code" required:"create" max:"255" transient:"true" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"The code behind code= in the mailed link."`
}

func (s *Service) adoptionRoutes() []rest.Route {
	const path = "/client/{client_id}/adopt"
	return []rest.Route{
		rest.Mutation[adoptRequest, Adoption]{
			Method:    http.MethodPost,
			Path:      path,
			Guard:     guard.Has(permission.UsersClients),
			Name:      "adoptClient",
			Summary:   "Make an existing client an integration's own",
			Extension: true,
			Doc: "An integration asks: the client gets a mail with a link, at most once a day, and confirms. An admin adopts " +
				"directly for an integration.",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: "/client/{client_id}"},
			Example: `{"billing": {"id": 4711, "integration": {"id": 1}}}`,
			Do:      s.adoptClient,
		},
		rest.Mutation[confirmAdoption, rest.Message]{
			Method:    http.MethodPatch,
			Path:      path,
			Guard:     guard.Public,
			Name:      "confirmAdoption",
			Summary:   "Confirm by a mailed link that an integration adopts the client",
			Extension: true,
			Doc:       "The code works once, within three days, and until the client's email or password changes. Then it is a 404.",
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRefused},
			Do:        s.confirmAdoption,
		},
	}
}

// ownership is what adoptions depend on in a client.
type ownership struct {
	integration *int64
	credentials int64
	disabled    bool
}

// lockOwnership reads a client's ownership, and locks its row.
func lockOwnership(ctx context.Context, tx *pg.Tx, client int64) (o ownership, err error) {
	const sql = "SELECT integration_id, credentials, (SELECT v.suspended FROM client_view v WHERE v.id = client.id) " +
		"FROM client WHERE id = $1 FOR UPDATE"
	err = tx.QueryRow(ctx, sql, client).
		Scan(&o.integration, &o.credentials, &o.disabled)
	return o, err
}

// adoptClient adopts a client for an admin, and asks the client for an integration.
func (s *Service) adoptClient(ctx context.Context, tx *pg.Tx, req adoptRequest) (Adoption, error) {
	adoption, err := s.adoptOrAsk(ctx, tx, &req)
	return adoption, req.Body.MapError(err)
}

func (s *Service) adoptOrAsk(ctx context.Context, tx *pg.Tx, req *adoptRequest) (Adoption, error) {
	current, err := lockOwnership(ctx, tx, req.Client)
	if err != nil {
		return Adoption{}, err
	}
	body, err := req.Body.New()
	if err != nil {
		return Adoption{}, err
	}
	caller, isIntegration := callingIntegration(ctx)
	if !isIntegration {
		if body.Billing.Integration == nil {
			return Adoption{}, problem.Member("/billing/integration", "required", "is required: name the integration that adopts the client")
		}
		return Adoption{Status: "adopted"}, s.adopt(ctx, tx, req.Client, int64(*body.Billing.Integration), *body.Billing.ID, true)
	}
	switch integration := body.Billing.Integration; {
	case integration != nil && int64(*integration) != caller:
		return Adoption{}, problem.New(problem.Forbidden, "An integration can adopt clients only for itself.")
	case current.integration != nil && *current.integration == caller:
		return Adoption{Status: "adopted"}, s.adopt(ctx, tx, req.Client, caller, *body.Billing.ID, true)
	case current.integration != nil:
		return Adoption{}, problem.New(problem.Forbidden, "The client belongs to another integration. An admin can move it.")
	case current.disabled:
		return Adoption{}, problem.New(problem.Forbidden, "The client is suspended, and cannot confirm. An admin can adopt it.")
	}
	expires, err := s.askToAdopt(ctx, tx, req.Client, caller, *body.Billing.ID, current.credentials)
	return Adoption{Status: "asked", ExpiresAt: expires}, err
}

// adopt makes a client an integration's own. Like other edits it claims the account, unless the client itself has confirmed. The caller
// has locked the client's row.
func (s *Service) adopt(ctx context.Context, tx *pg.Tx, client, integration, billing int64, claims bool) error {
	before, err := clientView.Get(ctx, tx, client)
	if err != nil {
		return err
	}
	if before.Integration != nil && before.Integration.ID == integration && equal(before.BillingID, &billing) {
		tx.Unrecorded("the client belongs to the integration already")
		return nil
	}
	if err := s.checkAdoptable(ctx, tx, &before, integration, billing); err != nil {
		return err
	}
	_, err = tx.Exec(
		ctx,
		"UPDATE client SET version = version + 1, integration_id = $2, billing_id = $3, "+
			"claimed_at = CASE WHEN $4 THEN coalesce(claimed_at, now()) ELSE claimed_at END WHERE id = $1",
		client, integration, billing, claims,
	)
	if err != nil {
		return retryOnConflict(err)
	}
	s.revoke(tx, client)
	after, err := clientView.Get(ctx, tx, client)
	if err != nil {
		return err
	}
	tx.Record(pg.Record{Kind: "client", Action: pg.Edited, Before: before, After: after, Targets: []pg.Target{targetOf(&after)}})
	return nil
}

// targetOf returns a client as the target of a record about it.
func targetOf(c *ViewedClient) pg.Target {
	return pg.Target{Type: "client", Noun: "client", ID: c.ID, Name: c.Name, Version: c.Version}
}

// checkAdoptable checks that the integration exists, and that none of its clients has the billing id.
func (s *Service) checkAdoptable(ctx context.Context, tx *pg.Tx, c *ViewedClient, integration, billing int64) error {
	if err := s.integrations.Hold(ctx, tx, integration, "/billing/integration"); err != nil {
		return err
	}
	adopted := clientBody{Email: c.Email}
	adopted.Billing.ID, adopted.Billing.Integration = &billing, new(rest.RefID(integration))
	return adopted.checkUnique(ctx, tx, c.ID)
}

// askToAdopt mails a client the link by which it confirms, and returns when the link expires.
func (s *Service) askToAdopt(ctx context.Context, tx *pg.Tx, client, integration, billing, version int64) (*rest.Timestamp, error) {
	c, err := clientView.Get(ctx, tx, client)
	if err != nil {
		return nil, err
	}
	if err := s.checkAdoptable(ctx, tx, &c, integration, billing); err != nil {
		return nil, err
	}
	code := newAdoptionCode()
	link, err := s.adoptionLink(client, code)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256([]byte(code.Reveal()))
	expires := &rest.Timestamp{}
	err = tx.QueryRow(ctx, `
		INSERT INTO adoption AS a (client_id, integration_id, billing_id, credentials, hash, expires_at) VALUES ($1, $2, $3, $4, $5, now() + $6)
		ON CONFLICT (client_id, integration_id) DO UPDATE SET billing_id = $3, credentials = $4, hash = $5, expires_at = now() + $6, asked_at = now()
		WHERE a.asked_at < now() - $7::interval
		RETURNING expires_at`, client, integration, billing, version, hash[:], adoptionTTL, adoptionInterval).Scan(&expires.Time)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, s.refuseAsking(ctx, tx, client, integration)
	}
	if err != nil {
		return nil, fmt.Errorf("store the adoption of client %d: %w", client, err)
	}
	to, err := lockRecipient(ctx, tx, client)
	if err != nil {
		return nil, err
	}
	content := mail.ClientAdoption{By: principal.FromContext(ctx).Principal.Name, Link: link, Expires: expires.Time}
	if err := mail.Send(ctx, tx, s.systemOutbox, accountPath(client), to, content); err != nil {
		return nil, err
	}
	tx.Record(pg.Record{
		Kind: "client", Part: "adoption", Action: "asked", Targets: []pg.Target{targetOf(&c)}, Before: struct{}{},
		After: map[string]any{"billing_id": billing, "integration": rest.Ref{ID: integration, Name: content.By}},
	})
	return expires, nil
}

// refuseAsking returns the refusal to ask a client twice a day.
func (s *Service) refuseAsking(ctx context.Context, tx *pg.Tx, client, integration int64) error {
	var wait time.Duration
	const sql = "SELECT asked_at + $3::interval - now() FROM adoption WHERE client_id = $1 AND integration_id = $2"
	if err := tx.QueryRow(ctx, sql, client, integration, adoptionInterval).Scan(&wait); err != nil {
		return fmt.Errorf("read when client %d was asked: %w", client, err)
	}
	refused := problem.New(problem.TooManyRequests, "The client was asked within the last day. Ask again when Retry-After is over.")
	refused.RetryAfter = wait
	return refused
}

// newAdoptionCode returns 256 random bits as text.
func newAdoptionCode() secret.String {
	var bits [32]byte
	_, _ = rand.Read(bits[:])
	return secret.New(base64.RawURLEncoding.EncodeToString(bits[:]))
}

// adoptionLink returns the address of the page where a client confirms. It is a page of the panel or, without a panel but the
// console, of the gateway.
func (s *Service) adoptionLink(client int64, code secret.String) (secret.String, error) {
	values := s.settings.Values()
	fragment := url.Values{"client": {fmt.Sprint(client)}, "code": {code.Reveal()}}.Encode()
	api := strings.TrimRight(settings.APIURL.In(values), "/")
	if panel := strings.TrimRight(settings.ClientURL.In(values), "/"); panel != "" && panel != api+settings.ConsolePath {
		return secret.New(panel + "/client/adopt#" + fragment), nil
	}
	if api != "" {
		return secret.New(api + "/-/adopt#" + fragment), nil
	}
	return secret.String{}, problem.New(
		problem.Invalid,
		"The client cannot be asked because the address for its link is unknown. Set IRONPLANE_CLIENT_URL or IRONPLANE_API_URL.",
	)
}

// confirmAdoption adopts a client that confirms by the code of its mail.
func (s *Service) confirmAdoption(ctx context.Context, tx *pg.Tx, req confirmAdoption) (message rest.Message, err error) {
	body, err := req.Body.New()
	if err != nil {
		return message, err
	}
	hash := sha256.Sum256([]byte(body.Code.Reveal()))
	var integration, billing, version int64
	const find = "SELECT integration_id, billing_id, credentials FROM adoption " +
		"WHERE client_id = $1 AND hash = $2 AND expires_at > clock_timestamp()"
	if err := tx.QueryRow(ctx, find, req.Client, hash[:]).Scan(&integration, &billing, &version); err != nil {
		return message, err // an unknown code is a 404, and locks nothing
	}
	current, err := lockOwnership(ctx, tx, req.Client)
	if err != nil {
		return message, err
	}
	used, err := tx.Exec(ctx, "UPDATE adoption SET hash = NULL WHERE client_id = $1 AND hash = $2", req.Client, hash[:])
	if err != nil {
		return message, fmt.Errorf("use the code of client %d: %w", req.Client, err)
	}
	if used.RowsAffected() == 0 || current.disabled || current.credentials != version {
		return message, pgx.ErrNoRows
	}
	if current.integration != nil && *current.integration != integration {
		return message, problem.New(problem.Conflict, "The account belongs to another integration by now. Ask the operator to move it.")
	}
	if err := s.adopt(ctx, tx, req.Client, integration, billing, false); err != nil {
		return message, err
	}
	after, err := clientView.Get(ctx, tx, req.Client)
	if err != nil {
		return message, err
	}
	return rest.Message{Message: fmt.Sprintf("The account belongs to %s now.", after.Integration.Name)}, nil
}

// pruneAdoptions deletes codes that are too old to be used, and whose client can be asked again.
func (s *Service) pruneAdoptions(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the codes have expired")
		_, err := tx.Exec(ctx, "DELETE FROM adoption WHERE expires_at < now() AND asked_at < now() - $1::interval", adoptionInterval)
		return err
	})
}
