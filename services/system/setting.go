package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/certificate"
)

// Setting is something that operators decide, and that processes go by.
type Setting struct {
	rest.Versioned
	ID        int64   `json:"id" db:"id"`
	Name      string  `json:"name" db:"name"`
	Slug      string  `json:"slug" db:"slug"`
	Type      string  `json:"type" db:"type" enum:"Text,Textarea,Select,Checkbox"`
	Options   *string `json:"options,omitempty" db:"options" doc:"of a Select, with commas between"`
	Validator *string `json:"validator,omitempty" db:"validator" doc:"what the text has to be, such as integer|min:1|max:100; readonly: it shows what the processes are configured with"`
	Value     *int64  `json:"value,omitempty" db:"value" doc:"of a Select the number of its option, from 0; of a Checkbox 0 or 1; of an integer itself; left out of other texts"`
	Text      string  `json:"text" db:"text" doc:"the value as it is kept; of a Select the option"`
	Default   string  `json:"default" db:"default_value" doc:"the text where nobody has chosen one"`
}

// SettingGroup is settings that are shown together.
type SettingGroup struct {
	rest.Versioned
	ID       int64       `json:"id" db:"id"`
	Name     string      `json:"name" db:"name"`
	Parent   *int64      `json:"parent,omitempty" db:"parent" doc:"the setting that shows the group"`
	Settings settingList `json:"settings" db:"settings"`
}

type settingList []Setting

// Scan reads them from the database.
func (s *settingList) Scan(from any) error {
	text, ok := from.([]byte)
	if plain, is := from.(string); is {
		text, ok = []byte(plain), true
	}
	if !ok {
		return fmt.Errorf("%T is no JSON", from)
	}
	return json.Unmarshal(text, s)
}

// settingBody is what somebody chooses. Value is a number or a text, and both are pointers for null: the default.
type settingBody struct {
	Value *string `json:"value" max:"10000" example:"Example Hosting" doc:"the value, as a number or as a text; null: the default"`
	Text  *string `json:"text" max:"10000" ext:"true" doc:"the same, as it is kept; of the two the one counts that differs from what there is"`
}

// groupBody is what somebody chooses of a group.
type groupBody struct {
	Settings []chosenSetting `json:"settings" example:"[{\"slug\": \"site_name\", \"value\": \"Example Hosting\"}]"`
}

type chosenSetting struct {
	ID   *int64  `json:"id" example:"1"`
	Slug *string `json:"slug" example:"site_name" doc:"in place of id"`
	settingBody
}

// siteGroup is the group that every key may read.
const siteGroup = 1

var (
	settingView      = pg.NewView[Setting]("setting_view")
	settingGroupView = pg.NewView[SettingGroup]("setting_group_view")
)

func (s *Service) settings() []rest.Route {
	const one, group = "/system/setting/{setting_id}", "/setting-group/{setting_group_id}"
	return []rest.Route{
		rest.List[rest.None, SettingGroup]{
			Path:    "/setting-group",
			Guard:   guard.EveryKey,
			Name:    "listSettingGroups",
			Summary: "List setting groups",
			DB:      s.db,
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
				return settingGroupView.Get(ctx, s.db, req.ID)
			}},
		rest.Mutation[rest.EditItem[groupBody], SettingGroup]{
			Method:    http.MethodPatch,
			Path:      group,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "updateSettingGroup",
			Summary:   "Edit the settings of a group",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Again: rest.AgainSame, Shows: group},
			Do:        s.chooseGroup,
		},
		rest.Read[rest.Item, Setting]{
			Path:      one,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "getSetting",
			Summary:   "View a setting",
			Extension: true,
			Do:        func(ctx context.Context, req rest.Item) (Setting, error) { return settingView.Get(ctx, s.db, req.ID) },
		},
		rest.Mutation[rest.EditItem[settingBody], Setting]{
			Method:    http.MethodPatch,
			Path:      one,
			Guard:     guard.Has(permission.SystemSettings),
			Name:      "updateSetting",
			Summary:   "Edit a setting",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsItem, Again: rest.AgainSame, Shows: one},
			Example:   `{"value": "Example Servers"}`,
			Do:        s.chooseOne,
		},
		rest.Read[rest.None, settings.Values]{Path: settings.Path, Guard: guard.Peers(principal.Gateway, "clients", "identity", "pxe"),
			Do: func(ctx context.Context, _ rest.None) (settings.Values, error) { return valuesIn(ctx, s.db) }},
	}
}

// mayReadGroup fails where the caller may not read a group; 0 is any.
func mayReadGroup(ctx context.Context, id int64) error {
	if id == siteGroup {
		return nil
	}
	return guard.Has(permission.SystemSettings).Check(principal.From(ctx), permission.Read, 0)
}

