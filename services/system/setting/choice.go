package setting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/settings"
)

// fillIn returns the sent setting. It fills in a missing value or text from before. Without both, the default is meant.
func (c *chosenSetting) fillIn(before *Setting) *settingBody {
	b, current := c.settingBody, before.body()
	switch {
	case b.Value != nil && b.Text == nil:
		b.Text = current.Text
	case b.Text != nil && b.Value == nil:
		b.Value = current.Value
	}
	return &b
}

// body returns the setting as a caller would send it.
func (s *Setting) body() *settingBody {
	value := s.Text
	if s.Value != nil {
		value = strconv.FormatInt(*s.Value, 10)
	}
	return &settingBody{&value, &s.Text}
}

// chosenText returns the chosen text, nil for the default, and adds errors to invalid. If value and text are both sent, the
// one that differs from the present setting takes precedence.
func (s *Setting) chosenText(b *settingBody, at string, invalid *problem.Fields) *string {
	current, pointer, text := s.body(), at+"/text", b.Text
	switch {
	case b.Text != nil && *b.Text != s.Text:
	case b.Value != nil && *b.Value != *current.Value:
		pointer, text = at+"/value", s.storedText(*b.Value)
	case b.Value == nil, b.Text == nil:
		pointer, text = at+"/value", nil
	}
	code, message := s.validate(text)
	if code != "" {
		invalid.Add(pointer, code, "%s", message)
	}
	return text
}

// storedText returns the text that a value is stored as.
func (s *Setting) storedText(value string) *string {
	if s.Type == "Select" {
		options := strings.Split(*s.Options, ",")
		if n, err := strconv.Atoi(value); err == nil && n >= 0 && n < len(options) {
			value = options[n]
		}
	}
	return &value
}

// validate returns the code and message of a field error. Both are empty if the text is valid. nil stands for the default.
func (s *Setting) validate(text *string) (code, message string) {
	rules := map[string]int64{}
	if s.Validator != nil {
		for rule := range strings.SplitSeq(*s.Validator, "|") {
			name, number, _ := strings.Cut(rule, ":")
			rules[name], _ = strconv.ParseInt(number, 10, 64) // the schema's
		}
	}
	_, isInteger := rules["integer"]
	_, isReadOnly := rules["readonly"]
	switch {
	case text != nil && *text == s.Text, text == nil && s.Default == s.Text:
		return "", ""
	case isReadOnly:
		return "read_only", "is read-only: change the configuration of the processes instead"
	case text == nil:
		return "", ""
	case s.Type == "Checkbox" && *text != "0" && *text != "1":
		return "invalid", "must be 0 or 1"
	case s.Type == "Select" && !slices.Contains(strings.Split(*s.Options, ","), *text):
		return "invalid", "must be one of these, or its position counted from 0: " + *s.Options
	case s.Type == "Text" && strings.ContainsFunc(*text, body.BreaksLine):
		return "invalid", "must be one line"
	}
	size, unit := int64(utf8.RuneCountInString(*text)), " characters"
	if isInteger {
		n, err := strconv.ParseInt(*text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != *text {
			return "type", "must be an integer"
		}
		size, unit = n, ""
	}
	if minimum, ok := rules["min"]; ok && size < minimum {
		return "out_of_range", fmt.Sprintf("must be at least %d%s", minimum, unit)
	}
	if maximum, ok := rules["max"]; ok && size > maximum {
		return "out_of_range", fmt.Sprintf("must be at most %d%s", maximum, unit)
	}
	return "", ""
}

// identityTimeout limits the request to identity.
const identityTimeout = 5 * time.Second

// checkVerifyAdmins refuses to require a second factor from admins while some of them have none, because they could not
// sign in any more.
func (s *Settings) checkVerifyAdmins(ctx context.Context, before *Setting, choice *string, at string, invalid *problem.Fields) error {
	if before.Slug != settings.VerifyAdmins.Slug || choice == nil || *choice != "1" || before.Text == "1" {
		return nil
	}
	ctx, cancel := s.Peers.Limit(ctx, identityTimeout)
	defer cancel()
	var admins credentials.Unverified
	if err := s.Peers.Ask(ctx, "identity", credentials.UnverifiedPath, &admins); errors.Is(err, mesh.ErrUnavailable) {
		return problem.New(problem.Unavailable, "The check that all admins can sign in failed, because the identity service cannot be reached.").
			Because(err)
	} else if err != nil {
		return err
	}
	switch {
	case admins.Any && !s.SendsMail:
		invalid.Add(
			at+"/value",
			"unavailable",
			"must be 0: an admin has no verified authenticator, and no SMTP server is configured to mail codes",
		)
	case admins.WithoutAddress:
		invalid.Add(at+"/value", "unavailable", "must be 0: an admin with a password has neither a verified authenticator nor an email address")
	}
	return nil
}

// write stores the chosen text, nil for the default, and records a change if the text differs.
func (s *Setting) write(ctx context.Context, tx *pg.Tx, choice *string) error {
	tx.Unrecorded("the setting did not change")
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
	tx.Wake(settings.Changed)
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
