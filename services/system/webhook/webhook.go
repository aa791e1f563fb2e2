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
)

// Webhook is an address that is told what happens.
type Webhook struct {
	rest.Versioned
	ID      int64    `json:"id" db:"id"`
	Name    string   `json:"name" db:"name"`
	URL     string   `json:"url" db:"url" doc:"Where events are sent."`
	Types   []string `json:"types" db:"types" doc:"of the events that it is sent"`
	Enabled bool     `json:"enabled" db:"enabled" doc:"false: what happens waits for it, three days at most"`
	Owner   struct {
		ID   int64  `json:"id" db:"id"`
		Type string `json:"type" db:"type" enum:"admin,integration"`
		URL  string `json:"url" db:"url"`
	} `json:"owner" db:"owner_" doc:"who made it: it is sent what he may read right now, and nothing while he is disabled or gone"`
	Secret         string          `json:"secret,omitempty" doc:"in the answer that a new one is made with, and never again"`
	OldSecretUntil *rest.Timestamp `json:"old_secret_until,omitempty" db:"old_secret_until" doc:"until then what is sent is signed with the secret before, too"`
	Resting        *string         `json:"resting,omitempty" db:"resting" recorded:"false" doc:"why nothing is delivered right now"`
	CreatedAt      rest.Timestamp  `json:"created_at" db:"created_at"`
}

// View has all webhooks.
var View = pg.NewView[Webhook]("webhook_view")

// Target is the webhook as the log names it.
func (w *Webhook) Target() pg.Target {
	return pg.Target{Type: "webhook", Noun: "webhook", ID: w.ID, Name: w.Name, Version: w.Version}
}

// WebhookBody is what a webhook is made and edited with.
type WebhookBody struct {
	Name           *string         `json:"name" db:"name" example:"Shop" doc:"the address's host where a new one does not say"`
	URL            string          `json:"url" db:"url" required:"create" max:"2000" example:"https://hooks.example.com/ironplane" doc:"https://; http:// is for networks that IRONPLANE_ALLOWED_NETWORKS names"`
	Types          []string        `json:"types" db:"types" example:"[\"integration.*\", \"webhook.tested\"]" doc:"at least one: group.created, all of an item's with group.*, or * for all; the caller holds read on all of them"`
	Enabled        *bool           `json:"enabled" db:"enabled" example:"false" doc:"true where a new one does not say"`
	Secret         *secret.String  `json:"secret" db:"secret" doc:"whsec_ and then 24 to 64 bytes in base64; one is made where a new webhook does not say, and by null. The one before is good for another 24 hours"`
	OldSecretUntil *rest.Timestamp `json:"old_secret_until" db:"old_secret_until" doc:"null: the secret before is good no longer"`
	Owner          string          `db:"owner_url"`
}

const (
	maxTypes = 100
	// maxPerOwner is how many webhooks an account can have, and maxTotal how many all of them.
	maxPerOwner, maxTotal = 50, 1000
	// oldSecretTTL is how long a secret that was replaced is good.
	oldSecretTTL = 24 * time.Hour
)

// Resolve checks what the tags cannot say.
func (b *WebhookBody) Resolve(invalid *problem.Fields) {
	u, err := url.Parse(b.URL)
	switch {
	case b.URL == "":
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		invalid.Add("/url", "invalid", "must be an address such as https://hooks.example.com/ironplane")
	case u.User != nil:
		invalid.Add("/url", "invalid", "cannot have a user or a password: what is sent is signed")
	case u.Fragment != "":
		invalid.Add("/url", "invalid", "cannot have a fragment, which is not sent")
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
				"has %s, and there are no such events: types begin with one of %s, or are *",
				pattern,
				strings.Join(Kinds(), ", "),
			)
			continue
		}
		if action := pattern[strings.LastIndex(pattern, ".")+1:]; action != "*" && !slices.Contains(actions, action) {
			invalid.Add(
				"/types",
				"invalid",
				"has %s, and there are no such events: types end in one of %s, or in *",
				pattern,
				strings.Join(actions, ", "),
			)
		}
	}
	if b.Secret != nil && !b.Secret.IsZero() {
		if _, err := parseSecret(*b.Secret); err != nil {
			invalid.Add("/secret", "invalid", "%s", err)
		}
	}
}

