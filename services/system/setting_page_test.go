package system_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system/setting"
)

var bound = regexp.MustCompile(`(min|max):(\d+)`)

// The page of settings has each setting with its default and bounds, and no others.
func TestSettingsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Count(string(page), "\n| `")
	answer := run(t, service.Settings{}).Client.Do("GET", "/setting-group", nil).Want(200)
	for _, group := range testkit.Decode[[]setting.SettingGroup](answer) {
		for _, s := range group.Settings {
			rows--
			if row := settingRow(s); !strings.Contains(string(page), "\n"+row) {
				t.Errorf("got no row for %s in docs/reference/settings.md, want one that starts with %s", s.Slug, row)
			}
		}
	}
	if rows != 0 {
		t.Errorf("got %d rows more than settings, want a row for each setting", rows)
	}
}

// settingRow returns how the row of a setting starts.
func settingRow(s setting.Setting) string {
	text := ""
	if s.Default != "" {
		text = " `" + s.Default + "`"
	}
	if s.Type == "Checkbox" {
		return fmt.Sprintf("| `%s` |%s | 0, 1 |", s.Slug, text)
	}
	bounds := "read-only"
	if found := bound.FindAllStringSubmatch(*s.Validator, 2); len(found) == 2 {
		bounds = found[0][2] + " to " + found[1][2]
	}
	return fmt.Sprintf("| `%s` |%s | %s", s.Slug, text, bounds)
}
