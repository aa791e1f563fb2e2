package body

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

type sample struct {
	Name   string        `json:"name" required:"create" max:"5"`
	Note   *string       `json:"note" alias:"old note,remark"`
	Sum    sum           `json:"sum" alias:"sum too"`
	Count  int32         `json:"count" min:"1"`
	Level  *int64        `json:"level" max:"9"`
	Group  RefID         `json:"group"`
	On     bool          `json:"on" required:"edit"`
	Secret secret.String `json:"secret"`
	Until  *Timestamp    `json:"until"`
	Deep   struct {
		Name string `json:"name"`
		Er   struct {
			Port *int32 `json:"port"`
		} `json:"er"`
	} `json:"deep"`
}

func (s *sample) Resolve(invalid *problem.Fields) {
	if s.Name == "evil" {
		invalid.Add("/name", "evil", "is evil")
	}
	if s.Note != nil && *s.Note == "bad" {
		invalid.Add("/note", "bad", "is bad")
	}
}

// sum is a count and a note, with + between them.
type sum string

func (s sum) Parts() map[string]string {
	count, note, _ := strings.Cut(string(s), "+")
	return map[string]string{"/count": count, "/note": note}
}

// body returns the parsed body.
func body(t *testing.T, text string) *Body[sample] {
	t.Helper()
	sent, err := parseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b Body[sample]
	b.decode(sent)
	return &b
}

