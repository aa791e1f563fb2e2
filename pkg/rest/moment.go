package rest

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/shape"
)

// What a moment must be, in a text and in a body.
const (
	momentText   = "must be a date and time of ISO 8601 such as 2026-11-20T10:00:00Z or 2026-11-20, or seconds since 1970"
	momentMember = momentText + `, or an object with them, such as {"iso_8601": "2026-11-20T10:00:00Z", "unix": 1795168800}`
)

// momentIn is the members of an object that say a moment, or null, or the object if it has others alone; anything else is
// itself.
func momentIn(sent any) any {
	o, ok := sent.(object)
	if !ok {
		return sent
	}
	said, null := object{}, false
	for _, m := range o {
		switch {
		case m.name != "iso_8601" && m.name != "unix", m.value == "":
		case m.value == nil:
			null = true
		default:
			said = append(said, m)
		}
	}
	if null && len(said) == 0 {
		return nil
	}
	return said
}

func setTimestamp(to reflect.Value, sent any, _ *shape.Member) (string, string) {
	said, ok := sent.(object)
	if !ok {
		said = object{{"", sent}}
	}
	var moments []time.Time
	for _, m := range said {
		at, ok := moment(m.value)
		if !ok {
			return "type", momentMember
		}
		moments = append(moments, at)
	}
	if len(moments) > 1 && !moments[0].Equal(moments[1]) {
		return "disagrees", "names two moments: iso_8601 and unix differ"
	}
	to.Set(reflect.ValueOf(Timestamp{moments[0]}))
	return "", ""
}

// moment reads a moment to the second, of the years 1 to 9999.
func moment(sent any) (at time.Time, ok bool) {
	text, isText := sent.(string)
	if seconds, code, _ := integer(sent); code == "" && (!isText || len(text) > len("20261120")) {
		at, ok = time.Unix(seconds, 0).UTC(), seconds > -1<<40 && seconds < 1<<40
	} else if isText {
		at, ok = parseISO(text)
	}
	return at, ok && at.Year() >= 1 && at.Year() <= 9999
}

// dates, clocks and zones are the forms of ISO 8601 in the layouts of package time, which reads a fraction after seconds, too.
var (
	dates  = []string{"2006-01-02", "20060102", "2006-002", "2006002", "2006-01", "2006"}
	clocks = []string{"15:04:05", "150405", "15:04", "1504", "15"}
	zones  = []string{"", "Z07:00", "Z0700", "Z07"}
	weeks  = regexp.MustCompile(`^([0-9]{4})-?W([0-9]{2})(?:-?([1-7]))?$`)
)

// parseISO reads a date, which is its beginning, or a date and a time of day; in UTC where it names no zone.
func parseISO(text string) (at time.Time, ok bool) {
	text = strings.ToUpper(text)
	date, clock := text, ""
	if i := strings.IndexAny(text, "T "); i >= 0 {
		date, clock = text[:i], text[i+1:]
	}
	day, ok := parseLayouts(date, dates)
	if !ok {
		day, ok = parseWeek(date)
	}
	if !ok || date == text {
		return day, ok
	}
	for _, zone := range zones {
		layouts := make([]string, len(clocks))
		for i, c := range clocks {
			layouts[i] = c + zone
		}
		if t, ok := parseLayouts(clock, layouts); ok {
			year, month, d := day.Date()
			return time.Date(year, month, d, t.Hour(), t.Minute(), t.Second(), 0, t.Location()).UTC(), true
		}
	}
	return at, false
}

func parseLayouts(text string, layouts []string) (at time.Time, ok bool) {
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return at, false
}

// parseWeek reads a date such as 2026-W47-5, or a week, which is its Monday.
func parseWeek(text string) (day time.Time, ok bool) {
	parts := weeks.FindStringSubmatch(text)
	if parts == nil {
		return day, false
	}
	year, _ := strconv.Atoi(parts[1]) // of digits alone, as the others
	week, _ := strconv.Atoi(parts[2])
	weekday, _ := strconv.Atoi(parts[3])
	fourth := time.Date(year, time.January, 4, 0, 0, 0, 0, time.UTC) // which is in the first week
	monday := fourth.AddDate(0, 0, -(int(fourth.Weekday())+6)%7+7*(week-1))
	isoYear, isoWeek := monday.ISOWeek()
	return monday.AddDate(0, 0, max(weekday, 1)-1), isoYear == year && isoWeek == week
}
