// Package noun writes what items are called: with an article, in the Plural, and as names of methods.
package noun

import "strings"

// WithArticle is a noun as it stands behind a verb: an IP entity.
func WithArticle(noun string) string {
	if strings.ContainsRune("aeioAEIO", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// Plural is what several items are called.
func Plural(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return stem + "ies"
	}
	return noun + "s"
}

// Capital is a noun as it starts a sentence.
func Capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// Camel is a noun in the names of methods and types: IPEntity.
func Camel(noun string) string {
	parts := strings.Fields(noun)
	for i, word := range parts {
		parts[i] = Capital(word)
	}
	return strings.Join(parts, "")
}
