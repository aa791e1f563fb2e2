package account

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trustelem/zxcvbn"
	"github.com/trustelem/zxcvbn/match"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	// minStrength is of zxcvbn's 0 to 4: at least 10^8 guesses.
	minStrength = 3
	// maxEstimated is how many characters of a password are looked at: zxcvbn takes more than linear time.
	maxEstimated = 32
	// minTermLength is of those of an account that a guesser would try.
	minTermLength = 3
)

// CheckStrength notes that a new password is too easy to guess for who knows its account's words. What it says holds
// nothing of the password.
func CheckStrength(password secret.String, account []string, invalid *problem.Fields) {
	found := zxcvbn.PasswordStrength(head(password.Reveal()), accountTerms(account))
	if found.Score < minStrength {
		invalid.Add("/password", "too_weak", "is too easy to guess: %s; by zxcvbn's estimate it scores %d of 4, and has to score %d: %s",
			weakness(found.Sequence), found.Score, minStrength, "a few uncommon words in a row do")
	}
}

// head is the part that is looked at, in ASCII: in other characters zxcvbn finds no repeats.
func head(password string) string {
	runes := []rune(password)
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return r
		}
		return 'a' + r%26
	}, string(runes[:min(len(runes), maxEstimated)]))
}

// accountTerms are the words that an account's members are made of, and our own name.
func accountTerms(account []string) []string {
	terms := []string{"ironplane"}
	for _, text := range account {
		parts := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		for _, term := range append(parts, text) {
			if len(term) >= minTermLength {
				terms = append(terms, strings.ToLower(head(term)))
			}
		}
	}
	return terms
}

// weakness says what a guesser would try first: what the longest part of a password is.
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
			return "it has words of its account, or of this installation"
		case "passwords":
			return "it is much like a password that many have"
		default:
			return "it is little more than a common word or name"
		}
	case "spatial":
		return "it follows the rows of a keyboard"
	case "repeat":
		return "it repeats itself"
	case "sequence":
		return "it is a sequence like abc or 6543"
	case "date", "regex":
		return "it is little more than a date"
	default:
		return "it is too short"
	}
}
