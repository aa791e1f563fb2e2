package rest

import "strings"

// withArticle is a noun as it stands behind a verb: an IP entity.
func withArticle(noun string) string {
	if strings.ContainsRune("aeioAEIO", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

func plural(noun string) string {
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return stem + "ies"
	}
	return noun + "s"
}

// capital is a noun as it starts a sentence.
func capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// camel is a noun in the names of methods and types: IPEntity.
func camel(noun string) string {
	words := strings.Fields(noun)
	for i, word := range words {
		words[i] = capital(word)
	}
	return strings.Join(words, "")
}
