package pxe_test

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
)

// The health and the reports of an agent are stored once, and deleted with its server.
func TestAgentHealth(t *testing.T) {
	t.Parallel()
	s := newSites(t)
	f := s.fileServer("files", 0, unchanged)
	host, port, _ := strings.Cut(strings.TrimPrefix(f.server.URL, "http://"), ":")
	dhcp := s.Do("POST", "/pxe/dhcp", map[string]any{"name": "dhcp", "host": host, "port": port, "api_key": "a wrong one"}).Want(200).ID()
	until := func(path string, is func(pxe.DHCPServer) bool) (got pxe.DHCPServer) {
		t.Helper()
		return testkit.Await(t, "the health of "+path+" is as wanted", func() pxe.DHCPServer {
			testkit.Execute(t, s.DB, "UPDATE site_agent SET asked_at = '-infinity'")
			return testkit.Decode[pxe.DHCPServer](s.Do("GET", path+"?include=health", nil).Want(200))
		}, is)
	}
	at := path("/pxe/file/%d", f.id)
	etag := s.Do("GET", at, nil).Want(200).Header.Get("ETag")
	got := until(at, func(is pxe.DHCPServer) bool { return is.Health.Status == "ok" || is.Health.Status == "degraded" })
	if h := got.Health; *h.Version != "1.2.3" || *h.FreeBytes <= 0 || *h.TotalBytes < *h.FreeBytes || h.SeenAt == nil || h.StartedAt == nil ||
		len(h.Reports) != 1 ||
		!strings.Contains(h.Reports[0], "The agent started") {
		t.Errorf("got %+v, want version 1.2.3, free and total bytes, both times, and one report that it started", h)
	}
	if now := s.Do("GET", at, nil).Want(200).Header.Get("ETag"); now != etag {
		t.Errorf("got the ETag %s after the agent's health changed, want %s", now, etag)
	}
	failing := func(why string) func(pxe.DHCPServer) bool {
		return func(is pxe.DHCPServer) bool {
			return is.Health.Status == "failing" && strings.HasPrefix(*is.Health.Error, why)
		}
	}
	until(path("/pxe/dhcp/%d", dhcp), failing("The request needs the agent's API key, or a token that has not expired."))
	if found := testkit.Decode[[]pxe.DHCPServer](
		s.Do("GET", "/pxe/dhcp?health=failing", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != dhcp {
		t.Errorf("got the failing DHCP servers %+v, want server %d", found, dhcp)
	}
	s.sync(f)
	s.awaitSync(f, "it is filled", done)
	f.server.Close()
	got = until(at, failing("the connection failed"))
	if h := got.Health; h.Version == nil || len(h.Reports) != 1 {
		t.Errorf("got the error %s of %+v, want the version and the one report to stay", *h.Error, h)
	}
	s.Do("DELETE", at, nil).Want(200)
	s.Do("GET", at, nil).Want(int(problem.NotFound))
	testkit.Eventually(t, "the health of the deleted server is deleted", func() (none bool) {
		testkit.Execute(t, s.DB, "UPDATE site_agent SET asked_at = '-infinity'")
		testkit.Must(t, s.DB.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM site_agent WHERE kind = 'pxe/file')").Scan(&none))
		return none
	})
}
