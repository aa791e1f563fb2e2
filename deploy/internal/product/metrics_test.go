package product_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
)

// metricsOf are the names of what an installation counts once it was used.
func metricsOf(t *testing.T, o *operated) string {
	t.Helper()
	o.admin.Do("POST", "/group", map[string]any{"name": "site"}).Want(http.StatusOK)
	producttest.Drain(t, o.product)
	_, text := o.look("/metrics")
	return text
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	text := metricsOf(t, o)
	for _, wants := range []string{
		`ironplane_service_request_seconds_count{method="POST",route="/group",service="network",status="2xx"} 1`,
		`ironplane_database_lock_waits{service="network"} 0`, `ironplane_schema_migration{service="network"} `,
		`ironplane_schema_shared_migration{service="clients"} `, `ironplane_log_last_change_timestamp_seconds{service="system"} 1.`,
		`ironplane_redis_seconds_count{outcome="ok"} `, `ironplane_ready 1`,
	} {
		if !strings.Contains(text, wants) {
			t.Errorf("the metrics lack %s", wants)
		}
	}
}
