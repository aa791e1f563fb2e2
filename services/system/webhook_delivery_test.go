package system_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/names"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
	"github.com/ironplane/ironplane/services/system/webhook"
)

// hooks is a system service that may deliver to this machine.
type hooks struct {
	testing.TB
	*running

	c *testkit.Client
}

func newHooks(t *testing.T) *hooks {
	s := run(t, service.Settings{AllowedNetworks: "127.0.0.1"})
	return &hooks{t, s, s.Client}
}

// forTest returns the same service for a subtest.
func (h *hooks) forTest(t *testing.T) *hooks { return &hooks{t, h.running, h.c.WithT(t)} }

func (h *hooks) createWebhook(by *testkit.Client, to *receiver.Server, types ...string) webhook.Webhook {
	h.Helper()
	created := testkit.Decode[webhook.Webhook](by.Do("POST", "/webhook", map[string]any{"url": to.URL, "types": types}).Want(200))
	if !strings.HasPrefix(created.Secret, "whsec_") {
		h.Fatalf("got %+v, want a secret that begins with whsec_", created)
	}
	to.Trust(created.Secret)
	return created
}

// retryNow makes all waiting deliveries due.
func (h *hooks) retryNow() {
	h.Helper()
	testkit.Execute(
		h.TB,
		h.DB,
		"UPDATE webhook_delivery SET next_at = now() WHERE status = 'waiting' AND next_at < 'infinity'",
	)
	testkit.Execute(h.TB, h.DB, "UPDATE webhook SET paused_until = NULL")
}

func (h *hooks) listDeliveries(id int64, query string) []webhook.WebhookDelivery {
	h.Helper()
	return testkit.Decode[[]webhook.WebhookDelivery](h.c.Do("GET", path("/webhook/%d/delivery%s", id, query), nil).Want(200))
}

// awaitDeliveries waits until n deliveries have the status, and returns them.
func (h *hooks) awaitDeliveries(id int64, status string, n int) []webhook.WebhookDelivery {
	h.Helper()
	var all []webhook.WebhookDelivery
	testkit.Eventually(h.TB, fmt.Sprintf("%d deliveries of webhook %d are %s", n, id, status), func() bool {
		h.retryNow()
		all = h.listDeliveries(id, "?status="+status)
		return len(all) >= n
	}, func() string { return fmt.Sprintf("got %+v", h.listDeliveries(id, "")) })
	if len(all) != n {
		h.Fatalf("got %d %s deliveries, want %d: %+v", len(all), status, n, all)
	}
	return all
}

// Webhooks are delivered, retried, replayed, suspended and signed.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	for name, test := range map[string]func(*hooks){
		"delivered":         (*hooks).testDelivered,
		"retried":           (*hooks).testRetried,
		"two secrets":       (*hooks).testSecretRotation,
		"receiver is gone":  (*hooks).testReceiver410,
		"owner permissions": (*hooks).testOwnerPermissions,
		"own change":        (*hooks).testOwnChange,
		"slow receiver":     (*hooks).testSlowReceiver,
		"private networks":  (*hooks).testPrivateNetworks,
		"invalid bodies":    (*hooks).testInvalidBodies,
		"given up":          (*hooks).testExpired,
	} {
		t.Run(name, func(t *testing.T) { test(h.forTest(t)) })
	}
}

