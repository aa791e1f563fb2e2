package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system/audit"
)

// Webhook is a URL to which events are delivered.
type Webhook struct {
	rest.Versioned
	ID      int64    `json:"id" db:"id"`
	Name    string   `json:"name" db:"name"`
	URL     string   `json:"url" db:"url" doc:"Where events are sent."`
	Types   []string `json:"types" db:"types" doc:"The types of events that are delivered."`
	Enabled bool     `json:"enabled" db:"enabled" doc:"false: events wait for up to three days."`
	Owner   struct {
		ID   int64  `json:"id" db:"id"`
		Type string `json:"type" db:"type" enum:"admin,integration" doc:"The kind of account."`
		URL  string `json:"url" db:"url"`
	} `json:"owner" db:"owner_" doc:"The account that created the webhook. Only events that this account may read at the time are delivered, and none while it is disabled."`
	Secret         string          `json:"secret,omitempty" doc:"The secret that signs deliveries. It is only shown in the response to the request that sets it."`
	OldSecretUntil *rest.Timestamp `json:"old_secret_until,omitempty" db:"old_secret_until" doc:"Until then, deliveries are also signed with the previous secret."`
	Resting        *string         `json:"resting,omitempty" db:"resting" recorded:"false" doc:"Why deliveries are suspended. Left out if they are not."`
	CreatedAt      rest.Timestamp  `json:"created_at" db:"created_at"`
}

// View is the view of all webhooks.
var View = pg.NewView[Webhook]("webhook_view")

// Target returns the webhook as a log item names it.
func (w *Webhook) Target() pg.Target {
	return pg.Target{Type: "webhook", Noun: "webhook", ID: w.ID, Name: w.Name, Version: w.Version}
}

// WebhookBody is the body that creates or edits a webhook.
type WebhookBody struct {
	Name           *string         `json:"name" db:"name" example:"Shop" doc:"The webhook's name. Default: the host of the URL."`
	URL            string          `json:"url" db:"url" required:"create" max:"2000" example:"https://hooks.example.com/ironplane" doc:"The URL for deliveries. It must begin with https://, or with http:// for hosts in IRONPLANE_ALLOWED_NETWORKS."`
	Types          []string        `json:"types" db:"types" example:"[\"integration.*\", \"webhook.tested\"]" doc:"The types of events to deliver: group.created, group.* for all events of a kind, or * for all. The caller needs read permission on all of them."`
	Enabled        *bool           `json:"enabled" db:"enabled" example:"false" doc:"Whether events are delivered. Default: true."`
	Secret         *secret.String  `json:"secret" db:"secret" doc:"whsec_ followed by 24 to 64 bytes in base64. null generates a new secret, which is also the default. The previous secret stays valid for 24 hours."`
	OldSecretUntil *rest.Timestamp `json:"old_secret_until" db:"old_secret_until" doc:"null: the previous secret expires now."`
	Owner          string          `db:"owner_url"`
}

const (
	maxTypes = 100
	// maxPerOwner is how many webhooks an account can have, and maxTotal how many there can be in total.
	maxPerOwner, maxTotal = 50, 1000
	// oldSecretTTL is how long a replaced secret stays valid.
	oldSecretTTL = 24 * time.Hour
)

// Resolve checks what tags cannot express.
func (b *WebhookBody) Resolve(invalid *problem.Fields) {
	u, err := url.Parse(b.URL)
	switch {
	case b.URL == "":
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		invalid.Add("/url", "invalid", "must be a URL such as https://hooks.example.com/ironplane")
	case u.User != nil:
		invalid.Add("/url", "invalid", "must not have a user or password: deliveries are signed instead")
	case u.Fragment != "":
		invalid.Add("/url", "invalid", "must not have a fragment, because fragments are not sent")
	case b.Name == nil:
		host := u.Hostname()
		b.Name = &host
	}
	if b.Enabled == nil {
		b.Enabled = new(bool)
		*b.Enabled = true
	}
	switch {
	case len(b.Types) == 0:
		invalid.Add("/types", "required", "must name at least one type of events")
	case len(b.Types) > maxTypes:
		invalid.Add("/types", "too_long", "can have at most %d items", maxTypes)
	}
	for _, pattern := range b.Types {
		if _, ok := requiredGrants(pattern); !ok {
			invalid.Add(
				"/types",
				"invalid",
				"must not have %s, which matches no events: use *, or types that begin with one of %s",
				pattern,
				strings.Join(Kinds(), ", "),
			)
			continue
		}
		if action := pattern[strings.LastIndex(pattern, ".")+1:]; action != "*" && !slices.Contains(audit.Actions(), action) {
			invalid.Add(
				"/types",
				"invalid",
				"must not have %s, which matches no events: types end in * or in one of %s",
				pattern,
				strings.Join(audit.Actions(), ", "),
			)
		}
	}
	if b.Secret != nil && !b.Secret.IsZero() {
		if _, err := parseSecret(*b.Secret); err != nil {
			invalid.Add("/secret", "invalid", "%s", err)
		}
	}
}

