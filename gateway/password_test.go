package gateway

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/settings"
)

// The gateway's own pages load nothing, and their policies allow their own script and style only.
func TestPasswordPage(t *testing.T) { testPage(t, passwordPath) }

func TestAdoptPage(t *testing.T) { testPage(t, adoptPath) }

func testPage(t *testing.T, path string) {
	t.Helper()
	t.Parallel()
	g := &Gateway{settings: &settings.Follower{}}
	response := httptest.NewRecorder()
	g.ownRoutes().ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
	page, policy := response.Body.String(), response.Header().Get("Content-Security-Policy")
	if regexp.MustCompile(`(src|href|action|url\()\s*=?`).MatchString(strings.ReplaceAll(page, "location", "")) {
		t.Error("got a page that loads something, want one that loads nothing")
	}
	for tag, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		text := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		if len(text) != 1 || !strings.Contains(policy, directive+" '"+hashSource(text[0][1])+"';") {
			t.Errorf("got the policy %s and %d %s tags, want one tag that the policy names", policy, len(text), tag)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("got the policy %s, want default-src 'none', nothing unsafe and no frames", policy)
	}
	if !strings.Contains(page, "<title>Ironplane</title>") || strings.Contains(page, "%!") {
		t.Errorf("got the page %s, want the title Ironplane and no failed verbs", page)
	}
}
