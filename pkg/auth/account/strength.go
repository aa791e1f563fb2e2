package account

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trustelem/zxcvbn"
	"github.com/trustelem/zxcvbn/match"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

const (
	// minStrength is the minimal score of zxcvbn, which goes from 0 to 4. A score of 3 means at least 10^8 guesses.
	minStrength = 3
	// maxEstimated is how many characters of a password zxcvbn estimates. Its time grows faster than the length.
	maxEstimated = 32
	// minTermLength is the minimal length of an account's terms that an attacker would try.
	minTermLength = 3
)

// CheckStrength adds a field error if a new password is easy to guess for an attacker who knows the account's terms, and
// those of the site. The error holds no part of the password.
func CheckStrength(password secret.String, site settings.Values, account []string, invalid *problem.Fields) {
	text := password.Reveal()
	terms := accountTerms(append(siteTerms(site), account...))
	found := zxcvbn.PasswordStrength(head(text), heads(terms))
	if found.Score < minStrength {
		invalid.Add("/password", "too_weak", "is too easy to guess: %s. Its zxcvbn score is %d of 4, and at least %d is required. Use %s",
			weakness(found.Sequence), found.Score, minStrength, wayOut)
	} else if weakness := wordWeakness(text, terms, found.Sequence); weakness != "" {
		invalid.Add("/password", "too_weak", "is too easy to guess: %s. Use %s", weakness, wayOut)
	}
}

// wayOut is a kind of password that is strong.
const wayOut = "a few uncommon words with spaces between them"

// siteTerms returns the names of an installation.
func siteTerms(site settings.Values) []string {
	return []string{settings.SiteName.In(site), settings.APIURL.In(site), settings.ClientURL.In(site), settings.AdminURL.In(site)}
}

// head returns the part of a password that is estimated, mapped to ASCII: zxcvbn finds no repeats in other characters.
func head(password string) string {
	runes := []rune(password)
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return r
		}
		return 'a' + r%26
	}, string(runes[:min(len(runes), maxEstimated)]))
}

// heads returns the parts of terms that are compared with the part of a password that is estimated.
func heads(terms []string) (all []string) {
	for _, term := range terms {
		all = append(all, head(term))
	}
	return all
}

// accountTerms returns the terms of an account's members, and the product's own name, in lower case.
func accountTerms(account []string) []string {
	terms := []string{"ironplane"}
	for _, text := range account {
		text = strings.ToLower(text)
		parts := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		parts = append(parts, strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })...)
		for _, term := range append(parts, text) {
			if len(term) >= minTermLength && !slices.Contains(terms, term) {
				terms = append(terms, term)
			}
		}
	}
	return terms
}

// weakness describes the pattern of a password's longest part, which an attacker would try first.
func weakness(parts []*match.Match) string {
	var main match.Match
	for _, part := range parts {
		if part.Pattern != "bruteforce" && len(part.Token) > len(main.Token) {
			main = *part
		}
	}
	switch main.Pattern {
	case "dictionary":
		switch main.DictionaryName {
		case "user_inputs":
			return "it contains words of its account or of this installation"
		case "passwords":
			return "it resembles a common password"
		default:
			return "it is mostly a common word or name"
		}
	case "spatial":
		return "it follows the keys of a keyboard"
	case "repeat":
		return "it repeats itself"
	case "sequence":
		return "it is a sequence like abc or 6543"
	case "date", "regex":
		return "it is mostly a date"
	default:
		return "it is too short"
	}
}