// Check finds what else is wrong with a webhook. Who makes or edits it may read all that it is sent: else he would have it read for him.
func Check(ctx context.Context, tx *pg.Tx, _ int64, before, b *WebhookBody) error {
	caller := principal.From(ctx).Principal
	var needed principal.Grants
	for _, pattern := range b.Types {
		grants, _ := requiredGrants(pattern)
		needed |= grants
	}
	if missing := needed &^ caller.Grants; missing != 0 {
		return problem.New(problem.Forbidden, "The key lacks %s, which is needed for these types.", strings.Join(missing.Names(), ", "))
	}
	if before == nil {
		b.Owner, b.OldSecretUntil = caller.Owner.URL(), nil
		var own, all int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FILTER (WHERE owner_url = $1), count(*) FROM webhook", b.Owner).Scan(&own, &all); err != nil {
			return fmt.Errorf("count webhooks: %w", err)
		}
		if own >= maxPerOwner || all >= maxTotal {
			return problem.New(problem.Conflict, "There are too many webhooks: %d of an account, %d in all.", maxPerOwner, maxTotal)
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

// Lock lets one after the other make webhooks, so that none is too many.
func Lock(ctx context.Context, tx *pg.Tx, rows ...*WebhookBody) error {
	if len(rows) == 0 {
		return nil
	}
	return tx.Lock(ctx, "webhooks", 0)
}

// KeepOldSecret keeps the secret of a webhook, which is about to get another one, as the one before.
func KeepOldSecret(ctx context.Context, tx *pg.Tx, box *seal.Box, id int64) error {
	var sealed []byte
	if err := tx.QueryRow(ctx, "SELECT secret FROM webhook WHERE id = $1", id).Scan(&sealed); err != nil {
		return fmt.Errorf("read the secret of webhook %d: %w", id, err)
	}
	at := seal.Place{Table: "webhook", Column: "secret", ID: id}
	value, err := box.Open(at, sealed)
	if err != nil {
		return err
	}
	at.Column = "old_secret"
	_, err = tx.Exec(ctx, "UPDATE webhook SET old_secret = $2 WHERE id = $1", id, box.Seal(at, value))
	return err
}

// WebhookDelivery is an event that is delivered to a webhook.
type WebhookDelivery struct {
	ID           int64           `json:"id" db:"id"`
	Event        string          `json:"event" db:"event" doc:"its webhook-id: the same in each attempt, and when it is delivered again"`
	Type         string          `json:"type" db:"type"`
	Cause        string          `json:"cause" db:"cause" enum:"event,replay,test"`
	Status       string          `json:"status" db:"status" enum:"waiting,delivered,failed" doc:"failed: it is given up"`
	Attempts     int64           `json:"attempts" db:"attempts"`
	NextAt       *rest.Timestamp `json:"next_at,omitempty" db:"next_at" doc:"when it is tried next; left out of one that waits until an earlier event of the same item has been delivered or given up"`
	CreatedAt    rest.Timestamp  `json:"created_at" db:"created_at"`
	TriedAt      *rest.Timestamp `json:"tried_at,omitempty" db:"tried_at"`
	Duration     *int64          `json:"duration,omitempty" db:"duration" doc:"how long the last attempt took, in ms"`
	AnswerStatus *int64          `json:"answer_status,omitempty" db:"answer_status" doc:"of the last attempt; left out where there was no answer"`
	Answer       *string         `json:"answer,omitempty" db:"answer" doc:"the beginning of what was answered, up to 1024 bytes"`
	Error        *string         `json:"error,omitempty" db:"error" doc:"why the last attempt failed"`
}

// Deliveries has all deliveries.
var Deliveries = pg.NewView[WebhookDelivery]("webhook_delivery_view")

// ViewedWebhookDelivery is a delivery with what is sent.
type ViewedWebhookDelivery struct {
	WebhookDelivery
	Payload *WebhookEvent `json:"payload,omitempty" doc:"what is sent; left out for who may not read such events"`
}

// Replayed says what is delivered again.
type Replayed struct {
	Deliveries int64 `json:"deliveries" doc:"how many events are delivered once more"`
}

// GetDelivery is a delivery with what is sent.
func GetDelivery(ctx context.Context, q pg.Querier, webhook, id int64) (v ViewedWebhookDelivery, err error) {
	if v.WebhookDelivery, err = Deliveries.Get(ctx, q, id, pg.Condition{SQL: "webhook_id = $1", Args: []any{webhook}}); err != nil {
		return v, err
	}
	needed, known := requiredGrants(v.Type)
	if !known || !principal.From(ctx).Principal.Grants.Holds(needed) {
		return v, nil
	}
	var payload string
	if err := q.QueryRow(ctx, "SELECT payload FROM webhook_delivery_view WHERE id = $1", id).Scan(&payload); err != nil {
		return v, fmt.Errorf("read the event of delivery %d: %w", id, err)
	}
	return v, json.Unmarshal([]byte(payload), &v.Payload)
}
