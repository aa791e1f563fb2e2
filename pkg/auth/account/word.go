package account

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/trustelem/zxcvbn/frequency"
	"github.com/trustelem/zxcvbn/match"
)

const (
	oneWord   = "it is one word with digits or marks around it"
	onlyNames = "it has only names of its account or of this installation, with digits or marks around them"
	famous    = "it is a well-known example of a password"

	// minHump is the minimal length of the parts of a camel-case word that count as words of their own.
	minHump = 3
	// minKnownWord is the minimal length of a word of zxcvbn's lists. Shorter ones occur in random passwords.
	minKnownWord = 4
	// maxWord is the maximal length of a word. A longer run of letters is several words.
	maxWord = 30
	// minWordScore is the score, in bits a letter, from which letters read like a word. Of random runs of 12 letters 2 in
	// 100 have it, and of words of European languages nearly all.
	minWordScore = -0.25
	// alphabet is the number of letters that wordScore knows.
	alphabet = 26
)

// examples are passphrases that everybody knows, without what separates their words. No list of passwords has them.
var examples = []string{"correcthorsebatterystaple"}

// wordWeakness returns why a password is easy to guess although zxcvbn knows none of its words: it is one word or name,
// with nothing but digits and marks around it. It returns "" if the password has several words. parts are zxcvbn's.
func wordWeakness(password string, terms []string, parts []*match.Match) string {
	words, hasName := splitWords(password, terms)
	joined := strings.ToLower(strings.Join(strings.FieldsFunc(password, func(r rune) bool { return !unicode.IsLetter(r) }), ""))
	switch {
	case slices.Contains(examples, joined):
		return famous
	case len(words) == 0 && hasName:
		return onlyNames
	case len(words) == 1 && readsLikeWord(words[0]), isKnownWord(parts):
		return oneWord
	}
	return ""
}

// splitWords returns the distinct words of a password in lower case, without those that are terms. hasTerm tells whether
// there was such a term.
func splitWords(password string, terms []string) (words []string, hasTerm bool) {
	for _, run := range strings.FieldsFunc(password, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		for _, word := range splitHumps(run) {
			word = strings.ToLower(word)
			if isOfTerms(word, terms) {
				hasTerm = true
			} else if !slices.Contains(words, word) {
				words = append(words, word)
			}
			if len(words) > 1 { // nobody asks for more, and comparing them all would take quadratic time
				return words, hasTerm
			}
		}
	}
	return words, hasTerm
}

// splitHumps splits a camel-case word. If it has two parts, and one is shorter than minHump, it is one word with an odd capital.
func splitHumps(run string) (humps []string) {
	runes := []rune(run)
	begin := 0
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && unicode.IsLower(runes[i-1]) {
			humps = append(humps, string(runes[begin:i]))
			begin = i
		}
	}
	humps = append(humps, string(runes[begin:]))
	if len(humps) == 2 && slices.ContainsFunc(humps, func(hump string) bool { return len([]rune(hump)) < minHump }) {
		return []string{run}
	}
	return humps
}

// isOfTerms tells whether a word is nothing but terms. A word longer than two words is not.
func isOfTerms(word string, terms []string) bool {
	if len(word) > 2*maxWord {
		return false
	}
	reached := make([]bool, len(word)+1) // whether the terms can end at this place
	reached[0] = true
	for at := range word {
		for _, term := range terms {
			if reached[at] && strings.HasPrefix(word[at:], term) {
				reached[at+len(term)] = true
			}
		}
	}
	return reached[len(word)]
}

// isKnownWord tells whether zxcvbn found one word of its lists, and no letters around it. It also knows words in which
// digits replace letters.
func isKnownWord(parts []*match.Match) bool {
	known := 0
	for _, part := range parts {
		if part.Pattern == "dictionary" && len(part.Token) >= minKnownWord {
			known++
		} else if strings.ContainsFunc(part.Token, unicode.IsLetter) {
			return false
		}
	}
	return known == 1
}

// readsLikeWord tells whether letters follow each other as in words, and not at random. Letters other than a to z are not
// random, since generators of passwords do not use them.
func readsLikeWord(word string) bool {
	runes := []rune(word)
	if len(runes) > maxWord || slices.ContainsFunc(runes, writesWithoutSpaces) && len(runes) > minKnownWord {
		return false
	}
	scores, sum, before := wordScores(), 0.0, alphabet
	for _, r := range runes {
		if r < 'a' || r > 'z' {
			return true
		}
		sum += scores[before][r-'a']
		before = int(r - 'a')
	}
	return sum/float64(len(runes)) >= minWordScore
}

// writesWithoutSpaces tells whether a letter is of a script that puts no spaces between words.
func writesWithoutSpaces(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// wordScores returns, for a letter and the letter before it, how much more often than at random they follow each other in
// words, in bits. The last row is for the first letter of a word. They are counted in zxcvbn's lists of words and names.
var wordScores = sync.OnceValue(func() *[alphabet + 1][alphabet]float64 {
	var scores [alphabet + 1][alphabet]float64
	for _, list := range slices.Sorted(maps.Keys(frequency.FrequencyLists)) {
		if list == "passwords" {
			continue
		}
		for _, word := range frequency.FrequencyLists[list] {
			before := alphabet
			for _, r := range word {
				if r < 'a' || r > 'z' {
					before = alphabet
					continue
				}
				scores[before][r-'a']++
				before = int(r - 'a')
			}
		}
	}
	for before := range scores {
		total := 0.0
		for _, n := range scores[before] {
			total += n + 1
		}
		for r, n := range scores[before] {
			scores[before][r] = math.Log2((n + 1) / total * alphabet)
		}
	}
	return &scores
})
