package product_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// metricsOf returns the names of the metrics of an installation that was used.
func metricsOf(t *testing.T, o *operated) string {
	t.Helper()
	o.admin.Do("POST", "/group", map[string]any{"name": "site"}).Want(http.StatusOK)
	producttest.AwaitLog(t, o.product)
	_, text := o.look("/metrics")
	return text
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	text := metricsOf(t, o)
	for _, wants := range []string{
		`ironplane_service_request_seconds_count{method="POST",route="/group",service="network",status="2xx"} 1`,
		`ironplane_schema_migration{service="network"} `,
		`ironplane_schema_shared_migration{service="clients"} `, `ironplane_log_last_change_timestamp_seconds{service="system"} 1.`,
		`ironplane_redis_seconds_count{outcome="ok"} `, `ironplane_ready 1`,
	} {
		if !strings.Contains(text, wants) {
			t.Errorf("got no %s in the metrics, want it there", wants)
		}
	}
}

// A session that waits for a lock is counted while it waits. Other sessions may wait briefly at any time.
func TestLockWaits(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	counts := func(value string) {
		t.Helper()
		metric := regexp.MustCompile(`(?m)^ironplane_database_lock_waits\{service="network"\} ` + value + `$`)
		testkit.Eventually(t, "lock waits are "+value, func() bool {
			_, text := o.look("/metrics")
			return metric.MatchString(text)
		})
	}
	counts("0")
	speed := o.admin.Do("POST", "/port-speed", `{"name": "before", "speed": 1, "billing_id": "b"}`).Want(http.StatusOK).ID()
	unlock := holdSpeed(t, o.product.Databases[network.Name], speed)
	changed := make(chan error, 1)
	go func() {
		answer, err := o.admin.Try("PATCH", path("/port-speed/%d", speed), `{"name": "after", "speed": 1, "billing_id": "b"}`)
		if err == nil && answer.Status != http.StatusOK {
			err = errors.New(answer.Text)
		}
		changed <- err
	}()
	counts("[1-9][0-9]*")
	unlock()
	if err := <-changed; err != nil {
		t.Error(err)
	}
	counts("0")
}

const monitoring = "../../monitoring/"

var metricName = regexp.MustCompile(`\bironplane_[a-z_]+`)

// Alerts and dashboards name only metrics that exist.
func TestMonitoringNamesMetrics(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	existing := metricsOf(t, o)
	for _, elsewhere := range []string{
		"pkg/runtime/process/certificate.go", "pkg/postgres/pool/pool.go", "pkg/runtime/host/host.go", "pkg/jobs/runner.go",
		"services/pxe/metrics.go", "services/pxe/siteagent/share/refusals.go",
	} { // metrics that appear only after an event, or in a site agent
		text, err := os.ReadFile("../../../" + elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?:Name: +|Gauge\([a-z.]+, )"(ironplane_[a-z_]+)"`).FindAllSubmatch(text, -1) {
			existing += "\n" + string(found[1]) + " "
		}
	}
	for _, file := range []string{"alerts.yml", "grafana.json", "grafana-sites.json"} {
		text, err := os.ReadFile(monitoring + file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(text), -1)
		if len(names) < 10 {
			t.Errorf("%s: got %d metrics, want at least 10", file, len(names))
		}
		for _, name := range names {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "_count"), "_bucket")
			if !strings.Contains(existing, "\n"+name) {
				t.Errorf("%s: got %s, want a metric that the product has", file, name)
			}
		}
	}
}

// Each alert has a section in the runbook, and each section has an alert.
func TestRunbook(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile(monitoring + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../../docs/operate/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string, text []byte) (names []string) {
		for _, found := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
		return names
	}
	names := find(`alert: (\w+)`, alerts)
	if sections := find(`(?m)^## (\w+)$`, runbook); !slices.Equal(names, sections) || len(names) == 0 {
		t.Errorf("got the sections\n%v\nin the runbook, want the alerts\n%v", sections, names)
	}
	for _, name := range names {
		if !strings.Contains(string(alerts), "docs/operate/runbook.md#"+strings.ToLower(name)) {
			t.Errorf("%s: got no link to its section, want docs/operate/runbook.md#%s", name, strings.ToLower(name))
		}
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed; Debian's package prometheus has it")
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", monitoring+"alerts_test.yml").CombinedOutput(); err != nil {
		t.Errorf("got %v, want the tests of the alerts to pass:\n%s", err, out)
	}
}
