package system_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system/setting"
)

// settingOf returns a setting as its group shows it.
func settingOf(t testing.TB, c *testkit.Client, slug string) setting.Setting {
	t.Helper()
	for _, group := range testkit.Decode[[]setting.SettingGroup](c.Do("GET", "/setting-group", nil).Want(200)) {
		for _, s := range group.Settings {
			if s.Slug == slug {
				return s
			}
		}
	}
	t.Fatalf("got no setting %s, want one", slug)
	return setting.Setting{}
}

// choose sets a setting.
func choose(t testing.TB, c *testkit.Client, slug string, value any) {
	t.Helper()
	c.Do("PATCH", fmt.Sprintf("/system/setting/%d", settingOf(t, c, slug).ID), map[string]any{"value": value}).Want(200)
}
