package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/pg"
)

// nouns are what things are called whose collection does not say it.
var nouns = map[string]string{
	"auth/key": "API key", "entity": "IP entity", "group": "IP group", "pxe/dhcp": "DHCP server",
}

// Singular is what a thing of a collection is called.
func Singular(collection string) string {
	if noun, ok := nouns[collection]; ok {
		return noun
	}
	return strings.ReplaceAll(collection[strings.LastIndex(collection, "/")+1:], "-", " ")
}

// Describe says in a sentence what happened.
func Describe(kind string, targets []pg.Target, changed Changes) string {
	if kind == "request.refused" {
		return fmt.Sprintf("%s %s refused.", plain(changed["method"].After), plain(changed["route"].After))
	}
	of, what := "", kind
	if len(targets) > 0 {
		prefix := strings.ReplaceAll(targets[0].Type, "/", ".") + "."
		if rest, ok := strings.CutPrefix(kind, prefix); ok {
			what = rest
		}
		of = strings.TrimSpace(Singular(targets[0].Type) + " " + targets[0].Name)
		if more := len(targets) - 1; more > 0 {
			of += fmt.Sprintf(" and %d more", more)
		}
	}
	words := strings.Split(strings.ReplaceAll(what, "-", " "), ".")
	verb := words[len(words)-1]
	if about := strings.Join(words[:len(words)-1], " "); about != "" && of != "" {
		of = about + " of " + of
	} else if of == "" {
		of = about
	}
	return capital(strings.TrimSpace(of+" "+verb)) + "."
}

// mostMembers is how many changed members a message names.
const mostMembers = 10

// Message says in a sentence who did it, from where, and what became of which member.
func Message(description, user, ip string, changed Changes) string {
	text := strings.TrimSuffix(description, ".")
	if user != "" {
		text += " by " + user
	}
	if ip != "" {
		text += " from " + ip
	}
	names := slices.Sorted(maps.Keys(changed))
	if len(names) == 0 {
		return text + "."
	}
	shown := names[:min(len(names), mostMembers)]
	parts := make([]string, len(shown))
	for i, name := range shown {
		switch c := changed[name]; {
		case c.Before == nil:
			parts[i] = fmt.Sprintf("%s is %s", name, plain(c.After))
		case c.After == nil:
			parts[i] = fmt.Sprintf("%s was %s", name, plain(c.Before))
		default:
			parts[i] = fmt.Sprintf("%s was %s, is %s", name, plain(c.Before), plain(c.After))
		}
	}
	if more := len(names) - len(shown); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return text + ": " + strings.Join(parts, "; ") + "."
}

// plain is a value as it stands in a sentence.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
