package template

import (
	"regexp"
	"strings"
	"text/template/parse"
)

// syntax returns a parser's error, which only has a line, with the position of its action.
func syntax(source string, err error) Error {
	message := err.Error()
	if found := parserError.FindStringSubmatch(message); found != nil {
		message = found[2]
	}
	actions := actionsOf(source)
	unclosed := func(err error) bool { return strings.Contains(err.Error(), "unexpected EOF") }
	// Before the invalid action the template is valid, except that the ends of blocks are missing.
	low, high := 0, len(actions)
	for low < high {
		middle := (low + high) / 2
		if _, _, err := parsed(source[:actions[middle].end]); err != nil && !unclosed(err) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low < len(actions) {
		return errorAt(source, parse.Pos(actions[low].start), "%s", message)
	}
	var open []action
	for _, a := range actions {
		switch word := firstWord(source[a.start:a.end]); word {
		case "if", "range", "with", "define", "block":
			open = append(open, a)
		case "end":
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		}
	}
	if unclosed(err) && len(open) > 0 {
		a := open[len(open)-1]
		return errorAt(source, parse.Pos(a.start), "{{%s}} has no {{end}}", firstWord(source[a.start:a.end]))
	}
	return errorAt(source, parse.Pos(len(source)), "%s", message)
}

func firstWord(action string) string {
	fields := strings.FieldsFunc(action, func(r rune) bool { return strings.ContainsRune("{}- \t\r\n(", r) })
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// action is the position of an action in a template.
type action struct{ start, end int }

var (
	comment = regexp.MustCompile(`^{{(- )?/\*(?s:.*?)\*/( -)?}}`)
	inside  = regexp.MustCompile("^{{(?:\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`|'(?:[^'\\\\\n]|\\\\.)*'|[^\"`'}]|}[^}])*}}")
)

// actionsOf returns the actions of a template. An action without an end reaches to the end of the template.
func actionsOf(source string) (all []action) {
	for from := 0; ; {
		i := strings.Index(source[from:], "{{")
		if i < 0 {
			return all
		}
		a := action{from + i, len(source)}
		text := source[a.start:]
		if found := comment.FindString(text); found != "" {
			a.end = a.start + len(found)
		} else if found := inside.FindString(text); found != "" {
			a.end = a.start + len(found)
		}
		all, from = append(all, a), a.end
	}
}

// findTooDeep returns the position at which a template nests too many parentheses, or -1. The parser is recursive, so
// this is checked before it runs.
func findTooDeep(source string) int {
	for _, a := range actionsOf(source) {
		depth := 0
		for i, r := range source[a.start:a.end] {
			switch r {
			case '(':
				if depth++; depth > maxDepth {
					return a.start + i
				}
			case ')':
				depth--
			}
		}
	}
	return -1
}