func (h *hooks) testDelivered() {
	to := receiver.Start(h.TB, nil)
	created := h.createWebhook(h.c, to, "group.created", "group.deleted")
	if created.Owner.URL != "/admin/1" || !created.Enabled || created.Name != "127.0.0.1" {
		h.Errorf("got %+v, want it enabled and named 127.0.0.1, of /admin/1", created)
	}
	if text := h.c.Do("GET", path("/webhook/%d", created.ID), nil).
		Want(200).
		Text + h.c.Do("GET", "/webhook", nil).
		Want(200).
		Text; strings.Contains(
		text,
		"whsec_",
	) {
		h.Errorf("got a secret in %s, want none", text)
	}
	id := h.createGroup("Matching")
	h.editGroup(id, "Not matching")
	h.changeGroup(id, pg.Deleted, map[string]any{"name": "Not matching"}, nil)
	testkit.Eventually(h.TB, "both events are delivered", func() bool { return to.Accepted() == 2 })
	all := to.All()
	first, last := all[0].Event(h), all[1].Event(h)
	if first.Type != "group.created" || first.Data.After["name"] != "Matching" || first.Data.Before != nil ||
		first.Data.Targets[0].URL != path("/group/%d", id) ||
		first.Data.User != nil {
		h.Errorf("got %s, want group.created of Matching without a user", all[0].Body)
	}
	if last.Type != "group.deleted" || last.Data.Before["name"] != "Not matching" || last.Data.After != nil ||
		last.Data.RequestID == "" ||
		all[0].ID == all[1].ID {
		h.Errorf("got %s, want group.deleted of Not matching under another ID", all[1].Body)
	}
	listed := h.awaitDeliveries(created.ID, "delivered", 2)
	if one := listed[0]; one.Type != "group.deleted" || one.Attempts != 1 || *one.AnswerStatus != 204 || one.Duration == nil ||
		one.Event != all[1].ID ||
		one.Error != nil {
		h.Errorf("got %+v, want group.deleted with the answer 204 at the first attempt", one)
	}
	shown := testkit.Decode[webhook.ViewedWebhookDelivery](
		h.c.Do("GET", path("/webhook/%d/delivery/%d", created.ID, listed[0].ID), nil).Want(200),
	)
	if shown.Payload == nil || shown.Payload.Type != "group.deleted" {
		h.Errorf("got %+v, want the payload of group.deleted", shown)
	}
	_, other := h.addAdmin("system.integrations read", "system.integrations write")
	if text := other.Do("GET", path("/webhook/%d/delivery/%d", created.ID, listed[0].ID), nil).
		Want(200).
		Text; strings.Contains(
		text,
		"payload",
	) {
		h.Errorf("got %s without the permission to read groups, want no payload", text)
	}
	h.c.Do("GET", path("/webhook/999/delivery/%d", listed[0].ID), nil).Want(404)

	replay := testkit.Decode[webhook.WebhookDelivery](
		h.c.Do("POST", path("/webhook/%d/delivery/%d/replay", created.ID, listed[0].ID), nil).Want(200),
	)
	if replay.Event != all[1].ID || replay.Cause != "replay" {
		h.Errorf("got %+v, want a replay of %s", replay, all[1].ID)
	}
	tested := testkit.Decode[webhook.WebhookDelivery](h.c.Do("POST", path("/webhook/%d/test", created.ID), nil).Want(200))
	testkit.Eventually(h.TB, "the replay and the test event are delivered", func() bool { return to.Accepted() == 4 })
	if ids := []string{to.All()[2].ID, to.All()[3].ID}; !slices.Contains(ids, all[1].ID) || !slices.Contains(ids, tested.Event) {
		h.Errorf("got %v, want %s and %s", ids, all[1].ID, tested.Event)
	}
	span := map[string]any{"from": "2020-01-01", "to": "2100-01-01"}
	h.awaitDeliveries(created.ID, "delivered", 4)
	if replayed := testkit.Decode[webhook.Replayed](
		h.c.Do("POST", path("/webhook/%d/replay", created.ID), span).Want(200),
	); replayed.Deliveries != 2 {
		h.Errorf("got %+v, want 2 deliveries", replayed)
	}
	testkit.Eventually(h.TB, "both events are delivered again", func() bool { return to.Accepted() == 6 })
	if got := to.All(); got[4].ID != all[0].ID || got[5].ID != all[1].ID {
		h.Errorf("got %s, %s, want %s, %s", got[4].ID, got[5].ID, all[0].ID, all[1].ID)
	}
	h.c.Do("POST", path("/webhook/%d/replay", created.ID), `{"from": "2021-01-01", "to": "2020-01-01"}`).WantErrors("/to", "out_of_range")
	h.c.Do("DELETE", path("/webhook/%d", created.ID), nil).Want(200)
}