// A body can set a secret, remove it, or leave it as it is.
func TestSecrets(t *testing.T) {
	t.Parallel()
	type secrets struct {
		Plain   secret.String `json:"plain"`
		Passing secret.String `json:"passing" transient:"true"`
		Deep    struct {
			Key *secret.String `json:"key" alias:"key"`
		} `json:"deep"`
	}
	current, none := &secrets{}, &secrets{}
	current.Deep.Key = &secret.String{}
	for _, test := range []struct {
		text    string
		before  *secrets
		was, is string
	}{
		{`{"plain": "x", "passing": "x", "key": "x"}`, nil, "[]", "[plain deep.key]"},
		{`{"plain": "", "passing": "", "key": ""}`, nil, "[]", "[]"},
		{`{}`, current, "[]", "[]"},
		{`{"plain": "", "deep": {"key": ""}}`, current, "[]", "[]"},
		{`{"plain": "x", "deep": {"key": "x"}}`, current, "[plain deep.key]", "[plain deep.key]"},
		{`{"plain": null, "deep": {"key": null}}`, current, "[deep.key]", "[]"},
		{`{"key": "x"}`, none, "[]", "[deep.key]"},
		{`{"deep": null}`, none, "[]", "[]"},
	} {
		sent, err := parseObject([]byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		var b Body[secrets]
		b.decode(sent)
		value, err := b.New()
		was, is := []string(nil), NewSecrets(value)
		if test.before != nil {
			value, err = b.Merge(test.before, struct{}{})
			was, is = b.ChangedSecrets(value, test.before)
		}
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(was) != test.was || fmt.Sprint(is) != test.is {
			t.Errorf("%s: got %v before and %v now, want %s and %s", test.text, was, is, test.was, test.is)
		}
	}
}

// fieldErrors returns the pointer and the code of each field error.
func fieldErrors(err error) []string {
	var got []string
	for _, f := range problem.From(err).Fields {
		got = append(got, f.Pointer+" "+f.Code)
	}
	return got
}

func TestNew(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"name": "abc"}`:          nil,
		`{}`:                       {"/name required"},
		`{"name": null}`:           {"/name required"},
		`{"name": "\t"}`:           {"/name required"},
		`{"name": "evil"}`:         {"/name evil"},
		`{"name": "abcdef"}`:       {"/name too_long"},
		`{"name": "äöüßé  "}`:      nil,
		`{"name": "\u200b\ufeff"}`: {"/name invalid"},
		`{"name": "a", "note": "\u3164 \u00ad\u2800"}`:    {"/note invalid"},
		`{"name": "a", "note": "e\u0301"}`:                nil,
		`{"name": "a", "count": 0}`:                       {"/count out_of_range"},
		`{"name": "a", "count": 2147483648}`:              {"/count out_of_range"},
		`{"name": "a", "group": {"id": "x"}}`:             {"/group type"},
		`{"name": "a", "group": {"name": "x"}}`:           {"/group type"},
		`{"name": "a", "deep": 7, "note": []}`:            {"/deep type", "/note type"},
		`{"name": "a", "deep": {"er": true}}`:             {"/deep/er type"},
		`{"name": "a", "remark": "x", "note": "x"}`:       nil,
		`{"name": "a", "remark": "x", "note": "y"}`:       {"/note disagrees"},
		`{"name": "a", "remark": null, "note": "y"}`:      nil,
		`{"name": "a", "remark": "bad"}`:                  {"/remark bad"},
		`{"name": "a", "remark": [], "note": "y"}`:        {"/remark type"},
		`{"name": "a", "old note": []}`:                   {"/old note type"},
		`{"name": "a", "sum": "7+8", "count": 7}`:         nil,
		`{"name": "a", "sum": "7+8", "count": 6}`:         {"/count disagrees"},
		`{"name": "a", "sum": "7+8", "note": "9"}`:        {"/note disagrees"},
		`{"name": "a", "sum": "x+bad", "sum too": 8}`:     {"/sum type"},
		`{"name": "a", "unknown": {"deep": [1, 2]}}`:      nil,
		`{"name": [], "count": "x", "secret": "a\u0000"}`: {"/count type", "/name type", "/secret invalid"},
	} {
		if _, err := body(t, text).New(); !reflect.DeepEqual(fieldErrors(err), want) {
			t.Errorf("%s: got %v, want %v", text, fieldErrors(err), want)
		}
	}
	created, err := body(
		t,
		`{"name": "a", "group": 3, "note": "", "sum too": "8+", "deep": {"er": {"port": 7}}, "until": {"iso_8601": "2026-11-20T10:00:00+01:00", "unix": 1795165200}}`,
	).New()
	if err != nil || created.Group != 3 || created.Note != nil || created.Count != 8 || *created.Deep.Er.Port != 7 ||
		created.Until.Unix() != 1795165200 {
		t.Errorf("got %+v, %v, want group 3, no note, count 8, port 7 and 1795165200", created, err)
	}
}

// Values as forms, PHP and CSV send them equal a JSON value, null or a missing member, or they are refused.
func TestForms(t *testing.T) {
	t.Parallel()
	type all struct {
		Text    *string        `json:"text"`
		Plain   string         `json:"plain"`
		Count   *int64         `json:"count"`
		On      bool           `json:"on"`
		Ref     *RefID         `json:"ref"`
		Refs    []RefID        `json:"refs"`
		Numbers []int64        `json:"numbers"`
		Until   *Timestamp     `json:"until"`
		Secret  *secret.String `json:"secret"`
		Passing secret.String  `json:"passing"`
		Owner   struct {
			ID   *int64  `json:"id"`
			Name *string `json:"name"`
		} `json:"owner"`
	}
	const nothing, refused, null = "nothing", "refused", "null"
	for member, forms := range map[string]map[string]string{
		"text":    {`"a"`: `"a"`, `"a  "`: `"a"`, `" a"`: `" a"`, `"a\n"`: `"a"`, `7`: `"7"`, `12.50`: `"12.50"`, `""`: null, `"  "`: null, `true`: refused, `{}`: nothing, `{"a": 1}`: refused, `[]`: refused},
		"plain":   {`""`: `""`, `"a "`: `"a"`, `-1`: `"-1"`},
		"count":   {`"7"`: `7`, `"-7"`: `-7`, `"007"`: `7`, `"7 "`: `7`, `1000.0`: `1000`, `1e3`: `1000`, `12.5e1`: `125`, `-0`: `0`, `""`: null, `"+7"`: refused, `"1e3"`: refused, `"1.0"`: refused, `"7 8"`: refused, `1.5`: refused, `1e-1`: refused, `1e99`: refused, `1e999999999`: refused, `"9223372036854775808"`: refused, `9223372036854775807.0`: `9223372036854775807`, `true`: refused, `"x"`: refused, `"-"`: refused},
		"on":      {`"true"`: `true`, `"TRUE"`: `true`, `"1"`: `true`, `1`: `true`, `"False "`: `false`, `"0"`: `false`, `0`: `false`, `""`: nothing, `null`: refused, `2`: refused, `"yes"`: refused, `[]`: refused},
		"ref":     {`3`: `3`, `"3"`: `3`, `{"id": 3}`: `3`, `{"id": "3", "name": "x"}`: `3`, `""`: null, `{"id": null}`: null, `{"id": ""}`: null, `{}`: nothing, `{"name": "x"}`: refused, `"x"`: refused, `[]`: refused},
		"refs":    {`[3, 2, 3]`: `[2, 3]`, `["3", {"id": 2, "name": "x"}, {}, ""]`: `[2, 3]`, `"2 3"`: `[2, 3]`, `""`: `[]`, `[]`: `[]`, `null`: `[]`, `[null]`: refused, `[{"id": null}]`: refused, `3`: refused, `"x"`: refused},
		"numbers": {`[3, 2, 3]`: `[3, 2, 3]`, `["3", 2.0, ""]`: `[3, 2]`, `"3,2"`: `[3, 2]`, `[]`: `[]`, `[null]`: refused, `[1.5]`: refused, `[{"id": 3}]`: refused, `3`: refused, `"x"`: refused},
		"until":   {`"2030-01-01"`: `{"unix": 1893456000}`, `1893456000`: `"2030-01-01"`, `"1893456000"`: `"2030-01-01"`, `{"unix": "1893456000"}`: `"2030-01-01"`, `{"iso_8601": "2030-01-01", "unix": ""}`: `"2030-01-01"`, `{"unix": null, "iso_8601": "2030-01-01"}`: `"2030-01-01"`, `""`: nothing, `{}`: nothing, `{"iso_8601": ""}`: nothing, `{"iso_8601": null, "unix": null}`: null, `{"iso_8601": "2030-01-01", "unix": 1}`: refused, `"soon"`: refused, `1.5`: refused, `true`: refused, `[]`: refused},
		"secret":  {`" a "`: `" a "`, `7`: `"7"`, `""`: nothing, `[]`: refused},
		"passing": {`" a "`: `" a "`, `""`: nothing},
		"owner":   {`3`: `{"id": 3}`, `"3"`: `{"id": "3"}`, `""`: null, `[]`: nothing, `{}`: nothing, `{"id": null, "name": "x"}`: null, `{"name": "x"}`: `{"id": 1, "name": "x"}`, `{"id": 3, "name": ""}`: `{"id": 3, "name": null}`, `true`: refused, `[1]`: refused},
	} {
		for form, same := range forms {
			t.Run(member+" "+form, func(t *testing.T) {
				over := func(text string) (all, error) {
					sent, err := parseObject([]byte(text))
					if err != nil {
						t.Fatal(err)
					}
					id, owner := RefID(1), int64(1)
					current := all{
						Text:   new("t"),
						Plain:  "p",
						Count:  new(int64(1)),
						On:     form != `"true"`,
						Ref:    &id,
						Refs:   []RefID{1},
						Until:  &Timestamp{time.Unix(1, 0).UTC()},
						Secret: new(secret.New("s")),
					}
					current.Owner.ID = &owner
					var b Body[all]
					b.decode(sent)
					value, err := b.Merge(&current, current)
					return *value, err
				}
				got, err := over(fmt.Sprintf(`{%q: %s}`, member, form))
				if same == refused || err != nil {
					if same != refused || len(fieldErrors(err)) != 1 {
						t.Fatalf("got %+v, %v, want one wrong field only where the form is refused", got, err)
					}
					return
				}
				text := fmt.Sprintf(`{%q: %s}`, member, same)
				if same == nothing {
					text = "{}"
				}
				if want, err := over(text); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			})
		}
	}
}

// A member with its present value changes nothing. So a caller can read an item, change one of several spellings of a member, and
// send the item back.
func TestSpellings(t *testing.T) {
	t.Parallel()
	type view struct {
		Name   string  `json:"name"`
		Note   *string `json:"note"`
		Remark string  `json:"remark"` // the note, or the name if there is no note
		Count  int32   `json:"count"`
		Sum    string  `json:"sum"`
	}
	current := sample{Name: "n", Count: 7}
	currentView := view{Name: "n", Remark: "n", Count: 7, Sum: "7+"}
	for text, want := range map[string]string{
		`{"remark": "n"}`:                "n 7 ",
		`{"note": "n"}`:                  "n 7 n",
		`{"remark": "n", "note": "x"}`:   "n 7 x",
		`{"remark": "x", "note": null}`:  "n 7 x",
		`{"remark": "x", "note": "x"}`:   "n 7 x",
		`{"remark": "y", "note": "x"}`:   "[/note disagrees]",
		`{"sum": "7+", "count": 8}`:      "n 8 ",
		`{"sum": "8+", "count": 7}`:      "n 8 ",
		`{"sum": "8+", "count": "8"}`:    "n 8 ",
		`{"sum": "8+x", "note": null}`:   "n 8 x",
		`{"sum": "8+", "count": 9}`:      "[/count disagrees]",
		`{"sum": "7+x", "count": 8}`:     "[/count disagrees]",
		`{"sum": "7+bad", "count": "7"}`: "[/sum bad]",
		`{"sum": [], "count": 7}`:        "[/sum type]",
	} {
		value, err := body(t, `{"on": false, `+text[1:]).Merge(&current, currentView)
		got := fmt.Sprint(fieldErrors(err))
		if err == nil {
			note := ""
			if value.Note != nil {
				note = *value.Note
			}
			got = fmt.Sprint(value.Name, " ", value.Count, " ", note)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	note, port := "n", int32(7)
	current := sample{Name: "old", Note: &note, Count: 5, Group: 3}
	current.Deep.Name, current.Deep.Er.Port = "d", &port

	untouched, err := body(t, `{"on": true}`).Merge(&current, struct{}{})
	want := current
	want.On = true
	if err != nil || !reflect.DeepEqual(*untouched, want) {
		t.Errorf("got %+v, %v, want %+v", untouched, err, want)
	}
	cleared, err := body(t, `{"on": true, "note": null, "deep": null, "count": null}`).Merge(&current, struct{}{})
	want = sample{Name: "old", Group: 3, On: true}
	if err != nil || !reflect.DeepEqual(*cleared, want) {
		t.Errorf("got %+v, %v, want %+v", cleared, err, want)
	}
	partly, err := body(t, `{"on": true, "deep": {"er": {"port": null}}}`).Merge(&current, struct{}{})
	if err != nil || partly.Deep.Name != "d" || partly.Deep.Er.Port != nil || *current.Deep.Er.Port != 7 {
		t.Errorf("got %+v, %v, want only the port cleared, and the current value unchanged", partly, err)
	}
	for text, want := range map[string][]string{
		`{}`:                           {"/on required"},
		`{"on": true, "name": ""}`:     {"/name required"},
		`{"on": true, "name": "evil"}`: {"/name evil"},
	} {
		if _, err := body(t, text).Merge(&current, struct{}{}); !reflect.DeepEqual(fieldErrors(err), want) {
			t.Errorf("%s: got %v, want %v", text, fieldErrors(err), want)
		}
	}
}
