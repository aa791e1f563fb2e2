// Package setting keeps the settings that operators can change while the installation runs.
package setting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Setting is an option that operators can change while the installation runs.
type Setting struct {
	rest.Versioned
	ID        int64   `json:"id" db:"id"`
	Name      string  `json:"name" db:"name"`
	Slug      string  `json:"slug" db:"slug"`
	Type      string  `json:"type" db:"type" enum:"Text,Textarea,Select,Checkbox" doc:"The form field for the setting."`
	Options   *string `json:"options,omitempty" db:"options" doc:"The options of a Select, separated by commas."`
	Validator *string `json:"validator,omitempty" db:"validator" doc:"The rules for the text, such as integer|min:1|max:100. readonly: the setting shows the configuration of the processes."`
	Value     *int64  `json:"value,omitempty" db:"value" doc:"The value as a number: a Select's option counted from 0, a Checkbox's 0 or 1, or an integer. Left out of other settings."`
	Text      string  `json:"text" db:"text" doc:"The value as a text. For a Select, the option."`
	Default   string  `json:"default" db:"default_value" doc:"The text while the setting is not set."`
}

// SettingGroup is a group of settings that panels show together.
type SettingGroup struct {
	rest.Versioned
	ID       int64       `json:"id" db:"id"`
	Name     string      `json:"name" db:"name"`
	Parent   *int64      `json:"parent,omitempty" db:"parent" doc:"The id of the setting below which panels show the group."`
	Settings settingList `json:"settings" db:"settings" doc:"The group's settings."`
}

// settingList is a list of settings that the database returns as JSON.
type settingList []Setting

// Scan implements sql.Scanner.
func (s *settingList) Scan(from any) error {
	text, ok := from.([]byte)
	if plain, is := from.(string); is {
		text, ok = []byte(plain), true
	}
	if !ok {
		return fmt.Errorf("scan settings: got %T, want a string or bytes", from)
	}
	return json.Unmarshal(text, s)
}

// settingBody is the body that sets a setting. Value is a number or a text. null stands for the default.
type settingBody struct {
	Value *string `json:"value" max:"10000" lines:"true" example:"Example Hosting" doc:"The value as a number or a text. null: the default."`
	Text  *string `json:"text" max:"10000" lines:"true" ext:"true" doc:"The value as a text. If both are sent, the one that differs from the present setting takes precedence."`
}

// groupBody is the body that sets several settings of a group.
type groupBody struct {
	Settings []chosenSetting `json:"settings" example:"[{\"slug\": \"site_name\", \"value\": \"Example Hosting\"}]" doc:"The settings to change."`
}

// chosenSetting sets one setting of a group.
type chosenSetting struct {
	ID   *int64  `json:"id" example:"1"`
	Slug *string `json:"slug" example:"site_name" doc:"The setting's slug, instead of its id."`
	settingBody
}

// Settings implements the operations on settings.
type Settings struct {
	DB        *pg.DB
	Peers     mesh.Peers
	SendsMail bool // whether an SMTP server is configured
}

// siteGroup is the group that every key may read.
const siteGroup = 1

var (
	settingView      = pg.NewView[Setting]("setting_view")
	settingGroupView = pg.NewView[SettingGroup]("setting_group_view")
)

// Routes returns the routes for operators, and the internal route from which processes read all settings.
func (s *Settings) Routes() []rest.Route {
	const one, group = "/system/setting/{setting_id}", "/setting-group/{setting_group_id}"
	return []rest.Route{
		rest.List[rest.None, SettingGroup]{
			Path:    "/setting-group",
			Guard:   guard.EveryKey,
			Name:    "listSettingGroups",
			Summary: "List setting groups",
			View:    "setting_group_view",
			Where: func(ctx context.Context, _ rest.None) ([]pg.Condition, error) {
				if mayReadGroup(ctx, 0) != nil {
					return []pg.Condition{{SQL: "id = $1", Args: []any{siteGroup}}}, nil
				}
				return nil, nil
			},
		},
		rest.Read[rest.Item, SettingGroup]{Path: group, Guard: guard.EveryKey, Name: "getSettingGroup", Summary: "View a setting group",
			Do: func(ctx context.Context, req rest.Item) (SettingGroup, error) {
				if err := mayReadGroup(ctx, req.ID); err != nil {
					return SettingGroup{}, err
				}
				return settingGroupView.Get(ctx, s.DB, req.ID)
			}},
		rest.Mutation[rest.EditItem[groupBody], SettingGroup]{
			Method:    http.MethodPatch,
			Path:      group,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "updateSettingGroup",
			Summary:   "Edit the settings of a group",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetrySafe, ViewPath: group},
			Do:        s.chooseGroup,
		},
		rest.Read[rest.Item, Setting]{
			Path:      one,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "getSetting",
			Summary:   "View a setting",
			Extension: true,
			Do:        func(ctx context.Context, req rest.Item) (Setting, error) { return settingView.Get(ctx, s.DB, req.ID) },
		},
		rest.Mutation[rest.EditItem[settingBody], Setting]{
			Method:    http.MethodPatch,
			Path:      one,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "updateSetting",
			Summary:   "Edit a setting",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: one},
			Example:   `{"value": "Example Servers"}`,
			Do:        s.chooseOne,
		},
		rest.Read[rest.None, settings.Values]{Path: settings.Path, Guard: guard.Peers(principal.Gateway, "clients", "identity", "network", "pxe"),
			Do: func(ctx context.Context, _ rest.None) (settings.Values, error) { return Values(ctx, s.DB) }},
	}
}

