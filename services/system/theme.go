package system

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/license"
	"github.com/ironplane/ironplane/services/system/setting"
	"github.com/ironplane/ironplane/services/system/theme"
)

// ThemeOptions are the appearance of panels.
type ThemeOptions struct {
	Allowed  bool   `json:"allowed" doc:"Whether the theme can be changed: the license includes themes, or there is no license."`
	SiteName string `json:"site_name" ext:"true" doc:"The setting site_name."`
	Theme    Theme  `json:"theme" doc:"The theme. Members that are not set are left out."`
}

// ContentTagged lets callers cache the response.
func (ThemeOptions) ContentTagged() {}

// Theme is the theme that operators set.
type Theme struct {
	CustomAdminHTML    *string `json:"custom_admin_html,omitempty" doc:"HTML for the admin panel."`
	CustomClientHTML   *string `json:"custom_client_html,omitempty" doc:"HTML for the client panel."`
	CustomCSS          *string `json:"custom_css,omitempty" doc:"A style sheet for all panels."`
	LinkColor          *string `json:"link_color,omitempty" doc:"The colour of links."`
	Logo               *string `json:"logo,omitempty" doc:"The URL of the logo."`
	MainBackground     *string `json:"main_bg,omitempty" doc:"The background colour of pages."`
	NavBackground      *string `json:"nav_bg,omitempty" doc:"The background colour of the navigation bar."`
	PanelAltBackground *string `json:"panel_alt_bg,omitempty" doc:"The alternative background colour of panels."`
	PanelBackground    *string `json:"panel_bg,omitempty" doc:"The background colour of panels."`
	SideNavBackground  *string `json:"side_nav_bg,omitempty" doc:"The background colour of the side navigation."`
	TextColor          *string `json:"text_color,omitempty" doc:"The colour of texts."`
}

// themeBody is the body that changes the theme.
type themeBody struct {
	Theme chosenTheme `json:"theme" doc:"The members to change. They can also be sent without this object."`
}

// chosenTheme is a Theme as callers send it.
type chosenTheme struct {
	CustomAdminHTML    *string `json:"custom_admin_html" db:"custom_admin_html" alias:"custom_admin_html" max:"65536" lines:"true" example:"<p>On call: Anna.</p>" doc:"HTML for the admin panel. Everything is removed that runs, loads from other hosts, or has an id or name."`
	CustomClientHTML   *string `json:"custom_client_html" db:"custom_client_html" alias:"custom_client_html" max:"65536" lines:"true" example:"<p>Questions? <a href=\"mailto:help@example.com\">Ask us.</a></p>" doc:"HTML for the client panel. Everything is removed that runs, loads from other hosts, or has an id or name."`
	CustomCSS          *string `json:"custom_css" db:"custom_css" alias:"custom_css" max:"65536" lines:"true" example:".nav { font-weight: bold }" doc:"A style sheet for all panels. It must not load files: url(…), @import and backslashes are refused."`
	LinkColor          *string `json:"link_color" db:"link_color" alias:"link_color" example:"#1d7ed8" doc:"The colour of links, as a CSS colour."`
	Logo               *string `json:"logo" db:"logo" alias:"logo" max:"2048" example:"https://example.com/logo.svg" doc:"The URL of the logo. It must begin with https:// or be a path on the same host."`
	MainBackground     *string `json:"main_bg" db:"main_bg" alias:"main_bg" example:"#1d9ed8" doc:"The background colour of pages, as a CSS colour."`
	NavBackground      *string `json:"nav_bg" db:"nav_bg" alias:"nav_bg" example:"#1daed8" doc:"The background colour of the navigation bar, as a CSS colour."`
	PanelAltBackground *string `json:"panel_alt_bg" db:"panel_alt_bg" alias:"panel_alt_bg" example:"#1dbed8" doc:"The alternative background colour of panels, as a CSS colour."`
	PanelBackground    *string `json:"panel_bg" db:"panel_bg" alias:"panel_bg" example:"#1dced8" doc:"The background colour of panels, as a CSS colour."`
	SideNavBackground  *string `json:"side_nav_bg" db:"side_nav_bg" alias:"side_nav_bg" example:"#1dded8" doc:"The background colour of the side navigation, as a CSS colour."`
	TextColor          *string `json:"text_color" db:"text_color" alias:"text_color" example:"#1deed8" doc:"The colour of texts, as a CSS colour."`
}

// Resolve sanitises HTML, and checks the style sheet, the logo and the colours, because other people's browsers load them.
func (b *themeBody) Resolve(invalid *problem.Fields) {
	t := &b.Theme
	for _, html := range []**string{&t.CustomAdminHTML, &t.CustomClientHTML} {
		if *html != nil {
			clean := theme.HTML(**html)
			*html = &clean
		}
	}
	for _, c := range []struct {
		member string
		text   *string
		check  func(string) error
	}{
		{"custom_css", t.CustomCSS, theme.CheckCSS}, {"logo", t.Logo, theme.CheckLogo}, {"link_color", t.LinkColor, theme.CheckColour},
		{"main_bg", t.MainBackground, theme.CheckColour}, {"nav_bg", t.NavBackground, theme.CheckColour},
		{"panel_alt_bg", t.PanelAltBackground, theme.CheckColour}, {"panel_bg", t.PanelBackground, theme.CheckColour},
		{"side_nav_bg", t.SideNavBackground, theme.CheckColour}, {"text_color", t.TextColor, theme.CheckColour},
	} {
		if c.text == nil || *c.text == "" {
			continue
		}
		if err := c.check(*c.text); err != nil {
			invalid.Add("/theme/"+c.member, "invalid", "%s", err)
		}
	}
}

