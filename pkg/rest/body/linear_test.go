package body

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The work for a body grows at most in proportion to its length, also if the body is invalid.
func TestBodiesAreReadInLinearTime(t *testing.T) {
	known := planFor[sample]().Known()
	for name, text := range map[string]func(n int) string{
		"long unknown members": func(n int) string {
			return "{" + work.Numbered(`"a rather long name of a member%d":1,`, n) + `"name":"a"}`
		},
		"unknown members":     func(n int) string { return "{" + work.Numbered(`"m%d":1,`, n) + `"name":"a"}` },
		"members of a member": func(n int) string { return `{"deep":{` + work.Numbered(`"m%d":{},`, n) + `"name":"a"}}` },
		"an array":            func(n int) string { return `{"group":[` + work.Fill("1,", n) + "1]}" },
		"arrays in an array":  func(n int) string { return `{"x":[` + work.Fill("[[]],", n) + "1]}" },
		"objects in an array": func(n int) string { return `{"x":[` + work.Fill(`{"id":1},`, n) + "1]}" },
		"a reference":         func(n int) string { return `{"group":{` + work.Numbered(`"m%d":1,`, n) + `"id":1}}` },
		"a timestamp":         func(n int) string { return `{"until":{` + work.Numbered(`"m%d":1,`, n) + `"unix":1}}` },
		"a text":              func(n int) string { return `{"name":"` + work.Fill("ä", n) + `"}` },
		"escapes":             func(n int) string { return `{"name":"` + work.Fill(`\ud83d\ude00`, n) + `"}` },
		"a number":            func(n int) string { return `{"count":` + work.Fill("9", n) + `}` },
		"a name":              func(n int) string { return `{"` + work.Fill("~/", n) + `":1}` },
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 64<<10, text, func(text string) {
				sent, err := parseObject([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				var b Body[sample]
				b.decode(sent)
				b.unknown = known.findUnknown(nil, sent)
				_, _ = b.New()
			})
		})
	}
}

func TestCSVIsReadInLinearTime(t *testing.T) {
	known := planFor[sample]().Known()
	for name, text := range map[string]func(n int) string{
		"columns":             func(n int) string { return work.Numbered("c%d,", n) + "name\n" + work.Fill(",", n) },
		"columns of one name": func(n int) string { return work.Fill("name,", n) + "name\n" },
		"nested columns":      func(n int) string { return work.Numbered("deep.c%d,", n) + "name\n" },
		"dots":                func(n int) string { return work.Fill("deep.", n) + "\n" },
		"rows":                func(n int) string { return "name,count\n" + work.Fill("a,1\n", n/8) },
		"rows of many columns": func(n int) string {
			return work.Numbered("c%d,", 1000) + "name\n" + work.Fill(work.Fill(",", 300)+"x\n", n)
		},
		"invalid rows": func(n int) string {
			return work.Numbered("c%d,", n/2) + "count,name\n" + work.Fill(strings.Repeat(",", 9)+"x\n", n)
		},
		"a quoted cell":          func(n int) string { return `name` + "\n" + `"` + work.Fill(`""`, n) + `"` },
		"a quote without an end": func(n int) string { return `name` + "\n" + `"` + work.Fill("a\n", n) },
	} {
		t.Run(name, func(t *testing.T) {
			work.Linear(t, 64<<10, text, func(text string) {
				options := SheetOptions{Known: known, Named: []string{"group"}}
				sheet, err := ParseSheet[sample](context.Background(), []byte(text), options)
				if err != nil {
					return
				}
				sheet.Names()
				for _, row := range sheet.Rows {
					sheet.Decode(row, nil)
					_, err := row.New()
					sheet.AtLine(row, problem.From(err).Fields)
				}
			})
		})
	}
}

// A CSV body is not read to its end if its caller has left.
func TestCSVIsCancelled(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	leave()
	sheet, err := ParseSheet[sample](ctx, []byte("name\n"+strings.Repeat("a\n", 500)), SheetOptions{})
	if !errors.Is(err, context.Canceled) || sheet != nil {
		t.Errorf("got %v, %v, want no sheet and %v", sheet, err, context.Canceled)
	}
}
