package siteagent

import (
	"strings"
	"unicode"
)

// Sanitize replaces control characters and invalid UTF-8, and cuts the text to maxLength characters.
func Sanitize(text string, maxLength int) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if characters := []rune(text); len(characters) > maxLength {
		text = string(characters[:maxLength])
	}
	return text
}