// valuesIn are what all settings are.
func valuesIn(ctx context.Context, q pg.Querier) (settings.Values, error) {
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

func (s *Service) chooseOne(ctx context.Context, tx *pg.Tx, req rest.EditItem[settingBody]) (Setting, error) {
	if err := holdSettings(ctx, tx); err != nil {
		return Setting{}, err
	}
	before, err := settingView.Get(ctx, tx, req.ID)
	if err != nil {
		return before, err
	}
	if err := req.Match.Check(before.Version); err != nil {
		return before, err
	}
	body, err := req.Body.Over(before.body(), before)
	if err != nil {
		return before, err
	}
	var wrong problem.Fields
	choice := before.choice(body, "", &wrong)
	if err := errors.Join(s.checkVerifyAdmins(ctx, &before, choice, "", &wrong), wrong.Err()); err != nil {
		return before, err
	}
	if err := before.write(ctx, tx, choice); err != nil {
		return before, err
	}
	return settingView.Get(ctx, tx, req.ID)
}

func (s *Service) chooseGroup(ctx context.Context, tx *pg.Tx, req rest.EditItem[groupBody]) (SettingGroup, error) {
	if err := holdSettings(ctx, tx); err != nil {
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
	tx.Unrecorded("nothing was chosen")
	var wrong problem.Fields
	done := map[int64]bool{}
	for i, sent := range body.Settings {
		at := fmt.Sprintf("/settings/%d", i)
		n := slices.IndexFunc(group.Settings, func(s Setting) bool {
			return (sent.ID != nil || sent.Slug != nil) && (sent.ID == nil || *sent.ID == s.ID) && (sent.Slug == nil || *sent.Slug == s.Slug)
		})
		if n < 0 {
			wrong.Add(at, "not_found", "names, by id or slug, no setting of this group")
			continue
		}
		before := &group.Settings[n]
		if done[before.ID] {
			wrong.Add(at, "disagrees", "names %s a second time", before.Slug)
			continue
		}
		done[before.ID] = true
		choice := before.choice(sent.whole(before), at, &wrong)
		if err := s.checkVerifyAdmins(ctx, before, choice, at, &wrong); err != nil {
			return group, err
		}
		if len(wrong) == 0 {
			if err := before.write(ctx, tx, choice); err != nil {
				return group, err
			}
		}
	}
	if err := wrong.Err(); err != nil {
		return group, err
	}
	return settingGroupView.Get(ctx, tx, req.ID)
}

// whole is what was sent, with the member that was not sent as it is. Without both, it is the default that is meant.
func (c *chosenSetting) whole(before *Setting) *settingBody {
	b, is := c.settingBody, before.body()
	switch {
	case b.Value != nil && b.Text == nil:
		b.Text = is.Text
	case b.Text != nil && b.Value == nil:
		b.Value = is.Value
	}
	return &b
}

// holdSettings lets one at a time change settings: the second one sees what the first one left.
func holdSettings(ctx context.Context, tx *pg.Tx) error {
	_, err := tx.Exec(ctx, "SELECT FROM setting_group ORDER BY id FOR UPDATE")
	return err
}

// body is the setting as it would be sent.
func (s *Setting) body() *settingBody {
	value := s.Text
	if s.Value != nil {
		value = strconv.FormatInt(*s.Value, 10)
	}
	return &settingBody{&value, &s.Text}
}

// choice is the text that somebody chose, nil for the default, or notes what is wrong with it. Of value and text the one
// counts that differs from what there is.
func (s *Setting) choice(b *settingBody, at string, wrong *problem.Fields) *string {
	is, pointer, text := s.body(), at+"/text", b.Text
	switch {
	case b.Text != nil && *b.Text != s.Text:
	case b.Value != nil && *b.Value != *is.Value:
		pointer, text = at+"/value", s.textOf(*b.Value)
	case b.Value == nil, b.Text == nil:
		pointer, text = at+"/value", nil
	}
	code, message := s.wrongWith(text)
	if code != "" {
		wrong.Add(pointer, code, "%s", message)
	}
	return text
}

// textOf is what a value is kept as.
func (s *Setting) textOf(value string) *string {
	if s.Type == "Select" {
		options := strings.Split(*s.Options, ",")
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < len(options) {
			value = options[n]
		}
	}
	return &value
}

// wrongWith says what is wrong with a text, nil for the default: a code and a message.
func (s *Setting) wrongWith(text *string) (code, message string) {
	rules := map[string]int64{}
	if s.Validator != nil {
		for rule := range strings.SplitSeq(*s.Validator, "|") {
			name, number, _ := strings.Cut(rule, ":")
			rules[name], _ = strconv.ParseInt(number, 10, 64) // the schema's
		}
	}
	_, whole := rules["integer"]
	_, fixed := rules["readonly"]
	switch {
	case text != nil && *text == s.Text, text == nil && s.Default == s.Text:
		return "", ""
	case fixed:
		return "read_only", "shows what the processes are configured with, and cannot be written"
	case text == nil:
		return "", ""
	case s.Type == "Checkbox" && *text != "0" && *text != "1":
		return "invalid", "must be 0 or 1"
	case s.Type == "Select" && !slices.Contains(strings.Split(*s.Options, ","), *text):
		return "invalid", "must be the number of one of these, from 0, or as text one of them: " + *s.Options
	case s.Type == "Text" && strings.ContainsAny(*text, "\r\n"):
		return "invalid", "must be one line"
	}
	size, of := int64(utf8.RuneCountInString(*text)), " characters"
	if whole {
		n, err := strconv.ParseInt(*text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != *text {
			return "type", "must be an integer"
		}
		size, of = n, ""
	}
	if least, ok := rules["min"]; ok && size < least {
		return "out_of_range", fmt.Sprintf("must be at least %d%s", least, of)
	}
	if most, ok := rules["max"]; ok && size > most {
		return "out_of_range", fmt.Sprintf("must be at most %d%s", most, of)
	}
	return "", ""
}

// checkVerifyAdmins notes that admins could not sign in any more, if they had to do so with a second factor.
func (s *Service) checkVerifyAdmins(ctx context.Context, before *Setting, choice *string, at string, wrong *problem.Fields) error {
	if before.Slug != settings.VerifyAdmins.Slug || choice == nil || *choice != "1" || before.Text == "1" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var admins credentials.Unverified
	if err := s.peers.Ask(ctx, "identity", credentials.UnverifiedPath, &admins); errors.Is(err, mesh.ErrAway) {
		return problem.New(problem.Unavailable, "Whether all admins could sign in cannot be found out right now.").Because(err)
	} else if err != nil {
		return err
	}
	switch {
	case admins.Any && s.mail.Server == nil:
		wrong.Add(at+"/value", "unavailable", "cannot be 1: no mail can be sent, and an admin has no verified authenticator")
	case admins.WithoutAddress:
		wrong.Add(at+"/value", "unavailable", "cannot be 1: an admin with a password has neither a verified authenticator nor an email address")
	}
	return nil
}

// write keeps what was chosen.
func (s *Setting) write(ctx context.Context, tx *pg.Tx, choice *string) error {
	tx.Unrecorded("the setting is as it was")
	text := s.Default
	if choice != nil {
		text = *choice
	}
	_, err := tx.Exec(
		ctx,
		"UPDATE setting SET fresh = false, chosen = $2, version = version + CASE WHEN $3::boolean THEN 1 ELSE 0 END WHERE id = $1",
		s.ID,
		choice,
		text != s.Text,
	)
	if err != nil || text == s.Text {
		return err
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE setting_group SET version = version + 1 WHERE id = (SELECT group_id FROM setting WHERE id = $1)",
		s.ID,
	); err != nil {
		return err
	}
	after, err := settingView.Get(ctx, tx, s.ID)
	if err != nil {
		return err
	}
	tx.Record(pg.Record{Kind: "system.setting", Action: pg.Edited, Before: s, After: after,
		Targets: []pg.Target{{Type: "system/setting", Noun: "setting", ID: s.ID, Name: s.Slug, Version: after.Version}}})
	return nil
}

// begin takes over what environment variables say, where nobody has chosen yet, and shows what the processes are
// configured with.
func begin(ctx context.Context, d service.Deps) error {
	if _, err := mailServer(d.Settings); err != nil {
		return err
	}
	if _, err := egress.Parse(d.AllowedNetworks); err != nil {
		return fmt.Errorf("IRONPLANE_ALLOWED_NETWORKS: %w", err)
	}
	if _, err := certificate.Read(d.APIURL, d.ACMEDirectory); err != nil {
		return err
	}
	licensing, err := newLicensing(d.Settings)
	if err != nil {
		return err
	}
	if err := licensing.begin(ctx, d); err != nil {
		return err
	}
	return d.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the settings are as they were")
		if err := holdSettings(ctx, tx); err != nil {
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
		for variable, text := range d.Given {
			s, err := settingView.One(ctx, tx, "slug = $1", settings.OfVariable(variable))
			if err != nil {
				return fmt.Errorf("take over %s: %w", variable, err)
			}
			if !fresh[s.Slug] {
				d.Log.Warn(variable+" is ignored: the setting counts", "setting", s.Slug, "is", s.Text)
				continue
			}
			if s.Type == "Checkbox" {
				text = strings.NewReplacer("true", "1", "false", "0").Replace(text)
			}
			if _, message := s.wrongWith(&text); message != "" {
				return fmt.Errorf("%s is %q: it %s", variable, text, message)
			}
			if err := s.write(ctx, tx, &text); err != nil {
				return err
			}
		}
		for slug, text := range map[string]string{"api_url": d.APIURL, "client_url": d.ClientURL, "admin_url": d.AdminURL} {
			if u, err := url.Parse(text); text != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
				return fmt.Errorf("IRONPLANE_%s is %q: it is no address such as https://panel.example.com", strings.ToUpper(slug), text)
			}
			s, err := settingView.One(ctx, tx, "slug = $1", slug)
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
