// Package noun forms the names of items: with an article, in the plural, and as names of methods.
package noun

import "strings"

// WithArticle returns a noun with its article: an IP entity.
func WithArticle(noun string) string {
	if strings.ContainsRune("aeioAEIO", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// Plural returns the plural of a noun.
func Plural(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return stem + "ies"
	}
	return noun + "s"
}

// Capital returns a noun as the beginning of a sentence.
func Capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// Camel returns a noun as part of the name of a method or a type: IPEntity.
func Camel(noun string) string {
	parts := strings.Fields(noun)
	for i, word := range parts {
		parts[i] = Capital(word)
	}
	return strings.Join(parts, "")
}
