package host_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// operations collects the metrics of a service.
type operations struct{ *prometheus.Registry }

func (operations) Check(...health.Check) {}

// failures returns how often the task that follows the maintenance has failed.
func (o operations) failures(t *testing.T) (n float64) {
	t.Helper()
	families, err := o.Gather()
	if err != nil {
		t.Log(err) // metrics of the database are missing while it is away
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "ironplane_job_failures_total" && label.GetValue() == "follow-maintenance" {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// A service needs no other service to know of maintenance. It keeps the last state when it restarts, and while it cannot read it.
func TestMaintenanceIsKept(t *testing.T) {
	t.Parallel()
	s := testkit.Run(t, service.Definition{Name: "network"}, testkit.ServiceOptions{})
	turn := func(active bool) {
		t.Helper()
		testkit.Must(t, s.DB.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("a test")
			return host.StoreMaintenance(t.Context(), tx, host.MaintenanceState{Active: active, Since: time.Now(), Reason: "A disk is replaced."})
		}))
	}
	change := func() (status int, text string) { // to a path that does not exist: outside maintenance it is a 404
		r := httptest.NewRequest(http.MethodPost, "/nothing", nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), &principal.Call{RequestID: "test"})))
		return w.Code, w.Body.String()
	}
	isRefused := func() bool { status, _ := change(); return status == http.StatusServiceUnavailable }
	wantRefusal := func() {
		t.Helper()
		if status, text := change(); status != http.StatusServiceUnavailable || !strings.Contains(text, "Reason: A disk is replaced.") {
			t.Fatalf("got %d %s, want 503 with the reason", status, text)
		}
	}
	if status, text := change(); status != http.StatusNotFound {
		t.Fatalf("got %d %s, want 404", status, text)
	}
	turn(true)
	testkit.Eventually(t, "it refuses changes", isRefused)

	s, err := s.Restart(service.Settings{}, nil)
	testkit.Must(t, err)
	wantRefusal()

	shown := operations{prometheus.NewRegistry()}
	s.Show(shown)
	testkit.Execute(t, s.DB, "ALTER TABLE maintenance RENAME TO away")
	testkit.Eventually(t, "it cannot read the state", func() bool { return shown.failures(t) > 0 })
	wantRefusal()

	testkit.Execute(t, s.DB, "ALTER TABLE away RENAME TO maintenance")
	turn(false)
	testkit.Eventually(t, "it accepts changes", func() bool { return !isRefused() })
}
