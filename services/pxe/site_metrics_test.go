package pxe_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// reportedHealth replaces members of the health that an agent reports. It changes nothing while it is nil.
type reportedHealth struct{ atomic.Pointer[map[string]any] }

func (h *reportedHealth) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replaced := h.Load()
		if r.URL.Path != "/v1/feed" || replaced == nil {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		var feed map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &feed); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for member, value := range *replaced {
			feed["health"].(map[string]any)[member] = value
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(feed)
	})
}

// pollNow makes the service poll all agents soon. A change wakes it.
func pollNow(t *testing.T, s *testkit.RunningService) {
	testkit.Execute(t, s.DB, "UPDATE site_agent SET asked_at = '-infinity' WHERE asked_at < 'infinity'")
	s.Do("POST", "/pxe/shell", map[string]any{"name": rand.Text(), "body": "true"}).Want(200)
}

// A list of servers can be filtered by the health of the agents, which is worse the less they can do.
func TestHealthOfFullDisk(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	var reported reportedHealth
	f := s.fileServer("files", 0, reported.wrap)
	host, port, _ := strings.Cut(strings.TrimPrefix(f.server.URL, "http://"), ":")
	s.Do("POST", "/pxe/dhcp", map[string]any{"name": "dhcp", "host": host, "port": port, "api_key": agentKey}).Want(200)
	for _, step := range []struct {
		health      map[string]any
		status, why string
	}{
		{map[string]any{"free_bytes": 50 << 30, "total_bytes": 100 << 30}, "ok", ""},
		{map[string]any{"free_bytes": 4 << 30, "total_bytes": 100 << 30}, "degraded", ""},
		{map[string]any{"free_bytes": siteagent.MinFreeBytes, "total_bytes": 100 << 30}, "degraded", ""},
		{map[string]any{"free_bytes": siteagent.MinFreeBytes - 1, "total_bytes": 100 << 30}, "failing", "the disk is full: 67 MB are free"},
		{
			map[string]any{"free_bytes": 50 << 30, "total_bytes": 100 << 30, "problems": []string{"one problem", "another problem"}},
			"failing", "one problem; another problem",
		},
		{
			map[string]any{"free_bytes": 50 << 30, "total_bytes": 100 << 30, "problems": []string{"A\x00B"}, "version": "\x00"},
			"failing", "A B",
		},
		{map[string]any{"free_bytes": 50 << 30, "total_bytes": 100 << 30}, "ok", ""},
	} {
		reported.Store(&step.health)
		for _, collection := range []string{"/pxe/file", "/pxe/dhcp"} {
			pollNow(t, s.RunningService)
			testkit.Eventually(t, fmt.Sprintf("%s has one server with the health %s", collection, step.status), func() bool {
				found := testkit.Decode[[]pxe.DHCPServer](s.Do("GET", collection+"?health="+step.status, nil).Want(200))
				if len(found) != 1 {
					return false
				}
				is := testkit.Decode[pxe.DHCPServer](s.Do("GET", path("%s/%d?include=health", collection, found[0].ID), nil).Want(200)).Health
				return step.why == "" && is.Error == nil || is.Error != nil && *is.Error == step.why
			})
			for _, other := range []string{"ok", "degraded", "failing"} {
				if found := testkit.Decode[[]pxe.DHCPServer](s.Do("GET", collection+"?health="+other, nil).Want(200)); other != step.status &&
					len(found) != 0 {
					t.Errorf("got %d servers in %s?health=%s, want none, because the health is %s", len(found), collection, other, step.status)
				}
			}
		}
	}
}

// metricsOf returns a function that reads the service's metrics.
func metricsOf(s *testkit.RunningService) func() string {
	operations := process.NewOperations(pxe.Name)
	s.Show(operations)
	return func() string {
		response := httptest.NewRecorder()
		operations.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return response.Body.String()
	}
}

// awaitMetrics waits until the metrics have all lines.
func awaitMetrics(t *testing.T, s *testkit.RunningService, read func() string, lines ...string) {
	t.Helper()
	pollNow(t, s)
	for _, line := range lines {
		testkit.Eventually(t, "the metrics have "+line, func() bool {
			return strings.Contains("\n"+read(), "\n"+line)
		})
	}
}

