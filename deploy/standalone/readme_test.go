package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/tour"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestReadmeTour runs the commands of these pages in one shell, on a product without data. Each page continues where the one before it
// ended.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")})
	key := r.key()
	if !strings.HasPrefix(r.URL, "http://localhost:") {
		t.Errorf("got the address %s, want localhost, where passkeys work", r.URL)
	}
	testkit.Eventually(t, "a link leads to the console", func() bool {
		link := r.client(key).Do("GET", "/auth/sso", nil)
		return link.Status == 200 && strings.Contains(link.Text, `"url":"`+r.URL+`/-/console/auth/sso#key=`)
	})
	tour.Run(t, "../..", r.URL, "ADMIN="+key+"\nKEY=$ADMIN",
		"README.md", "docs/do/address-plan.md", "docs/do/sell.md", "docs/do/resell.md", "docs/do/webhooks.md", "docs/operate/keys.md")
}
