package body

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
)

// sampleView is a sample as responses show it.
type sampleView struct {
	ID      int64       `json:"id"`
	Name    string      `json:"name"`
	Created Timestamp   `json:"created"`
	Creator problem.Ref `json:"creator"`
	Group   *struct {
		ID    int64 `json:"id"`
		Floor int64 `json:"floor"`
	} `json:"group"`
	Deep struct {
		Name  string `json:"name"`
		State string `json:"state"`
	} `json:"deep"`
	Parts []struct {
		Port int64 `json:"port"`
	} `json:"parts"`
	Facts map[string]string `json:"facts"`
}

// A member passes if the body or the view has it. Others are errors that name the member and the nearest known one.
func TestUnknownMembers(t *testing.T) {
	t.Parallel()
	type item struct {
		Port int64      `json:"port"`
		At   *Timestamp `json:"at"`
	}
	type all struct {
		sample
		Items   []item            `json:"items"`
		Earlier []item            `json:"earlier" open:"true"`
		Free    map[string]string `json:"free"`
		Foreign struct {
			Kind string `json:"kind"`
		} `json:"foreign" open:"true"`
	}
	known := planFor[all]().Known(reflect.TypeFor[sampleView]())
	for text, want := range map[string]string{
		`{"name": "a", "note": "b", "old note": "b", "sum": "1+a"}`:                      "",
		`{"id": 1, "created": {"iso_8601": "2026-11-20", "unix": 1}, "isWrapped": true}`: "",
		`{"group": {"id": 3, "whatever": 1}, "creator": {"id": 3, "email": "x"}}`:        "",
		`{"deep": {"name": "a", "state": "up"}, "parts": [{"port": 1}]}`:                 "",
		`{"facts": {"anything": "x"}, "free": {"anything": "x"}}`:                        "",
		`{"foreign": {"kind": "a", "more": {"than": "that"}}, "earlier": [{"prt": 1}]}`:  "",
		`{"items": [{"port": 1}, {"port": 2, "at": {"unix": 1}}], "deep": null}`:         "",
		`{"nmae": "a"}`:   "/nmae name",
		`{"NAME": "a"}`:   "/NAME name",
		`{"remarc": "a"}`: "/remarc -",
		`{"creatd": "a"}`: "/creatd created",
		`{"_method": "a", "key": 1, "api_user": 1}`:               "/_method - /key - /api_user -",
		`{"deep": {"nam": 1, "er": {"prt": 1}}}`:                  "/deep/nam name /deep/er/prt port",
		`{"deep": [{"stat": 1}]}`:                                 "/deep/0/stat state",
		`{"until": {"iso8601": "2030-01-01"}}`:                    "/until/iso8601 iso_8601",
		`{"created": {"unixx": 1}}`:                               "/created/unixx unix",
		`{"items": [{}, {"prot": 1, "at": {"timezone": "UTC"}}]}`: "/items/1/prot port /items/1/at/timezone -",
		`{"parts": [{"prt": 1}]}`:                                 "/parts/0/prt port",
		`{"x/y~": 1}`:                                             "/x~1y~0 -",
	} {
		sent, err := parseObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range known.findUnknown(nil, sent) {
			_, nearest, ok := strings.Cut(f.Message, "the nearest known member is ")
			if !ok {
				nearest = "-"
			}
			if got = append(got, f.Pointer+" "+nearest); f.Code != "unknown" {
				t.Errorf("%s: got the code %s, want unknown", text, f.Code)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, want %s", text, strings.Join(got, " "), want)
		}
	}
}

// What callers send may be large, and the error about it stays small.
func TestUnknownMembersAreLimited(t *testing.T) {
	t.Parallel()
	known := planFor[sample]().Known()
	var sent object
	for n := range 1000 {
		sent = append(sent, member{fmt.Sprint(strings.Repeat("ä", 10_000), n), true})
	}
	unknown := known.findUnknown(nil, sent)
	size := 0
	for _, f := range unknown {
		size += len(f.Pointer) + len(f.Message)
	}
	if len(unknown) != maxUnknown || size > 100_000 {
		t.Errorf("got %d errors of %d bytes, want %d of at most 100000", len(unknown), size, maxUnknown)
	}
}
