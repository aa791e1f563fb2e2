package session

import (
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// LinkTTL is how long a link or a code can be used to sign in.
const LinkTTL = time.Minute

// SSOLink is a link that signs in the first browser that follows it.
type SSOLink struct {
	URL       string         `json:"url" doc:"The panel's address, with a code behind the #, which browsers send to no server."`
	ExpiresAt rest.Timestamp `json:"expires_at"`
}

// RedirectTo returns the panel's address for browsers.
func (l SSOLink) RedirectTo() string { return l.URL }

// PanelURL returns the address of the panel for accounts of a type, or "" if there is none.
func PanelURL(values settings.Values, t principal.OwnerType) string {
	return strings.TrimRight(panelSettings[t].In(values), "/")
}

// panelSettings are the settings with the panels' addresses.
var panelSettings = map[principal.OwnerType]settings.Text{principal.Admin: settings.AdminURL, principal.Client: settings.ClientURL}

// ErrNoPanel returns the refusal of a link to a panel that does not exist.
func ErrNoPanel(t principal.OwnerType) error {
	setting, exists := panelSettings[t]
	if !exists {
		return problem.New(problem.Invalid, "Integrations have no panel.")
	}
	return problem.New(
		problem.Invalid,
		"There is no panel: the setting %s is empty. Set it with IRONPLANE_%s.",
		setting.Slug,
		strings.ToUpper(setting.Slug),
	)
}
