package network_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// The metrics count the entities of all groups by their status at that time, whether or not the counts are folded.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newStand(t)
	ben := c.client("ben")
	for _, name := range []string{"Berlin", "Bern"} {
		group := c.Do("POST", "/group", path(`{"name": "%s"}`, name)).Want(200).ID()
		c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "10.0.0.1", "to": "10.0.0.5"}`).Want(200)
		c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "10.0.0.6", "to": "10.0.0.8", "status": "reserved"}`).Want(200)
		for _, e := range testkit.Decode[[]network.IPEntity](
			c.Do("POST", path("/group/%d/allocate", group), path(`{"count": 4, "owner": {"id": %d}}`, ben)).Want(200))[:3] {
			c.release(e.ID)
		}
	}
	testkit.Execute(t, c.DB, "UPDATE ip_assignment SET available_at = now() WHERE entity_id = 1")
	service := network.New(c.DB, box, agreeing{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(service.Metrics()...)
	for range 2 {
		shown := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(shown, httptest.NewRequest("GET", "/metrics", nil))
		for _, want := range []string{"available 3", "assigned 2", "reserved 6", "quarantined 5"} {
			if !strings.Contains(shown.Body.String(), "ironplane_ip_entities_"+want+"\n") {
				t.Errorf("got %s, want ironplane_ip_entities_%s", shown.Body, want)
			}
		}
		testkit.Must(t, service.FoldCounts(t.Context()))
	}
}
