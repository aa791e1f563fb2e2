package product_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// A parameter with a NUL or with invalid UTF-8 is refused and named, because PostgreSQL cannot store such a text.
func TestQueryIsText(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	c := w.c
	document := testkit.Decode[struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			}
		}
	}](c.WithKey("").Do("GET", "/-/openapi.json", nil).Want(200))
	tried := 0
	for path, operations := range document.Paths {
		for _, parameter := range operations["get"].Parameters {
			if parameter.In != "query" {
				continue
			}
			required := ""
			for _, other := range operations["get"].Parameters {
				if other.In == "query" && other.Required && other.Name != parameter.Name {
					required += "&" + other.Name + "="
				}
			}
			for _, value := range []string{"%00", "a%00b", "%ff"} {
				tried++
				response := c.Do("GET", w.item(path)+"?"+parameter.Name+"="+value+required, nil).Want(400)
				if errs := testkit.Decode[problem.Problem](response).Errors; len(errs) == 0 || errs[0].Pointer != "?"+parameter.Name {
					t.Errorf("%s?%s=%s: got %s, want an error at the parameter", path, parameter.Name, value, response.Text)
				}
			}
		}
	}
	c.Do("GET", "/log?target_id=7&target_type=%00", nil).Want(400)
	if tried < 100 {
		t.Errorf("got %d tries, want at least 100", tried)
	}
}

// Each operation refuses a parameter that it does not have. Otherwise a caller with a misspelt filter would get every item.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	c := w.c
	for _, o := range w.operations {
		response := c.Do(o.Method, w.item(o.Path)+"?colour=red&colour=blue", o.Example)
		errs := testkit.Decode[problem.Problem](response.Want(400)).Errors
		if len(errs) == 0 || errs[0].Pointer != "?colour" || errs[0].Code != "unknown" ||
			!strings.HasPrefix(errs[0].Message, "is unknown; there is ") {
			t.Errorf("%s %s: got %s, want ?colour unknown", o.Method, o.Path, response.Text)
		}
	}
	c.Do("GET", "/group/1?include=all", nil).Want(400)
	c.Do("GET", "/group?key=not-a-key", nil).Want(200) // which the gateway takes out
}

// Parameters can be spelt as forms, PHP and billing systems spell them.
func TestSpellingsOfParameters(t *testing.T) { producttest.InOneProcess(t, testSpellingsOfParameters) }

func testSpellingsOfParameters(t *testing.T, _ *product.Product, c *testkit.Client) {
	c.Do("POST", "/group", `{"name": "Berlin", "reserved": true, "billing_id": "B"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	for i := range 3 {
		c.Do("POST", "/client", order(fmt.Sprintf("ben-%d@example.com", i))).Want(200)
	}
	for _, entity := range []string{`{"group": 1, "address": "192.0.2.1", "billing_id": "7", "vlan": 5, "owner": {"id": 3}}`, `{"group": 2, "address": "192.0.2.2"}`} {
		c.Do("POST", "/entity", entity).Want(200)
	}
	for query, want := range map[string][]int64{
		"/entity?group_id=1": {1}, "/entity?group.id=1": {1}, "/entity?group[id]=001": {1}, "/entity?group%5Bid%5D=2": {2},
		"/entity?owner.id=3":  {1},
		"/entity?owner[id]=3": {1}, "/entity?owner=3": {1}, "/entity?vlan=": {1, 2},
		"/entity?group_id=&sort=&q=&per_page=&page=&count=&cursor=": {1, 2},
		"/entity?billing_id=": {}, "/entity?billing_id=%20": {}, "/entity?billing.id=7%20": {1}, "/entity?owner=": {}, "/entity?owner.id=": {},
		"/entity?billing_id=&group_id=1": {},
		"/group?reserved=1":              {1}, "/group?reserved=TRUE": {1}, "/group?reserved=False": {2}, "/group?reserved=0": {2},
		"/group?reserved=":           {1, 2},
		"/group?billing_id=&count=1": {}, "/auth/key?owner=": {}, "/admin?email=": {}, "/admin?username=": {}, "/log?user=": {},
	} {
		if got := ids(c.Do("GET", query, nil).Want(200)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	if got := c.Do("GET", "/group?count=1", nil).Want(200).Header.Get("X-Total-Count"); got != "2" {
		t.Errorf("got the count %q, want 2", got)
	}
	fields := c.Do("GET", "/group/1?include=fields", nil).Want(200).Text
	for _, query := range []string{"include=fields&include=fields", "include[]=fields", "include=&include=fields", "include=fields,"} {
		if got := c.Do("GET", "/group/1?"+query, nil).Want(200).Text; got != fields {
			t.Errorf("%s: got %s, want %s", query, got, fields)
		}
	}
	c.Do("GET", "/group/1?include=", nil).Want(200)
	for query, want := range map[string]string{
		"/entity?group_id=1&group.id=1": "?group_id disagrees", "/entity?owner.name=x": "?owner.name unknown",
		"/group?reserved=yes":                "?reserved type",
		"/log?target_id=x&target_type=group": "?target_id type", "/log?since=soon": "?since type",
		"/group/1?include=x&include=y": "?include unknown",
		"/entity?vlan=1e2":             "?vlan type", "/entity?vlan=+5": "?vlan type",
	} {
		if errs := testkit.Decode[problem.Problem](c.Do("GET", query, nil).Want(400)).Errors; errs[0].Pointer+" "+errs[0].Code != want {
			t.Errorf("%s: got %v, want %s", query, errs, want)
		}
	}
	next := c.Do("GET", "/entity?group[id]=1&per_page=1&page=1&vlan=", nil).Want(200).Header.Get("Link")
	if !strings.HasPrefix(next, "</entity?group_id=1&") {
		t.Errorf("got the first page at %s, want /entity?group_id=1", next)
	}
}
