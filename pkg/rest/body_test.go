package rest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
)

type sample struct {
	Name   string        `json:"name" required:"create" max:"5"`
	Note   *string       `json:"note" also:"old note,remark"`
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

func (s *sample) Resolve(wrong *problem.Fields) {
	if s.Name == "evil" {
		wrong.Add("/name", "evil", "is evil")
	}
}

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

// What a body says of secrets is told apart: set, removed, or nothing at all.
func TestBodySecrets(t *testing.T) {
	t.Parallel()
	type secrets struct {
		Plain   secret.String `json:"plain"`
		Passing secret.String `json:"passing" kept:"false"`
		Deep    struct {
			Key *secret.String `json:"key" also:"key"`
		} `json:"deep"`
	}
	there, none := &secrets{}, &secrets{}
	there.Deep.Key = &secret.String{}
	for _, test := range []struct {
		text    string
		before  *secrets
		was, is string
	}{
		{`{"plain": "x", "passing": "x", "key": "x"}`, nil, "[]", "[plain deep.key]"},
		{`{"plain": "", "passing": "", "key": ""}`, nil, "[]", "[]"},
		{`{}`, there, "[]", "[]"},
		{`{"plain": "", "deep": {"key": ""}}`, there, "[]", "[]"},
		{`{"plain": "x", "deep": {"key": "x"}}`, there, "[plain deep.key]", "[plain deep.key]"},
		{`{"plain": null, "deep": {"key": null}}`, there, "[deep.key]", "[]"},
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
		was, is := []string(nil), secretsOf(value)
		if test.before != nil {
			value, err = b.Over(test.before)
			was, is = b.secrets(value, test.before)
		}
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(was) != test.was || fmt.Sprint(is) != test.is {
			t.Errorf("%s: was %v, is %v", test.text, was, is)
		}
	}
}

func wrongWith(err error) []string {
	var got []string
	for _, f := range problem.From(err).Fields {
		got = append(got, f.Pointer+" "+f.Code)
	}
	return got
}

func TestBodyNew(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{"name": "abc"}`:                                 nil,
		`{}`:                                              {"/name required"},
		`{"name": null}`:                                  {"/name required"},
		`{"name": "\t"}`:                                  {"/name required"},
		`{"name": "evil"}`:                                {"/name evil"},
		`{"name": "abcdef"}`:                              {"/name too_long"},
		`{"name": "äöüßé"}`:                               nil,
		`{"name": "a", "count": 0}`:                       {"/count out_of_range"},
		`{"name": "a", "count": 2147483648}`:              {"/count out_of_range"},
		`{"name": "a", "count": "1"}`:                     {"/count type"},
		`{"name": "a", "count": 1e0}`:                     {"/count type"},
		`{"name": "a", "level": -9, "on": 1}`:             {"/on type"},
		`{"name": "a", "group": {"id": "x"}}`:             {"/group type"},
		`{"name": "a", "group": {}}`:                      {"/group type"},
		`{"name": "a", "deep": 7, "note": []}`:            {"/deep type", "/note type"},
		`{"name": "a", "deep": {"er": []}}`:               {"/deep/er type"},
		`{"name": "a", "remark": "x", "note": "x"}`:       nil,
		`{"name": "a", "remark": "x", "note": "y"}`:       {"/note disagrees"},
		`{"name": "a", "old note": 7}`:                    {"/old note type"},
		`{"name": "a", "until": "2026-11-20"}`:            {"/until type"},
		`{"name": "a", "until": {"unix": 1}}`:             {"/until type"},
		`{"name": "a", "unknown": {"deep": [1, 2]}}`:      nil,
		`{"name": 7, "count": "x", "secret": "a\u0000b"}`: {"/count type", "/name type", "/secret invalid"},
	} {
		if _, err := body(t, text).New(); !reflect.DeepEqual(wrongWith(err), want) {
			t.Errorf("%s: %v, want %v", text, wrongWith(err), want)
		}
	}
	made, err := body(t, `{"name": "a", "group": 3, "note": "", "deep": {"er": {"port": 7}}, "until": {"iso_8601": "2026-11-20T10:00:00+01:00", "unix": 1795165200}}`).New()
	if err != nil || made.Group != 3 || made.Note != nil || *made.Deep.Er.Port != 7 || made.Until.Unix() != 1795165200 {
		t.Errorf("%+v %v", made, err)
	}
}

func TestBodyOver(t *testing.T) {
	t.Parallel()
	note, port := "n", int32(7)
	current := sample{Name: "old", Note: &note, Count: 5, Group: 3}
	current.Deep.Name, current.Deep.Er.Port = "d", &port

	untouched, err := body(t, `{"on": true}`).Over(&current)
	want := current
	want.On = true
	if err != nil || !reflect.DeepEqual(*untouched, want) {
		t.Errorf("%+v %v", untouched, err)
	}
	cleared, err := body(t, `{"on": true, "note": null, "deep": null, "count": null}`).Over(&current)
	want = sample{Name: "old", Group: 3, On: true}
	if err != nil || !reflect.DeepEqual(*cleared, want) {
		t.Errorf("%+v %v", cleared, err)
	}
	partly, err := body(t, `{"on": true, "deep": {"er": {"port": null}}}`).Over(&current)
	if err != nil || partly.Deep.Name != "d" || partly.Deep.Er.Port != nil || *current.Deep.Er.Port != 7 {
		t.Errorf("%+v %v", partly, err)
	}
	for text, want := range map[string][]string{
		`{}`:                           {"/on required"},
		`{"on": true, "name": ""}`:     {"/name required"},
		`{"on": true, "name": "evil"}`: {"/name evil"},
	} {
		if _, err := body(t, text).Over(&current); !reflect.DeepEqual(wrongWith(err), want) {
			t.Errorf("%s: %v, want %v", text, wrongWith(err), want)
		}
	}
}