// The metrics say of each agent whether it answers, since when not, and what it lacks.
func TestMetricsOfSites(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	var reported reportedHealth
	reported.Store(&map[string]any{"free_bytes": 50 << 30, "total_bytes": 100 << 30})
	f := s.fileServer("files", 0, reported.wrap)
	read := metricsOf(s.RunningService)
	of := func(name string) string {
		return fmt.Sprintf(`%s{id="%d",kind="file",name="files",service="pxe"} `, name, f.id)
	}
	awaitMetrics(t, s.RunningService, read,
		of("ironplane_site_agent_up")+"1\n", of("ironplane_site_agent_failing")+"0\n",
		of("ironplane_site_agent_last_contact_timestamp_seconds")+"1.", of("ironplane_site_agent_feed_lag_seconds"),
		of("ironplane_site_agent_disk_free_bytes")+"5.36870912e+10\n", of("ironplane_site_agent_disk_bytes")+"1.073741824e+11\n",
		`ironplane_site_agents{kind="file",service="pxe",status="ok"} 1`+"\n",
		`ironplane_site_agents{kind="dhcp",service="pxe",status="failing"} 0`+"\n",
	)
	s.sync(f)
	s.awaitSync(f, "it is filled", done)
	awaitMetrics(t, s.RunningService, read, `ironplane_file_syncs{service="pxe",status="done"} 1`+"\n")
	reported.Store(&map[string]any{"problems": []string{"one problem"}})
	awaitMetrics(t, s.RunningService, read, of("ironplane_site_agent_failing")+"1\n", of("ironplane_site_agent_up")+"1\n")
	f.server.Close()
	awaitMetrics(t, s.RunningService, read,
		of("ironplane_site_agent_up")+"0\n", of("ironplane_site_agent_last_contact_timestamp_seconds")+"1.",
		`ironplane_site_agents{kind="file",service="pxe",status="failing"} 1`+"\n")
	s.sync(f)
	awaitMetrics(t, s.RunningService, read, `ironplane_file_syncs{service="pxe",status="retrying"} 1`+"\n")

	// Agents have series of their own, up to a limit. Those that fail come first, and all are counted.
	testkit.Execute(
		t,
		s.DB,
		`INSERT INTO dhcp_server (name, http_host, http_use_https) SELECT 'other ' || n, '127.0.0.1', false FROM generate_series(1, 1000) n`,
	)
	testkit.Execute(t, s.DB, `INSERT INTO site_agent (kind, id, seen_at, asked_at) SELECT 'pxe/dhcp', id, now(), 'infinity' FROM dhcp_server
		ON CONFLICT (kind, id) DO UPDATE SET seen_at = now(), asked_at = 'infinity', error = NULL`)
	text := read()
	if got := strings.Count(text, "\nironplane_site_agent_up{"); got != 500 {
		t.Errorf("got %d agents with series of their own, want 500", got)
	}
	for _, want := range []string{of("ironplane_site_agent_up") + "0\n", `ironplane_site_agents{kind="dhcp",service="pxe",status="ok"} 1000` + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %s in the metrics, want it there", want)
		}
	}
}

// The metrics count installs by their status, and say how long the oldest has been waiting.
func TestMetricsOfInstalls(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	read := metricsOf(b.RunningService)
	awaitMetrics(t, b.RunningService, read,
		`ironplane_installs{service="pxe",status="waiting"} 0`+"\n", `ironplane_installs_oldest_waiting_seconds{service="pxe"} 0`+"\n")
	waiting, cancelled := b.install(""), b.install("")
	awaitMetrics(t, b.RunningService, read, `ironplane_installs{service="pxe",status="waiting"} 2`+"\n")
	b.Do("POST", path("/pxe/install/%d/cancel", cancelled.id), nil).Want(200)
	awaitMetrics(t, b.RunningService, read,
		`ironplane_installs{service="pxe",status="waiting"} 1`+"\n", `ironplane_installs{service="pxe",status="cancelled"} 1`+"\n")
	testkit.Execute(t, b.DB, "UPDATE install SET stage_at = now() - interval '2 hours' WHERE id = $1", waiting.id)
	awaitMetrics(t, b.RunningService, read, `ironplane_installs_oldest_waiting_seconds{service="pxe"} 720`)
	testkit.Execute(t, b.DB, "UPDATE install SET finished_at = now() - interval '2 days' WHERE id = $1", cancelled.id)
	awaitMetrics(t, b.RunningService, read, `ironplane_installs{service="pxe",status="cancelled"} 0`+"\n")
}
