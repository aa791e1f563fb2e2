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
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(noun, "ey") {
		return stem + "ies"
	}
	return noun + "s"
}

// capital is a noun as it starts a sentence.
func capital(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }
