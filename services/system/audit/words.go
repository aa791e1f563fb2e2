package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Describe says in a sentence what happened.
func Describe(e *events.Event, changed Changes) string {
	if e.Type == "request.refused" {
		return fmt.Sprintf("%s %s refused.", plain(changed["method"].After), plain(changed["route"].After))
	}
	of := strings.ReplaceAll(e.Kind, ".", " ")
	if len(e.Targets) > 0 {
		of = strings.TrimSpace(nounOf(e.Targets[0]) + " " + e.Targets[0].Name)
		if more := len(e.Targets) - 1; more > 0 {
			of += fmt.Sprintf(" and %d more", more)
		}
	}
	if e.Part != "" {
		of = e.Part + " of " + of
	}
	return capital(of+" "+string(e.Action)) + "."
}

// nounOf is what a thing is called: as its service says or, where an older version of it did not, as its collection is
// called.
func nounOf(t pg.Target) string {
	if t.Noun != "" {
		return t.Noun
	}
	return strings.ReplaceAll(t.Type[strings.LastIndex(t.Type, "/")+1:], "-", " ")
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
