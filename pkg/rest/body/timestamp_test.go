package body

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimestamps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2030-03-01":                      "2030-03-01T00:00:00Z",
		"20300301":                        "2030-03-01T00:00:00Z",
		"2030-03":                         "2030-03-01T00:00:00Z",
		"2030":                            "2030-01-01T00:00:00Z",
		"2030-060":                        "2030-03-01T00:00:00Z",
		"2030060":                         "2030-03-01T00:00:00Z",
		"2030-03-01T10:20:30Z":            "2030-03-01T10:20:30Z",
		"2030-03-01T10:20:30.999999999Z":  "2030-03-01T10:20:30Z",
		"2030-03-01T10:20:30,5Z":          "2030-03-01T10:20:30Z",
		"2030-03-01t10:20:30z":            "2030-03-01T10:20:30Z",
		"2030-03-01 10:20:30":             "2030-03-01T10:20:30Z",
		"2030-03-01 10:20:30 +0200":       "",
		"2030-03-01T10:20":                "2030-03-01T10:20:00Z",
		"2030-03-01T10":                   "2030-03-01T10:00:00Z",
		"2030-03-01T10:20+0200":           "2030-03-01T08:20:00Z",
		"2030-03-01T10:20:30+02":          "2030-03-01T08:20:30Z",
		"2030-03-01T10:20:30-02:30":       "2030-03-01T12:50:30Z",
		"20300301T102030Z":                "2030-03-01T10:20:30Z",
		"20300301T1020":                   "2030-03-01T10:20:00Z",
		"2030-03-01T00:30:00+01:00":       "2030-02-28T23:30:00Z",
		"0001-01-01":                      "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z":            "9999-12-31T23:59:59Z",
		"1898590830":                      "2030-03-01T10:20:30Z",
		"-62135596800":                    "0001-01-01T00:00:00Z",
		"253402300799":                    "9999-12-31T23:59:59Z",
		"0001-01-01T00:00:00+01:00":       "", // of the year 0
		"-62135596801":                    "",
		"253402300800":                    "",
		"9223372036854775807":             "",
		"2030-13-01":                      "",
		"2030-02-29":                      "",
		"2030-366":                        "",
		"2030-W09-5":                      "",
		"2030-03-01T24:00:00Z":            "",
		"2030-03-01T10:20:60Z":            "",
		"2030-03-01T10:20:30+25:00":       "",
		"2030-03-01T":                     "",
		"T10:20":                          "",
		"2030-3-1":                        "",
		"01.03.2030":                      "",
		"03/01/2030":                      "",
		"tomorrow":                        "",
		"2030-03-01T10:20:30Z 2030-03-01": "",
		"+2030-03-01":                     "",
		"10000-01-01":                     "",
		"12345":                           "",
		"1 March 2030":                    "",
	} {
		got := ""
		if at, ok := parseTimestamp(text); ok {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// A timestamp can be written in each of these forms.
func TestTimestampForms(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone := time.FixedZone("", 60*rapid.IntRange(-14*60, 14*60).Draw(t, "minutes"))
		want := time.Unix(rapid.Int64Range(-62135510400, 253402214400).Draw(t, "seconds"), 0).In(zone)
		date := rapid.SampledFrom(dates[:4]).Draw(t, "date")
		clock := rapid.SampledFrom(clocks[:2]).Draw(t, "clock")
		text := want.Format(date + "T" + clock + rapid.SampledFrom(zones[1:3]).Draw(t, "zone"))
		if got, ok := parseTimestamp(text); !ok || !got.Equal(want) {
			t.Fatalf("%s: got %s, want %s", text, got, want)
		}
	})
}

// FuzzTimestamp compares parseTimestamp with package time, and parses its result again.
func FuzzTimestamp(f *testing.F) {
	for _, text := range []string{"2030-03-01", "20300301T1020+02", "2030060", "1898590830", "2030-03-01T10:20:30.5Z", "x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseTimestamp(text)
		if ok && (got.Year() < 1 || got.Year() > 9999 || got.Nanosecond() != 0) {
			t.Fatalf("%q: got %s, want a year from 1 to 9999 and whole seconds", text, got)
		}
		if reread, stillOK := parseTimestamp(got.Format(time.RFC3339)); ok && (!stillOK || !reread.Equal(got)) {
			t.Fatalf("%q: got %s, read again as %s, want the same", text, got, reread)
		}
		want, err := time.Parse(time.RFC3339, text)
		if want = want.UTC(); err == nil && want.Year() >= 1 && want.Year() <= 9999 && (!ok || !got.Equal(want.Truncate(time.Second))) {
			t.Fatalf("%q: got %s, want %s", text, got, want)
		}
	})
}