// An event names who made the change, and by which request.
func (h *hooks) testOwnChange() {
	to := receiver.Start(h.TB, nil)
	created := h.createWebhook(h.c, to, "part.created")
	h.c.Do("POST", "/part", `{"name": "EPYC 9354", "part_type": "cpu"}`).Want(200)
	testkit.Eventually(h.TB, "the event is delivered", func() bool { return to.Accepted() == 1 })
	e := to.All()[0].Event(h)
	if e.Type != "part.created" || e.Data.User.URL != "/admin/1" || e.Data.RequestID != "test" {
		h.Errorf("got %s, want part.created by /admin/1 with the request id test", to.All()[0].Body)
	}
	h.c.Do("DELETE", path("/webhook/%d", created.ID), nil).Want(200)
}

// A failed delivery is retried. It delays later events of the same item, and no others.
func (h *hooks) testRetried() {
	var failing atomic.Bool
	failing.Store(true)
	to := receiver.Start(h.TB, func(_ int, r *receiver.Received, _ http.ResponseWriter) int {
		if failing.Load() && strings.Contains(string(r.Body), "Stuck") {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	created := h.createWebhook(h.c, to, "group.*")
	stuck := h.createGroup("Stuck")
	h.editGroup(stuck, "Stuck since")
	h.createGroup("Free")
	h.awaitDeliveries(created.ID, "delivered", 1)
	waiting := h.listDeliveries(created.ID, "?status=waiting")
	testkit.Eventually(h.TB, "the delivery is retried", func() bool {
		h.retryNow()
		waiting = h.listDeliveries(created.ID, "?status=waiting")
		return len(waiting) == 2 && waiting[1].Attempts >= 2
	})
	if len(waiting) != 2 || waiting[0].Attempts != 0 || waiting[0].NextAt != nil || *waiting[1].AnswerStatus != 500 ||
		*waiting[1].Error != "the receiver answered 500" {
		h.Errorf("got %+v, want one that waits for another, which has the answer 500", waiting)
	}
	failing.Store(false)
	h.awaitDeliveries(created.ID, "delivered", 3)
	var ids []string
	for _, r := range to.All() {
		if e := r.Event(h); e.Data.Targets[0].ID == stuck {
			ids = append(ids, e.Type+fmt.Sprint(r.Accepted))
		}
	}
	if n := len(ids); n < 4 || ids[n-2] != "group.createdtrue" || ids[n-1] != "group.editedtrue" || slices.Contains(ids, "group.editedfalse") {
		h.Errorf("got %v, want group.created, then group.edited, delivered last", ids)
	}
	h.c.Do("DELETE", path("/webhook/%d", created.ID), nil).Want(200)
}

// When a delivery is given up, the next event of its item is delivered.
func (h *hooks) testExpired() {
	to := receiver.Start(h.TB, func(_ int, r *receiver.Received, _ http.ResponseWriter) int {
		if strings.Contains(string(r.Body), "group.created") {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	created := h.createWebhook(h.c, to, "group.*")
	id := h.createGroup("Dead")
	h.editGroup(id, "Dead no more")
	testkit.Eventually(h.TB, "the delivery was tried", func() bool {
		waiting := h.listDeliveries(created.ID, "?status=waiting")
		return len(waiting) == 2 && waiting[1].Attempts > 0
	})
	testkit.Execute(
		h.TB,
		h.DB,
		"UPDATE webhook_delivery SET created_at = now() - interval '73 hours' WHERE status = 'waiting'",
	)
	h.awaitDeliveries(created.ID, "delivered", 1)
	h.awaitDeliveries(created.ID, "failed", 1)
	h.c.Do("DELETE", path("/webhook/%d", created.ID), nil).Want(200)
}

// While a secret is rotated, deliveries are signed with both secrets.
func (h *hooks) testSecretRotation() {
	to := receiver.Start(h.TB, nil)
	created := h.createWebhook(h.c, to, "group.*")
	at := path("/webhook/%d", created.ID)
	second := testkit.Decode[webhook.Webhook](h.c.Do("PATCH", at, `{"secret": null}`).Want(200))
	if second.Secret == "" || second.Secret == created.Secret || second.OldSecretUntil == nil {
		h.Fatalf("got %+v, want a new secret beside the old one", second)
	}
	to.Trust(created.Secret, second.Secret)
	h.createGroup("Signed twice")
	h.awaitDeliveries(created.ID, "delivered", 1)
	const own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	third := testkit.Decode[webhook.Webhook](h.c.Do("PATCH", at, map[string]any{"secret": own}).Want(200))
	if third.Secret != own {
		h.Errorf("got %+v, want the secret %s", third, own)
	}
	if ended := testkit.Decode[webhook.Webhook](
		h.c.Do("PATCH", at, `{"old_secret_until": null}`).Want(200),
	); ended.OldSecretUntil != nil ||
		ended.Secret != "" {
		h.Errorf("got %+v, want no old secret and none shown", ended)
	}
	to.Trust(own)
	h.createGroup("Signed once")
	h.awaitDeliveries(created.ID, "delivered", 2)
	if last := to.All()[1].Header.Get("webhook-signature"); strings.Contains(last, " ") {
		h.Errorf("got the signatures %s, want one", last)
	}
	for _, invalid := range []string{"x", "whsec_", "whsec_x", "whsec_c2hvcnQ="} {
		h.c.Do("PATCH", at, map[string]any{"secret": invalid}).WantErrors("/secret", "invalid")
	}
	h.c.Do("DELETE", at, nil).Want(200)
}

// A webhook whose receiver answers 410 is disabled. Waiting events are delivered once it is enabled again.
func (h *hooks) testReceiver410() {
	var answers410 atomic.Bool
	answers410.Store(true)
	to := receiver.Start(h.TB, func(int, *receiver.Received, http.ResponseWriter) int {
		if answers410.Load() {
			return http.StatusGone
		}
		return http.StatusOK
	})
	created := h.createWebhook(h.c, to, "group.created")
	at := path("/webhook/%d", created.ID)
	h.createGroup("Gone")
	var disabled webhook.Webhook
	testkit.Eventually(h.TB, "the webhook is disabled", func() bool {
		disabled = testkit.Decode[webhook.Webhook](h.c.Do("GET", at, nil).Want(200))
		return !disabled.Enabled
	})
	if disabled.Resting == nil || !strings.Contains(*disabled.Resting, "410") {
		h.Errorf("got %+v, want it disabled for the answer 410", disabled)
	}
	items := h.awaitLog(path("type=webhook.edited&target_type=webhook&target_id=%d", created.ID), 1)
	var hasUser bool
	if err := h.DB.QueryRow(h.Context(), "SELECT request_id IS NOT NULL OR user_url IS NOT NULL FROM log WHERE id = $1", items[0].ID).
		Scan(&hasUser); err != nil ||
		hasUser {
		h.Errorf("got %t, %v for a log item with a request or a user, want false", hasUser, err)
	}
	h.createGroup("Gone, too")
	answers410.Store(false)
	h.c.Do("PATCH", at, `{"enabled": true}`).Want(200)
	h.awaitDeliveries(created.ID, "delivered", 2)
	h.c.Do("DELETE", at, nil).Want(200)
}

// A webhook only receives events that its owner may read at the time of delivery.
func (h *hooks) testOwnerPermissions() {
	to := receiver.Start(h.TB, nil)
	const reads, writes = "system.integrations read", "system.integrations write"
	admin, maker := h.addAdmin("network.groups read", reads, writes)
	setOwner := func(active bool, grants ...string) {
		h.Identity.SetAdmin(admin, keycache.Owner{Active: active, Grants: principal.ParseGrants(append(grants, reads, writes))})
	}
	maker.Do("POST", "/webhook", map[string]any{"url": to.URL, "types": []string{"group.created", "entity.created"}}).Want(403)
	maker.Do("POST", "/webhook", map[string]any{"url": to.URL, "types": []string{"*"}}).Want(403)
	created := h.createWebhook(maker, to, "group.created")
	_, other := h.addAdmin(reads, writes)
	other.Do("PATCH", path("/webhook/%d", created.ID), `{"url": "https://elsewhere.example.com"}`).Want(403)
	h.createGroup("Allowed")
	h.awaitDeliveries(created.ID, "delivered", 1)

	setOwner(true)
	h.createGroup("Not allowed")
	if failed := h.awaitDeliveries(
		created.ID,
		"failed",
		1,
	); failed[0].Attempts != 0 ||
		*failed[0].Error != "the webhook's owner lacks network.groups read" {
		h.Errorf("got %+v, want no attempt for a missing permission", failed)
	}
	setOwner(false, "network.groups read")
	h.createGroup("Later")
	at := path("/webhook/%d", created.ID)
	testkit.Eventually(h.TB, "deliveries are suspended", func() bool {
		w := testkit.Decode[webhook.Webhook](h.c.Do("GET", at, nil).Want(200))
		return w.Resting != nil && *w.Resting == "the webhook's owner is disabled or deleted"
	})
	if to.Accepted() != 1 {
		h.Errorf("got %d deliveries with the owner disabled, want 1", to.Accepted())
	}
	setOwner(true, "network.groups read")
	h.awaitDeliveries(created.ID, "delivered", 2)
	h.Identity.SetAdmin(admin, keycache.Owner{})
	h.createGroup("Never")
	testkit.Eventually(h.TB, "deliveries are suspended", func() bool {
		w := testkit.Decode[webhook.Webhook](h.c.Do("GET", at, nil).Want(200))
		return w.Resting != nil && *w.Resting == "the webhook's owner is disabled or deleted"
	})
	h.c.Do("DELETE", at, nil).Want(200)
}

// A receiver that does not respond does not delay deliveries to others.
func (h *hooks) testSlowReceiver() {
	hang := make(chan struct{})
	var hanging atomic.Int64 // requests without a response
	slow := receiver.Start(h.TB, func(_ int, r *receiver.Received, _ http.ResponseWriter) int {
		hanging.Add(1)
		defer hanging.Add(-1)
		select {
		case <-hang:
		case <-r.Left:
		}
		return http.StatusOK
	})
	first := h.createWebhook(h.c, slow, "group.created")
	h.createGroup("Slow")
	testkit.Eventually(h.TB, "the slow receiver has a request", func() bool { return hanging.Load() > 0 })

	var besideSlow atomic.Bool
	prompt := receiver.Start(h.TB, func(n int, _ *receiver.Received, _ http.ResponseWriter) int {
		if n == 1 {
			besideSlow.Store(hanging.Load() > 0)
		}
		return http.StatusOK
	})
	second := h.createWebhook(h.c, prompt, "group.created")
	for n := range 20 {
		h.createGroup(fmt.Sprint("Prompt ", n))
	}
	testkit.Eventually(h.TB, "the prompt receiver has all events", func() bool { return prompt.Accepted() == 20 })
	if !besideSlow.Load() {
		h.Error("got the first event at the prompt receiver after the slow one had given up, want it before")
	}
	close(hang)
	h.awaitDeliveries(first.ID, "delivered", 21)
	for _, w := range []webhook.Webhook{first, second} {
		h.c.Do("DELETE", path("/webhook/%d", w.ID), nil).Want(200)
	}
}

// Private addresses receive nothing unless they are allowed: not directly, not after a redirect, and not if a name resolved
// to another address before.
func (h *hooks) testPrivateNetworks() {
	allowed := receiver.Start(h.TB, func(_ int, _ *receiver.Received, w http.ResponseWriter) int {
		w.Header().Set("Connection", "close") // the name is looked up each time
		return http.StatusInternalServerError
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(allowed.URL, "http://"))
	if err != nil {
		h.Fatal(err)
	}
	var asked, inside atomic.Int64
	server := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }),
		ReadHeaderTimeout: time.Minute,
	}
	h.Cleanup(func() { _ = server.Close() })
	for _, host := range []string{"127.0.0.2", "127.0.0.3"} {
		listener, err := net.Listen("tcp", host+":"+port)
		if err != nil {
			h.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
	}
	changing := names.Add(h, func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.MustParseAddr("127.0.0.2")
	})
	urls := []string{"http://[::ffff:127.0.0.3]:" + port, "http://" + changing + ":" + port}
	for _, host := range []string{"127.0.0.2", "[::ffff:127.0.0.3]", "169.254.169.254"} {
		urls = append(urls, receiver.Start(h.TB, func(_ int, _ *receiver.Received, w http.ResponseWriter) int {
			w.Header().Set("Location", "http://"+host+":"+port)
			return http.StatusTemporaryRedirect
		}).URL)
	}
	var hooks []int64
	for _, url := range urls {
		hooks = append(hooks, h.c.Do("POST", "/webhook", map[string]any{"url": url, "types": "group.created"}).Want(200).ID())
	}
	h.createGroup("Inside")
	for n, id := range hooks {
		testkit.Eventually(h.TB, urls[n]+" is refused", func() bool {
			h.retryNow()
			all := h.listDeliveries(id, "")
			return len(all) == 1 && all[0].Error != nil && strings.Contains(*all[0].Error, "IRONPLANE_ALLOWED_NETWORKS") &&
				all[0].AnswerStatus == nil
		})
		h.c.Do("DELETE", path("/webhook/%d", id), nil).Want(200)
	}
	if allowed.All() == nil || asked.Load() < 2 || inside.Load() > 0 {
		h.Errorf(
			"got %d at the allowed address, %d lookups of its name, %d at the others, want 1 or more, 2 or more, 0",
			len(allowed.All()),
			asked.Load(),
			inside.Load(),
		)
	}
}

func (h *hooks) testInvalidBodies() {
	for url, code := range map[string]string{
		"": "required", "x": "invalid", "ftp://x": "invalid", "https://": "invalid", "https://a:b@x": "invalid", "https://x/#y": "invalid",
	} {
		h.c.Do("POST", "/webhook", map[string]any{"url": url, "types": []string{"group.created"}}).WantErrors("/url", code)
	}
	for _, types := range []any{
		[]string{"grup.created"}, []string{"group"}, []string{"group*"}, []string{"gr*"}, []string{"group.craeted"}, []string{"group."},
		[]string{"admin.permission"},
	} {
		h.c.Do("POST", "/webhook", map[string]any{"url": "https://x", "types": types}).WantErrors("/types", "invalid")
	}
	h.c.Do("POST", "/webhook", `{"url": "https://x", "types": []}`).WantErrors("/types", "required")
	testkit.Execute(
		h.TB,
		h.DB,
		"INSERT INTO webhook (name, url, types, enabled, owner_url) SELECT 'many', 'https://x', '{group.created}', false, '/admin/1' "+
			"FROM generate_series(1, 50)",
	)
	h.c.Do("POST", "/webhook", `{"url": "https://x", "types": ["group.created"]}`).Want(409)
	testkit.Execute(h.TB, h.DB, "DELETE FROM webhook WHERE name = 'many'")
}