// Check validates what Resolve cannot. The caller must hold read permission on all events that the webhook receives.
// Otherwise, callers could use a webhook to read changes that they must not read.
func Check(ctx context.Context, tx *pg.Tx, _ int64, before, b *WebhookBody) error {
	caller := principal.FromContext(ctx).Principal
	var needed principal.Grants
	for _, pattern := range b.Types {
		grants, _ := requiredGrants(pattern)
		needed |= grants
	}
	if missing := needed &^ caller.Grants; missing != 0 {
		return problem.New(problem.Forbidden, "The key lacks %s, which these types require.", strings.Join(missing.Names(), ", "))
	}
	if before == nil {
		b.Owner, b.OldSecretUntil = caller.Owner.URL(), nil
		var own, all int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FILTER (WHERE owner_url = $1), count(*) FROM webhook", b.Owner).Scan(&own, &all); err != nil {
			return fmt.Errorf("count webhooks: %w", err)
		}
		if own >= maxPerOwner || all >= maxTotal {
			return problem.New(
				problem.Conflict,
				"There are too many webhooks. At most %d per account and %d in total are possible.",
				maxPerOwner,
				maxTotal,
			)
		}
	}
	if b.Secret == nil {
		random := make([]byte, secretBytes)
		_, _ = rand.Read(random) // never fails
		created := NewSecret(random)
		b.Secret = &created
	}
	if before != nil && !b.Secret.IsZero() {
		b.OldSecretUntil = &rest.Timestamp{Time: time.Now().Add(oldSecretTTL)}
	}
	return nil
}

// Lock serializes the creation of webhooks, so that concurrent requests cannot exceed the limits.
func Lock(ctx context.Context, tx *pg.Tx, _ rest.Verbs, rows ...*WebhookBody) error {
	if len(rows) == 0 {
		return nil
	}
	return tx.Lock(ctx, "webhooks", 0)
}

// KeepOldSecret stores a webhook's present secret as its old one, before the present one is replaced.
func KeepOldSecret(ctx context.Context, tx *pg.Tx, box *seal.Box, id int64) error {
	var sealed []byte
	if err := tx.QueryRow(ctx, "SELECT secret FROM webhook WHERE id = $1", id).Scan(&sealed); err != nil {
		return fmt.Errorf("read the secret of webhook %d: %w", id, err)
	}
	at := seal.Location{Table: "webhook", Column: "secret", ID: id}
	value, err := box.Open(at, sealed)
	if err != nil {
		return err
	}
	at.Column = "old_secret"
	_, err = tx.Exec(ctx, "UPDATE webhook SET old_secret = $2 WHERE id = $1", id, box.Seal(at, value))
	return err
}

// WebhookDelivery is the delivery of an event to a webhook.
type WebhookDelivery struct {
	ID           int64           `json:"id" db:"id"`
	Event        string          `json:"event" db:"event" doc:"The event's id, sent as webhook-id. It is the same in all attempts and replays."`
	Type         string          `json:"type" db:"type" doc:"The event's type."`
	Cause        string          `json:"cause" db:"cause" enum:"event,replay,test" doc:"Why the event is delivered."`
	Status       string          `json:"status" db:"status" enum:"waiting,delivered,failed" doc:"failed: the delivery was given up."`
	Attempts     int64           `json:"attempts" db:"attempts"`
	NextAt       *rest.Timestamp `json:"next_at,omitempty" db:"next_at" doc:"When the next attempt is due. Left out while an earlier event of the same item waits."`
	CreatedAt    rest.Timestamp  `json:"created_at" db:"created_at"`
	TriedAt      *rest.Timestamp `json:"tried_at,omitempty" db:"tried_at" doc:"When the last attempt was made."`
	Duration     *int64          `json:"duration,omitempty" db:"duration" doc:"How long the last attempt took, in milliseconds."`
	AnswerStatus *int64          `json:"answer_status,omitempty" db:"answer_status" doc:"The status of the last response. Left out if there was none."`
	Answer       *string         `json:"answer,omitempty" db:"answer" doc:"The first 1,024 bytes of the last response."`
	Error        *string         `json:"error,omitempty" db:"error" doc:"Why the last attempt failed."`
}

// Deliveries is the view of all deliveries.
var Deliveries = pg.NewView[WebhookDelivery]("webhook_delivery_view")

// ViewedWebhookDelivery is a delivery with its payload.
type ViewedWebhookDelivery struct {
	WebhookDelivery
	Payload *WebhookEvent `json:"payload,omitempty" doc:"The body of the delivery. Left out if the caller must not read such events."`
}

// Replayed is the response to a replay.
type Replayed struct {
	Deliveries int64 `json:"deliveries" doc:"The number of events that are delivered again."`
}

// GetDelivery returns a delivery, with its payload if the caller may read such events.
func GetDelivery(ctx context.Context, q pg.Querier, webhook, id int64) (v ViewedWebhookDelivery, err error) {
	if v.WebhookDelivery, err = Deliveries.Get(ctx, q, id, pg.Condition{SQL: "webhook_id = $1", Args: []any{webhook}}); err != nil {
		return v, err
	}
	needed, known := requiredGrants(v.Type)
	if !known || !principal.FromContext(ctx).Principal.Grants.Holds(needed) {
		return v, nil
	}
	var payload string
	if err := q.QueryRow(ctx, "SELECT payload FROM webhook_delivery_view WHERE id = $1", id).Scan(&payload); err != nil {
		return v, fmt.Errorf("read the event of delivery %d: %w", id, err)
	}
	return v, json.Unmarshal([]byte(payload), &v.Payload)
}
