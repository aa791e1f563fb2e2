package network_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// A list that was exported as CSV and imported again is the same list.
func TestCSVComesBack(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	list := func() (all []map[string]any) {
		all = testkit.Decode[[]map[string]any](c.Do("GET", "/field", nil).Want(200))
		for _, item := range all {
			delete(item, "id")
		}
		return all
	}
	rapid.Check(t, func(r *rapid.T) {
		line, text := rapid.StringMatching(`[=+@'a;",é0-]{0,6}x`), rapid.StringMatching(`(\r\n|[=+@'a;",é0\n\r\t-]){0,6}x`)
		for _, slug := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9_-]{0,8}`), 1, 4, rapid.ID).Draw(r, "slugs") {
			field := map[string]any{"name": line.Draw(r, "name"), "slug": slug, "target_type": "entity"}
			if rapid.Bool().Draw(r, "has placeholder") {
				field["placeholder"] = line.Draw(r, "placeholder")
			}
			for _, optional := range []string{"desc", "default"} {
				if rapid.Bool().Draw(r, "has "+optional) {
					field[optional] = text.Draw(r, optional)
				}
			}
			c.Do("POST", "/field", field).Want(200)
		}
		before, sheet := list(), c.Do("GET", "/field", nil, "Accept", "text/csv").Want(200).Text
		empty := func() {
			ids := []string{}
			for _, line := range testkit.Decode[[]struct{ ID int64 }](c.Do("GET", "/field", nil).Want(200)) {
				ids = append(ids, testkit.JSON(line.ID))
			}
			c.Do("DELETE", "/field/"+strings.Join(ids, ","), nil).Want(200)
		}
		empty()
		c.Do("POST", "/field", testkit.WithoutIDs(t, sheet), "Content-Type", "text/csv").Want(200)
		if after := list(); !reflect.DeepEqual(after, before) {
			r.Errorf("%q: got %v, want %v", sheet, after, before)
		}
		empty()
	})
}

// An error about two equal rows of a body names the line of the other row, not an item: none is created.
func TestCSVTwins(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "192.0.2.9"}`).Want(200)
	post := func(rows string) *testkit.Response {
		return c.Do("POST", "/entity", "group.id,address\n"+rows, "Content-Type", "text/csv")
	}
	post("1,192.0.2.1\n1,192.0.2.2\n1,192.0.2.0/29\n").WantDetail(problem.Invalid, "4/address is in conflict with line 2 (line 4, column 2).")
	post(
		"1,192.0.2.1\n1,192.0.2.9\n",
	).WantDetail(problem.Invalid, "3/address overlaps with IP entity 1 (192.0.2.9) in IP group 1 (Berlin) (line 3, column 2).")
	for path, sheet := range map[string][2]string{
		"/port-speed": {"name,speed\nA,1\nB,2\n", "A,3\n"},
		"/group":      {"name,billing_id\nA,x\nB,y\n", "C,x\n"},
		"/field":      {"name,target_type,slug\nA,entity,a\nB,group,b\n", "C,entity,a\n"},
	} {
		duplicate := testkit.Decode[problem.Problem](c.Do("POST", path, sheet[0]+sheet[1], "Content-Type", "text/csv").Want(422)).Errors
		if len(duplicate) != 1 || duplicate[0].Code != "taken" || duplicate[0].Line != 4 ||
			!strings.HasPrefix(duplicate[0].Message, "is taken by line 2 (line 4, column ") {
			t.Errorf("%s: got %+v, want that line 4 is taken by line 2", path, duplicate)
		}
		c.Do("POST", path, sheet[0], "Content-Type", "text/csv").Want(200)
		header, _, _ := strings.Cut(sheet[0], "\n")
		c.Do("POST", path, header+"\n"+strings.Replace(sheet[1], "C,entity", "D,client", 1)+sheet[1], "Content-Type", "text/csv").
			WantErrors(map[string][]string{
				"/port-speed": {"/2/name", "taken", "/3/name", "taken"},
				"/group":      {"/2/billing_id", "taken", "/3/billing_id", "taken"},
				"/field":      {"/3/slug", "taken"},
			}[path]...)
	}
	used := testkit.Decode[problem.Problem](
		c.Do("POST", "/field", "name,target_type,slug\nD,client,a\nC,entity,a\n", "Content-Type", "text/csv").Want(422),
	).Errors
	if used[0].Message != "is taken (line 3, column 3)" {
		t.Errorf("got %+v, want that line 3 is taken", used)
	}
}
