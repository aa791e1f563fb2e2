package gateway

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/settings"
)

// The page loads nothing, and its policy lets its own script and style be used and no other.
func TestPasswordPage(t *testing.T) {
	t.Parallel()
	g := &Gateway{settings: &settings.Follower{}}
	answer := httptest.NewRecorder()
	g.password(answer, httptest.NewRequest(http.MethodGet, passwordPath, nil))
	page, policy := answer.Body.String(), answer.Header().Get("Content-Security-Policy")
	if regexp.MustCompile(`(src|href|action|url\()\s*=?`).MatchString(strings.ReplaceAll(page, "location", "")) {
		t.Error("the page loads something")
	}
	for tag, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		text := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		if len(text) != 1 || !strings.Contains(policy, directive+" '"+hashSource(text[0][1])+"';") {
			t.Errorf("the policy %s does not name the only %s", policy, tag)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the policy is %s", policy)
	}
	if !strings.Contains(page, "<title>Ironplane</title>") || strings.Contains(page, "%!") {
		t.Errorf("the page is %s", page)
	}
}
