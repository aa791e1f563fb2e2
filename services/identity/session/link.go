package session

import (
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
)

// LinkTTL is how long a link or a code signs in.
const LinkTTL = time.Minute

// SSOLink signs in the first browser that follows it.
type SSOLink struct {
	URL       string         `json:"url" doc:"of the panel; the code stands behind the #, which no server gets"`
	ExpiresAt rest.Timestamp `json:"expires_at"`
}

// RedirectTo sends a browser to the panel.
func (l SSOLink) RedirectTo() string { return l.URL }

// Panel returns the address of the panel for accounts of a type; empty where there is none.
func Panel(values settings.Values, t principal.OwnerType) string {
	return strings.TrimRight(panels[t].In(values), "/")
}

// panels are the settings that hold the panels' addresses.
var panels = map[principal.OwnerType]settings.Text{principal.Admin: settings.AdminURL, principal.Client: settings.ClientURL}

// ErrNoPanel returns the refusal of a link to a panel that does not exist.
func ErrNoPanel(t principal.OwnerType) error {
	at, has := panels[t]
	if !has {
		return problem.New(problem.Invalid, "Integrations have no panel.")
	}
	return problem.New(
		problem.Invalid,
		"There is no panel to lead to: the setting %s is empty, which IRONPLANE_%s says.",
		at.Slug,
		strings.ToUpper(at.Slug),
	)
}