// customizeRequest is the request to change the theme.
type customizeRequest struct {
	Body rest.Body[themeBody]
}

func (s *Service) themeRoutes() []rest.Route {
	const path = "/system/theme/customize"
	return []rest.Route{
		rest.Read[rest.None, ThemeOptions]{Path: path, Guard: guard.Public, Name: "getTheme", Summary: "View the theme",
			Do: func(ctx context.Context, _ rest.None) (ThemeOptions, error) { return s.theme(ctx, s.db) }},
		rest.Mutation[customizeRequest, ThemeOptions]{
			Method:  http.MethodPost,
			Path:    path,
			Guard:   guard.Has(permission.SystemTheme),
			Name:    "customizeTheme",
			Summary: "Change the theme",
			Doc:     "Members that are not sent keep their values, and null clears them. Scripts in HTML are removed. The theme is public.",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
			Do:      s.customize,
		},
	}
}

// sanitizeTheme sanitises HTML that an earlier version accepted.
func sanitizeTheme(ctx context.Context, db *pg.DB) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("an upgrade sanitises what is stored")
		var admin, client *string
		if err := tx.QueryRow(ctx, "SELECT custom_admin_html, custom_client_html FROM theme FOR UPDATE").Scan(&admin, &client); err != nil {
			return fmt.Errorf("read the theme: %w", err)
		}
		isClean := true
		for _, html := range []*string{admin, client} {
			if html != nil {
				clean := theme.HTML(*html)
				isClean, *html = isClean && clean == *html, clean
			}
		}
		if isClean {
			return nil
		}
		if _, err := tx.Exec(ctx, "UPDATE theme SET custom_admin_html = $1, custom_client_html = $2", admin, client); err != nil {
			return fmt.Errorf("sanitise the theme: %w", err)
		}
		return nil
	})
}

const themeColumns = "custom_admin_html, custom_client_html, custom_css, link_color, logo, main_bg, nav_bg, panel_alt_bg, panel_bg, " +
	"side_nav_bg, text_color"

// theme returns the present theme.
func (s *Service) theme(ctx context.Context, q pg.Querier) (options ThemeOptions, err error) {
	t := &options.Theme
	err = q.QueryRow(ctx, "SELECT "+themeColumns+" FROM theme").
		Scan(
			&t.CustomAdminHTML, &t.CustomClientHTML, &t.CustomCSS, &t.LinkColor, &t.Logo, &t.MainBackground, &t.NavBackground,
			&t.PanelAltBackground, &t.PanelBackground, &t.SideNavBackground, &t.TextColor,
		)
	if err != nil {
		return options, fmt.Errorf("read the theme: %w", err)
	}
	licensed, err := s.licensing.read(ctx, q)
	if err != nil {
		return options, err
	}
	values, err := setting.Values(ctx, q)
	options.Allowed, options.SiteName = licensed.HasEnterprise || licensed.State == license.None, settings.SiteName.In(values)
	return options, err
}

// customize changes the theme if the license allows it.
func (s *Service) customize(ctx context.Context, tx *pg.Tx, req customizeRequest) (ThemeOptions, error) {
	if _, err := tx.Exec(ctx, "SELECT FROM theme FOR UPDATE"); err != nil {
		return ThemeOptions{}, err
	}
	before, err := s.theme(ctx, tx)
	if err != nil {
		return before, err
	}
	if !before.Allowed {
		return before, problem.New(problem.Forbidden, "The license does not include themes.")
	}
	body, err := req.Body.Merge(&themeBody{chosenTheme(before.Theme)}, before)
	if err != nil {
		return before, err
	}
	t := body.Theme
	_, err = tx.Exec(
		ctx,
		`
		UPDATE theme SET version = version + 1,
			custom_admin_html = nullif(@custom_admin_html, ''), custom_client_html = nullif(@custom_client_html, ''),
			custom_css = nullif(@custom_css, ''), link_color = nullif(@link_color, ''), logo = nullif(@logo, ''),
			main_bg = nullif(@main_bg, ''), nav_bg = nullif(@nav_bg, ''), panel_alt_bg = nullif(@panel_alt_bg, ''),
			panel_bg = nullif(@panel_bg, ''), side_nav_bg = nullif(@side_nav_bg, ''), text_color = nullif(@text_color, '')`,
		pgx.StrictNamedArgs{
			"custom_admin_html": t.CustomAdminHTML, "custom_client_html": t.CustomClientHTML,
			"custom_css": t.CustomCSS, "link_color": t.LinkColor, "logo": t.Logo,
			"main_bg": t.MainBackground, "nav_bg": t.NavBackground, "panel_alt_bg": t.PanelAltBackground,
			"panel_bg": t.PanelBackground, "side_nav_bg": t.SideNavBackground, "text_color": t.TextColor,
		},
	)
	if err != nil {
		return before, err
	}
	after, err := s.theme(ctx, tx)
	if reflect.DeepEqual(after, before) {
		tx.Unrecorded("the theme did not change")
		return after, err
	}
	tx.Record(pg.Record{Kind: "system.theme", Action: pg.Edited, Before: before, After: after,
		Targets: []pg.Target{{Type: "system/theme/customize", Noun: "theme", ID: 1, Name: after.SiteName}}})
	return after, err
}
