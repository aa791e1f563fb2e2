package body

import (
	"reflect"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/schema"
)

// The accepted forms of a timestamp, in a parameter and in a body.
const (
	timestampText   = "must be a date and time of ISO 8601 such as 2026-11-20T10:00:00Z or 2026-11-20, or seconds since 1970"
	timestampMember = timestampText + `, or an object with them, such as {"iso_8601": "2026-11-20T10:00:00Z", "unix": 1795168800}`
)

// timestampParts returns the members of an object that have a timestamp, or nil for null. Other values are returned as they are.
func timestampParts(sent any) any {
	o, ok := sent.(object)
	if !ok {
		return sent
	}
	parts, null := object{}, false
	for _, m := range o {
		switch {
		case m.name != "iso_8601" && m.name != "unix", m.value == "":
		case m.value == nil:
			null = true
		default:
			parts = append(parts, m)
		}
	}
	if null && len(parts) == 0 {
		return nil
	}
	return parts
}

func setTimestamp(to reflect.Value, sent any, m *schema.Member) (string, string) {
	must := timestampText
	if m.JSON != "" {
		must = timestampMember
	}
	parts, ok := sent.(object)
	if !ok {
		parts = object{{"", sent}}
	}
	var times []time.Time
	for _, part := range parts {
		at, ok := parseTimestamp(part.value)
		if !ok {
			return "type", must
		}
		times = append(times, at)
	}
	if len(times) > 1 && !times[0].Equal(times[1]) {
		return "disagrees", "has different times in iso_8601 and unix"
	}
	to.Set(reflect.ValueOf(Timestamp{times[0]}))
	return "", ""
}

// parseTimestamp parses a timestamp in seconds, for the years 1 to 9999.
func parseTimestamp(sent any) (at time.Time, ok bool) {
	text, isText := sent.(string)
	if seconds, code, _ := Integer(sent); code == "" && (!isText || len(text) > len("20261120")) {
		at, ok = time.Unix(seconds, 0).UTC(), seconds > -1<<40 && seconds < 1<<40
	} else if isText {
		at, ok = parseISO(text)
	}
	return at, ok && at.Year() >= 1 && at.Year() <= 9999
}

// dates, clocks and zones are the forms of ISO 8601 as package time lays them out, which has no weeks. It reads a fraction
// after seconds, too.
var (
	dates  = []string{"2006-01-02", "20060102", "2006-002", "2006002", "2006-01", "2006"}
	clocks = []string{"15:04:05", "150405", "15:04", "1504", "15"}
	zones  = []string{"", "Z07:00", "Z0700", "Z07"}
)

// parseISO parses a date, which stands for its first second, or a date with a time of day. The default zone is UTC.
func parseISO(text string) (at time.Time, ok bool) {
	text = strings.ToUpper(text)
	date, clock := text, ""
	if i := strings.IndexAny(text, "T "); i >= 0 {
		date, clock = text[:i], text[i+1:]
	}
	day, ok := parseLayouts(date, dates, "")
	if !ok || date == text {
		return day, ok
	}
	t, ok := parseLayouts(clock, clocks, zones...)
	year, month, d := day.Date()
	return time.Date(year, month, d, t.Hour(), t.Minute(), t.Second(), 0, t.Location()).UTC(), ok
}

func parseLayouts(text string, layouts []string, ends ...string) (at time.Time, ok bool) {
	for _, layout := range layouts {
		for _, end := range ends {
			if at, err := time.Parse(layout+end, text); err == nil {
				return at, true
			}
		}
	}
	return at, false
}
