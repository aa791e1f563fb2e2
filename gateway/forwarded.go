package gateway

import "strings"

// parseForwarded returns the "for" parameter of each element of Forwarded headers (RFC 7239), the nearest hop last. An element
// without that parameter is an empty hop. A malformed header ends the list with one.
func parseForwarded(headers []string) []string {
	var hops []string
	for _, header := range headers {
		rest := header
		for more := true; more; {
			var hop string
			var ok bool
			if hop, rest, more, ok = parseForwardedElement(rest); !ok {
				return append(hops, "")
			}
			hops = append(hops, hop)
		}
	}
	return hops
}

// parseForwardedElement parses name=value pairs up to a comma. more reports whether another element follows.
func parseForwardedElement(s string) (hop, rest string, more, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t")
		name, after, hasValue := strings.Cut(s, "=")
		if !hasValue || strings.ContainsAny(name, ",;\" \t") {
			return "", "", false, false
		}
		value, after, ok := parseForwardedValue(after)
		if !ok {
			return "", "", false, false
		}
		if strings.EqualFold(name, "for") {
			hop = value
		}
		after = strings.TrimLeft(after, " \t")
		switch {
		case after == "":
			return hop, "", false, true
		case after[0] == ',':
			return hop, after[1:], true, true
		case after[0] == ';':
			s = after[1:]
		default:
			return "", "", false, false
		}
	}
}

// parseForwardedValue parses a token or a quoted string.
func parseForwardedValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ",; \t\"")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
