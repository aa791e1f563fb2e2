package body

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/secret"
)

func setString(to reflect.Value, sent any, m *schema.Member) (string, string) {
	text, code, message := readText(sent, m)
	to.SetString(text) // also if it is refused: an edit compares it with the present one
	switch {
	case code != "":
		return code, message
	case m.Required != 0 && text == "":
		return "required", "is required and cannot be empty"
	case text != "" && !strings.ContainsFunc(text, isVisible):
		return "invalid", "must contain a visible character"
	case !m.Lines:
		if i := strings.IndexFunc(text, BreaksLine); i >= 0 {
			r, _ := utf8.DecodeRuneInString(text[i:])
			return "invalid", fmt.Sprintf("must be one line: remove the character U+%04X", r)
		}
	}
	if m.Format == "email" && text != "" && !IsEmail(text) {
		return "invalid", NotEmail
	}
	if m.Enum != nil && text != "" && !slices.Contains(m.Enum, text) {
		return "invalid", "must be one of " + strings.Join(m.Enum, ", ")
	}
	if m.Pattern != nil && text != "" && !m.Pattern.MatchString(text) {
		return "invalid", "must match " + m.Pattern.String()
	}
	if c, ok := to.Interface().(interface{ Canonical() string }); ok { // one form for texts with the same meaning
		to.SetString(c.Canonical())
	}
	return "", ""
}

func setSecret(to reflect.Value, sent any, m *schema.Member) (string, string) {
	text, code, message := readText(sent, m)
	to.Set(reflect.ValueOf(secret.New(text)))
	return code, message
}

func readText(sent any, m *schema.Member) (text, code, message string) {
	text, ok := sent.(string)
	if number, isNumber := sent.(json.Number); isNumber {
		text, ok = number.String(), true
	}
	maxLength := int64(MaxString)
	if m.Max != nil {
		maxLength = *m.Max
	}
	switch {
	case !ok:
		return "", "type", "must be a string"
	case strings.ContainsRune(text, 0):
		return "", "invalid", "cannot contain the character NUL"
	case int64(utf8.RuneCountInString(text)) > maxLength:
		return "", "too_long", fmt.Sprintf("can have at most %d characters", maxLength)
	default:
		return text, "", ""
	}
}

// isVisible reports whether a character can be seen, alone or as a mark on another one.
func isVisible(r rune) bool {
	return r != '\u2800' &&
		!unicode.In(r, unicode.White_Space, unicode.C, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// BreaksLine reports whether a character has no place in a text of one line: it is a control character, ends a line, or
// changes the order in which others are shown.
func BreaksLine(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