// mayReadGroup returns an error unless the caller may read a group; id 0 stands for every group.
func mayReadGroup(ctx context.Context, id int64) error {
	if id == siteGroup {
		return nil
	}
	return guard.Has(permission.SystemSettings).Check(principal.FromContext(ctx), permission.Read, 0)
}

// Values returns the text of each setting by its slug.
func Values(ctx context.Context, q pg.Querier) (settings.Values, error) {
	rows, err := q.Query(ctx, "SELECT slug, text FROM setting_view")
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	values, slug, text := settings.Values{}, "", ""
	_, err = pgx.ForEachRow(rows, []any{&slug, &text}, func() error {
		values[slug] = text
		return nil
	})
	return values, err
}

// chooseOne sets a setting.
func (s *Settings) chooseOne(ctx context.Context, tx *pg.Tx, req rest.EditItem[settingBody]) (Setting, error) {
	if err := lockSettings(ctx, tx); err != nil {
		return Setting{}, err
	}
	before, err := settingView.Get(ctx, tx, req.ID)
	if err != nil {
		return before, err
	}
	if err := req.Match.Check(before.Version); err != nil {
		return before, err
	}
	body, err := req.Body.Merge(before.body(), before)
	if err != nil {
		return before, err
	}
	var invalid problem.Fields
	choice := before.chosenText(body, "", &invalid)
	if err := errors.Join(s.checkVerifyAdmins(ctx, &before, choice, "", &invalid), invalid.Err()); err != nil {
		return before, err
	}
	if err := before.write(ctx, tx, choice); err != nil {
		return before, err
	}
	return settingView.Get(ctx, tx, req.ID)
}

// chooseGroup sets several settings of a group, or none if one of them is invalid.
func (s *Settings) chooseGroup(ctx context.Context, tx *pg.Tx, req rest.EditItem[groupBody]) (SettingGroup, error) {
	if err := lockSettings(ctx, tx); err != nil {
		return SettingGroup{}, err
	}
	group, err := settingGroupView.Get(ctx, tx, req.ID)
	if err != nil {
		return group, err
	}
	if err := req.Match.Check(group.Version); err != nil {
		return group, err
	}
	body, err := req.Body.New()
	if err != nil {
		return group, err
	}
	tx.Unrecorded("no setting changed")
	var invalid problem.Fields
	done := map[int64]bool{}
	for i, sent := range body.Settings {
		at := fmt.Sprintf("/settings/%d", i)
		n := slices.IndexFunc(group.Settings, func(s Setting) bool {
			return (sent.ID != nil || sent.Slug != nil) && (sent.ID == nil || *sent.ID == s.ID) && (sent.Slug == nil || *sent.Slug == s.Slug)
		})
		if n < 0 {
			invalid.Add(at, "not_found", "must name a setting of this group by id or slug")
			continue
		}
		before := &group.Settings[n]
		if done[before.ID] {
			invalid.Add(at, "disagrees", "must not name %s twice", before.Slug)
			continue
		}
		done[before.ID] = true
		choice := before.chosenText(sent.fillIn(before), at, &invalid)
		if err := s.checkVerifyAdmins(ctx, before, choice, at, &invalid); err != nil {
			return group, err
		}
		if len(invalid) == 0 {
			if err := before.write(ctx, tx, choice); err != nil {
				return group, err
			}
		}
	}
	if err := invalid.Err(); err != nil {
		return group, err
	}
	return settingGroupView.Get(ctx, tx, req.ID)
}

// lockSettings locks all settings for the transaction, so that each change sees the one before.
func lockSettings(ctx context.Context, tx *pg.Tx) error {
	_, err := tx.Exec(ctx, "SELECT FROM setting_group ORDER BY id FOR UPDATE")
	return err
}
