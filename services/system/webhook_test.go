package system_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// Completed deliveries are kept for as many days as the setting says. Deliveries that wait too long are given up, and the next
// one of the item is delivered.
func TestDeliveriesAreKept(t *testing.T) {
	t.Parallel()
	o := newMailFixture(t, "")
	created := o.Do("POST", "/webhook", `{"url": "https://hooks.example.com", "types": ["group.*"], "enabled": false}`).Want(200).ID()
	o.execute("INSERT INTO webhook_event (uuid, type, at, payload) VALUES ('a', 'group.created', now() - interval '10 days', '{}')")
	o.execute(`INSERT INTO webhook_delivery (webhook_id, event_id, item, cause, status, next_at, created_at) VALUES
		(1, 1, 'group/1', 'event', 'delivered', NULL, now() - interval '10 days'), (1, 1, 'group/1', 'event', 'failed', NULL, now() - interval '8 days'),
		(1, 1, 'group/1', 'event', 'waiting', now(), now() - interval '4 days'), (1, 1, 'group/1', 'event', 'waiting', 'infinity', now()),
		(99, 1, 'group/1', 'event', 'delivered', NULL, now())`)
	o.execute("UPDATE setting SET chosen = '9' WHERE slug = 'webhook.days'")
	deliveries := func() []webhook.WebhookDelivery {
		return testkit.Decode[[]webhook.WebhookDelivery](o.Do("GET", "/webhook/1/delivery", nil).Want(200))
	}
	o.runUntil("delete-old-deliveries", "the oldest delivery and that of a deleted webhook are deleted", func() bool {
		left, orphans := deliveries(), 0
		err := o.deps.DB.QueryRow(t.Context(), "SELECT count(*) FROM webhook_delivery WHERE webhook_id = 99").Scan(&orphans)
		return err == nil && orphans == 0 && created == 1 && len(left) == 3 && left[0].NextAt != nil && left[1].Status == "failed" &&
			strings.Contains(*left[1].Error, "three days")
	})
	o.execute("UPDATE setting SET chosen = '1' WHERE slug = 'webhook.days'")
	o.execute("UPDATE webhook_delivery SET status = 'delivered', next_at = NULL, created_at = now() - interval '2 days'")
	o.runUntil("delete-old-deliveries", "events without deliveries are deleted", func() bool {
		var n int
		err := o.deps.DB.QueryRow(t.Context(), "SELECT count(*) FROM webhook_event").Scan(&n)
		return err == nil && n == 0
	})
}

// The page on webhooks lists each kind of events.
func TestKindsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/do/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range webhook.Kinds() {
		if !strings.Contains(string(page), "`"+kind+".*`") {
			t.Errorf("got docs/do/webhooks.md without %s, want it there", kind)
		}
	}
}
