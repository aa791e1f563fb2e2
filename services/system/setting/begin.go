package setting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

// InitializeAtStart sets settings from environment variables, unless an operator has set them before. It also stores the
// addresses that the process is configured with, so that operators can read them.
func InitializeAtStart(ctx context.Context, d service.Deps) error {
	if d.Console != "" && d.Console != "on" && d.Console != "off" {
		return fmt.Errorf("IRONPLANE_CONSOLE is %q, but must be on or off", d.Console)
	}
	return d.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no setting changed")
		if err := lockSettings(ctx, tx); err != nil {
			return err
		}
		fresh := map[string]bool{}
		rows, err := tx.Query(ctx, "SELECT slug FROM setting WHERE fresh")
		if err != nil {
			return err
		}
		slug := ""
		if _, err := pgx.ForEachRow(rows, []any{&slug}, func() error { fresh[slug] = true; return nil }); err != nil {
			return err
		}
		for variable, text := range d.Variables {
			s, err := settingView.Find(ctx, tx, "slug = $1", settings.FindSlug(variable))
			if err != nil {
				return fmt.Errorf("find the setting of %s: %w", variable, err)
			}
			if !fresh[s.Slug] {
				d.Log.Warn("environment variable ignored: the setting takes precedence", "variable", variable, "setting", s.Slug, "value", s.Text)
				continue
			}
			if s.Type == "Checkbox" {
				text = strings.NewReplacer("true", "1", "false", "0").Replace(text)
			}
			if _, message := s.validate(&text); message != "" {
				return fmt.Errorf("%s is %q, but %s", variable, text, message)
			}
			if err := s.write(ctx, tx, &text); err != nil {
				return err
			}
		}
		console := consoleURL(d.Settings)
		for slug, text := range map[string]string{
			"api_url": d.APIURL, "client_url": cmp.Or(d.ClientURL, console), "admin_url": cmp.Or(d.AdminURL, console),
		} {
			s, err := settingView.Find(ctx, tx, "slug = $1", slug)
			if err != nil {
				return err
			}
			if err := s.write(ctx, tx, &text); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, "UPDATE setting SET fresh = false WHERE fresh")
		return err
	})
}

// CheckURLs fails if a URL in the environment is none.
func CheckURLs(s service.Settings) (invalid error) {
	for _, v := range [][2]string{{"API", s.APIURL}, {"CLIENT", s.ClientURL}, {"ADMIN", s.AdminURL}} {
		name, text := v[0], v[1]
		if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			invalid = errors.Join(invalid,
				fmt.Errorf("IRONPLANE_%s_URL is %q, but must be a URL such as https://panel.example.com", name, text))
		}
	}
	return invalid
}

// consoleURL returns the console's address, or "" if it is off or the API's address is unknown.
func consoleURL(s service.Settings) string {
	if s.Console != "on" || s.APIURL == "" {
		return ""
	}
	return strings.TrimRight(s.APIURL, "/") + settings.ConsolePath
}
