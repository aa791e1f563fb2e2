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

// Describe returns a sentence that says what a change did.
func Describe(e *events.Event, changed Changes) string {
	if e.Type == "request.refused" {
		return fmt.Sprintf("%s %s was refused.", formatValue(changed["method"].After), formatValue(changed["route"].After))
	}
	return DescribeTargets(e.Type, NewTargets(e.Targets))
}

// targetNoun returns the noun that the target's service uses for it. Older versions of services sent none, so then it is
// made from the collection's path.
func targetNoun(t pg.Target) string {
	if t.Noun != "" {
		return t.Noun
	}
	return strings.ReplaceAll(t.Type[strings.LastIndex(t.Type, "/")+1:], "-", " ")
}

// maxMembers is how many changed members a message names.
const maxMembers = 10

// Message extends a description by who made the change, from which address, and by the members before and after.
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
	shown := names[:min(len(names), maxMembers)]
	parts := make([]string, len(shown))
	for i, name := range shown {
		switch c := changed[name]; {
		case c.Before == nil:
			parts[i] = fmt.Sprintf("%s is %s", name, formatValue(c.After))
		case c.After == nil:
			parts[i] = fmt.Sprintf("%s was %s", name, formatValue(c.Before))
		default:
			parts[i] = fmt.Sprintf("%s was %s, is %s", name, formatValue(c.Before), formatValue(c.After))
		}
	}
	if more := len(names) - len(shown); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return text + ": " + strings.Join(parts, "; ") + "."
}

// formatValue returns a JSON value as text for a sentence.
func formatValue(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}
