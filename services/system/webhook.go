package system

import (
	"context"
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/setting"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// webhookPath names a webhook.
type webhookPath struct {
	Webhook int64 `path:"webhook_id"`
}

// deliveryPath names a delivery to a webhook.
type deliveryPath struct {
	webhookPath
	ID int64 `path:"delivery_id"`
}

// replayRequest is the request to deliver the events of a span of time again.
type replayRequest struct {
	webhookPath
	Body rest.Body[spanBody]
}

// spanBody is a span of time.
type spanBody struct {
	From rest.Timestamp `json:"from" required:"create" example:"{\"iso_8601\": \"2026-11-20T10:00:00Z\"}" doc:"The start of the span."`
	To   rest.Timestamp `json:"to" required:"create" example:"{\"iso_8601\": \"2026-11-20T11:00:00Z\"}" doc:"The end of the span, inclusive."`
}

// Resolve checks that the span does not end before it starts.
func (b *spanBody) Resolve(invalid *problem.Fields) {
	if b.To.Before(b.From.Time) {
		invalid.Add("/to", "out_of_range", "must not be before from")
	}
}

func (s *Service) webhookRoutes() []rest.Route {
	has := guard.Has(permission.SystemIntegrations)
	all := table.New[webhook.WebhookBody]("webhook", "webhook_view", s.box)
	return slices.Concat(
		rest.Resource[webhook.Webhook, webhook.WebhookBody]{
			Path:       "/webhook",
			ID:         "webhook_id",
			Noun:       "webhook",
			Guard:      has,
			Extensions: rest.Listing | rest.Creating | rest.Viewing | rest.Editing | rest.Deleting,
			Table:      "webhook",
			View:       "webhook_view",
			Box:        s.box,
			List: rest.ListOptions{
				Search:  rest.SearchIn("search"),
				Sorts:   map[string]string{"name": "name"},
				Filters: map[string]string{"owner": "owner_url"},
			},
			Retry:       rest.RetryRepeats,
			EditExample: `{"name": "Web shop", "types": ["integration.created"]}`,
			Lock:        webhook.Lock,
			Check:       webhook.Check,
			Update: func(ctx context.Context, tx *pg.Tx, id int64, b *webhook.WebhookBody) error {
				if !b.Secret.IsZero() {
					if err := webhook.KeepOldSecret(ctx, tx, s.box, id); err != nil {
						return err
					}
				}
				if err := all.Update(ctx, tx, id, b); err != nil {
					return err
				}
				return s.dispatcher.Edited(ctx, tx, id)
			},
			Reveal: func(w *webhook.Webhook, b *webhook.WebhookBody) { w.Secret = b.Secret.Reveal() },
		}.Routes(),
		s.webhookDeliveryRoutes(),
		s.webhookSendingRoutes(),
	)
}

// webhookDeliveryRoutes returns the routes to list and view deliveries.
func (s *Service) webhookDeliveryRoutes() []rest.Route {
	const one = "/webhook/{webhook_id}"
	has := guard.Has(permission.SystemIntegrations)
	return []rest.Route{
		rest.List[webhookPath, webhook.WebhookDelivery]{
			Path:      one + "/delivery",
			Guard:     has,
			Extension: true,
			Name:      "listWebhookDeliveries",
			Summary:   "List the deliveries to a webhook",
			Doc:       "Newest first. Completed deliveries are kept for as many days as the setting webhook.days says.",
			View:      "webhook_delivery_view",
			Options: rest.ListOptions{
				Sorts:   map[string]string{"created_at": "created_at"},
				Default: "-created_at",
				Filters: map[string]string{"status": "status"},
			},
			Where: func(ctx context.Context, req webhookPath) ([]pg.Condition, error) {
				_, err := webhook.View.Get(ctx, s.db, req.Webhook)
				return []pg.Condition{{SQL: "webhook_id = $1", Args: []any{req.Webhook}}}, err
			},
		},
		rest.Read[deliveryPath, webhook.ViewedWebhookDelivery]{
			Path:      one + "/delivery/{delivery_id}",
			Guard:     has,
			Extension: true,
			Name:      "getWebhookDelivery",
			Summary:   "View a delivery to a webhook",
			Do: func(ctx context.Context, req deliveryPath) (webhook.ViewedWebhookDelivery, error) {
				return webhook.GetDelivery(ctx, s.db, req.Webhook, req.ID)
			},
		},
	}
}

// webhookSendingRoutes returns the routes to test a webhook and to replay events.
func (s *Service) webhookSendingRoutes() []rest.Route {
	const one = "/webhook/{webhook_id}"
	has := guard.Has(permission.SystemIntegrations)
	summary := func(retry rest.Retry) rest.Effect { return rest.Effect{Logs: rest.LogsSummary, Retry: retry} }
	return []rest.Route{
		rest.Mutation[webhookPath, webhook.WebhookDelivery]{
			Method:    http.MethodPost,
			Path:      one + "/test",
			Guard:     has,
			Extension: true,
			Name:      "testWebhook",
			Summary:   "Send a test event to a webhook",
			Doc: "The event has the type " + webhook.TestType + " and is delivered even if the webhook's types do not match it. View the " +
				"returned delivery to see the outcome.",
			Effect: summary(rest.RetryRepeats),
			Do: func(ctx context.Context, tx *pg.Tx, req webhookPath) (webhook.WebhookDelivery, error) {
				return s.dispatcher.Test(ctx, tx, req.Webhook)
			},
		},
		rest.Mutation[replayRequest, webhook.Replayed]{
			Method:    http.MethodPost,
			Path:      one + "/replay",
			Guard:     has,
			Extension: true,
			Name:      "replayWebhook",
			Summary:   "Deliver the events of a span of time again",
			Doc:       "Replays the events that were queued for the webhook and are still kept. They keep their ids. Waiting events are left alone.",
			Effect:    summary(rest.RetryRepeats),
			Do: func(ctx context.Context, tx *pg.Tx, req replayRequest) (webhook.Replayed, error) {
				body, err := req.Body.New()
				if err != nil {
					return webhook.Replayed{}, err
				}
				return s.dispatcher.Replay(ctx, tx, req.Webhook, body.From.Time, body.To.Time)
			},
		},
		rest.Mutation[deliveryPath, webhook.WebhookDelivery]{
			Method:    http.MethodPost,
			Path:      one + "/delivery/{delivery_id}/replay",
			Guard:     has,
			Extension: true,
			Name:      "replayWebhookDelivery",
			Summary:   "Deliver an event again",
			Doc:       "A delivery that waits for its next attempt is retried now.",
			Effect:    summary(rest.RetryRepeats),
			Do: func(ctx context.Context, tx *pg.Tx, req deliveryPath) (webhook.WebhookDelivery, error) {
				return s.dispatcher.ReplayOne(ctx, tx, req.Webhook, req.ID)
			},
		},
	}
}

// deleteOldDeliveries deletes deliveries that are older than the setting webhook.days.
func (s *Service) deleteOldDeliveries(ctx context.Context) error {
	values, err := setting.Values(ctx, s.db)
	if err != nil {
		return err
	}
	return s.dispatcher.DeleteOld(ctx, settings.WebhookDays.In(values))
}
