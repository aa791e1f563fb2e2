package network_test

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

var link = regexp.MustCompile(`<([^>]*)>; rel="(\w+)"`)

func links(a *testkit.Response) map[string]string {
	found := map[string]string{}
	for _, m := range link.FindAllStringSubmatch(a.Header.Get("Link"), -1) {
		found[m[2]] = m[1]
	}
	return found
}

// names returns the names of the items in a list.
func names(a *testkit.Response) []string {
	all := []string{}
	for _, item := range testkit.Decode[[]struct{ Name string }](a.Want(200)) {
		all = append(all, item.Name)
	}
	return all
}

func TestListPages(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var want []string
	bySpeed := make([][]string, 7)
	for i := range 25 {
		name := fmt.Sprintf("speed %02d", i*7%25)
		c.Do("POST", "/port-speed", map[string]any{"name": name, "speed": 1 + i%7}).Want(200) // some speeds twice: the id decides
		want, bySpeed[i%7] = append(want, name), append(bySpeed[i%7], name)
	}
	sorted := map[string][]string{"id": want, "name": slices.Sorted(slices.Values(want)), "speed": slices.Concat(bySpeed...)}
	rapid.Check(t, func(t *rapid.T) {
		sort := rapid.SampledFrom([]string{"id", "name", "speed"}).Draw(t, "sort")
		perPage := rapid.IntRange(1, 30).Draw(t, "per page")
		desc := rapid.Bool().Draw(t, "desc")
		want := slices.Clone(sorted[sort])
		path := fmt.Sprintf("/port-speed?sort=%s&per_page=%d&count=true", sort, perPage)
		if desc {
			slices.Reverse(want)
			path = strings.Replace(path, "sort=", "sort=-", 1)
		}
		first := path
		var forward, pages []string
		for path != "" {
			page := c.Do("GET", path, nil)
			forward = append(forward, names(page)...)
			pages = append(pages, page.Text)
			if page.Header.Get("X-Total-Count") != "25" {
				t.Fatalf("got the X-Total-Count %s, want 25", page.Header.Get("X-Total-Count"))
			}
			next := links(page)["next"]
			if next == "" {
				break
			}
			path = next
		}
		if !slices.Equal(forward, want) {
			t.Fatalf("forward: got %v, want %v", forward, want)
		}
		for i := len(pages) - 2; i >= 0; i-- {
			path = links(c.Do("GET", path, nil).Want(200))["prev"]
			if page := c.Do("GET", path, nil).Want(200); page.Text != pages[i] {
				t.Fatalf("page %d backward: got %s, want %s", i, page.Text, pages[i])
			}
		}
		if at := links(c.Do("GET", path, nil).Want(200)); at["prev"] != "" && len(names(c.Do("GET", at["prev"], nil))) > 0 {
			t.Fatalf("got items before the first page at %s, want none", at["prev"])
		}
		for number := 1; number <= len(pages); number++ {
			if page := c.Do("GET", fmt.Sprint(first, "&page=", number), nil).Want(200); page.Text != pages[number-1] {
				t.Fatalf("page %d by number: got %s, want %s", number, page.Text, pages[number-1])
			}
		}
		if got := names(c.Do("GET", first, nil)); links(c.Do("GET", path, nil))["first"] == "" || len(got) != min(perPage, 25) {
			t.Fatalf("got %d items on the first page, want %d and a link to it", len(got), min(perPage, 25))
		}
	})
	if all := names(c.Do("GET", "/port-speed?sort=-speed", nil)); !slices.Equal(all, reversed(slices.Concat(bySpeed...))) {
		t.Fatalf("got the complete list %v, want %v", all, reversed(slices.Concat(bySpeed...)))
	}
}

func reversed(s []string) []string {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for i := range 3 {
		c.Do("POST", "/port-speed", map[string]any{"name": fmt.Sprint(i), "speed": 1}).Want(200)
	}
	next := links(c.Do("GET", "/port-speed?per_page=1&sort=name", nil).Want(200))["next"]
	c.Do("GET", next, nil).Want(200)
	for query, want := range map[string]string{
		"colour=red":        "?colour unknown",
		"Q=x":               "?Q unknown",
		"sort=colour":       "?sort unknown",
		"per_page=0":        "?per_page out_of_range",
		"per_page=1001":     "?per_page out_of_range",
		"per_page=ten":      "?per_page out_of_range",
		"page=0":            "?page out_of_range",
		"page=102":          "?page out_of_range",
		"count=yes":         "?count type",
		"speed=fast":        "?speed type",
		"speed=1&speed=2":   "?speed disagrees",
		"speed=1&speed[]=1": "?speed disagrees",
		"speed=1.5":         "?speed type",
		"speed=3000000000":  "?speed out_of_range",
		"cursor=x":          "?cursor invalid",
		"q=%00":             "?q invalid",
		"q=%ff":             "?q invalid",
		"billing_id=a%00b":  "?billing_id type",
		strings.SplitN(strings.Replace(next, "sort=name", "sort=-name", 1), "?", 2)[1]: "?cursor disagrees",
		strings.SplitN(next, "?", 2)[1] + "&q=x":                                       "?cursor disagrees",
		strings.SplitN(next, "?", 2)[1] + "&page=2":                                    "?page conflict",
	} {
		errors := testkit.Decode[problem.Problem](c.Do("GET", "/port-speed?"+query, nil).Want(400)).Errors
		if len(errors) != 1 || errors[0].Pointer+" "+errors[0].Code != want {
			t.Errorf("%s: got %v, want %s", query, errors, want)
		}
	}
	known := testkit.Decode[problem.Problem](c.Do("GET", "/port-speed?colour=red", nil).Want(400)).Errors[0].Message
	if known != "is unknown; there is billing_id, count, cursor, name, page, per_page, q, sort, speed" {
		t.Errorf("got %q, want that colour is unknown, and the names of all parameters", known)
	}
	c.Do("GET", "/port-speed?%zz", nil).Want(400)
}

// The links of numbered pages continue with a cursor where page numbers end.
func TestListPagesBeyondNumbers(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var csv strings.Builder
	for round := range 2 {
		csv.Reset()
		csv.WriteString("name,speed\n")
		for i := range 10_000 {
			fmt.Fprintf(&csv, "%d of %d,1\n", i, round)
		}
		c.Do("POST", "/port-speed", csv.String(), "Content-Type", "text/csv").Want(200)
	}
	c.Do("POST", "/port-speed", csv.String()+"one too many,1\n", "Content-Type", "text/csv").Want(413)
	seen := 0
	for path := "/port-speed?per_page=1000&page=9"; path != ""; {
		page := c.Do("GET", path, nil)
		seen += len(names(page))
		path = links(page)["next"]
	}
	if seen != 12_000 {
		t.Errorf("got %d items from page 9 on, want 12000", seen)
	}
}

func TestListSearch(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for _, s := range []string{`{"name": "Fast Lane", "billing_id": "FL-1", "speed": 1000}`, `{"name": "breakfast", "speed": 100}`, `{"name": "50% off_line", "billing_id": "äÖ", "speed": 10}`} {
		c.Do("POST", "/port-speed", s).Want(200)
	}
	for q, want := range map[string][]string{
		"fast": {"Fast Lane", "breakfast"}, "FAST": {"Fast Lane", "breakfast"}, "lane": {"Fast Lane"}, "t lan": {"Fast Lane"},
		"fl-1": {"Fast Lane"},
		"fa":   {"Fast Lane"}, "f": {"Fast Lane"}, "b": {"breakfast"}, "": {"Fast Lane", "breakfast", "50% off_line"},
		"%25": {}, "0%25 o": {"50% off_line"}, "f_l": {"50% off_line"}, "ÄÖ": {"50% off_line"}, "ast%0Afl": {}, "nothing": {}, "\\": {},
	} {
		answer := c.Do("GET", "/port-speed?count=true&q="+strings.ReplaceAll(q, " ", "+"), nil)
		if got := names(answer); !slices.Equal(got, want) || answer.Header.Get("X-Total-Count") != fmt.Sprint(len(want)) {
			t.Errorf("%q: got %v, want %v", q, got, want)
		}
	}
	if got := names(c.Do("GET", "/port-speed?speed=100", nil)); !slices.Equal(got, []string{"breakfast"}) {
		t.Errorf("got %v, want breakfast", got)
	}
	if got := names(c.Do("GET", "/port-speed?billing_id=FL-1&speed=100", nil)); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
}

func TestEntityFilters(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	rename(t, db, 4, "Rackspace")
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern", "reserved": true}`).Want(200)
	for _, e := range []string{
		`{"group": 1, "address": "192.0.2.0/28", "nickname": "Rack", "vlan": 7}`,
		`{"group": 1, "v4": {"address": "192.0.2.32", "range_end": "192.0.2.40"}, "owner": {"id": 4, "server": {"id": 9, "name": "fra1-s4"}}}`,
		`{"group": 2, "address": "198.51.100.1", "v6_address": "2001:db8::/64", "billing_id": "B", "owner": {"id": 5}}`,
	} {
		c.Do("POST", "/entity", e).Want(200)
	}
	for query, want := range map[string][]string{
		"group_id=1": {"Rack", "192.0.2.32-192.0.2.40"}, "group_id=9": {}, "vlan=7": {"Rack"}, "owner=4": {"192.0.2.32-192.0.2.40"},
		"owner=5":     {"198.51.100.1"},
		"server_id=9": {"192.0.2.32-192.0.2.40"}, "billing_id=B": {"198.51.100.1"}, "owner=5&group_id=2": {"198.51.100.1"},
		"q=192.0.2.5": {"Rack"}, "q=192.0.2.35": {"192.0.2.32-192.0.2.40"}, "q=192.0.2.16": {},
		"q=192.0.2.0/24":  {"Rack", "192.0.2.32-192.0.2.40"},
		"q=192.0.2.32/29": {}, "q=2001:db8::7": {"198.51.100.1"}, "q=2001:DB8::/32": {"198.51.100.1"},
		"q=rac": {"Rack", "192.0.2.32-192.0.2.40"}, "q=RACKS": {"192.0.2.32-192.0.2.40"}, "q=fra1-s4": {"192.0.2.32-192.0.2.40"},
		"q=fr": {"192.0.2.32-192.0.2.40"}, "q=ra&vlan=7": {"Rack"},
		"sort=-name&q=rack": {"Rack", "192.0.2.32-192.0.2.40"}, "q=rack&per_page=1&page=2": {"192.0.2.32-192.0.2.40"},
		"q=192.0.2.32-192.0.2.63":  {"192.0.2.32-192.0.2.40"},
		"sort=name":                {"192.0.2.32-192.0.2.40", "198.51.100.1", "Rack"},
		"sort=-name&q=192.0.0.0/8": {"Rack", "192.0.2.32-192.0.2.40"},
	} {
		if got := names(c.Do("GET", "/entity?"+query, nil)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	first := c.Do("GET", "/entity?q=rack&per_page=1&count=true", nil)
	if total := first.Header.Get("X-Total-Count"); total != "2" {
		t.Errorf("got the X-Total-Count %s, want 2", total)
	}
	if got := names(c.Do("GET", links(first)["next"], nil)); !slices.Equal(got, []string{"192.0.2.32-192.0.2.40"}) {
		t.Errorf("got %v, want 192.0.2.32-192.0.2.40", got)
	}
	if got := names(c.Do("GET", "/group?reserved=true", nil)); !slices.Equal(got, []string{"Bern"}) {
		t.Errorf("got %v, want Bern", got)
	}
}

// A search finds an entity by the beginning of its address, or of an address inside it.
func TestBeginningOfAnAddress(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	rename(t, db, 5, "Acme 198.51")
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for _, e := range []string{
		`{"group": 1, "address": "192.0.2.7", "owner": {"id": 5}}`,
		`{"group": 1, "address": "192.0.20.0/24", "nickname": "twenty"}`,
		`{"group": 1, "address": "192.0.250.1", "v6_address": "2001:db8:1d::1", "vlan": 7}`,
		`{"group": 1, "address": "198.51.0.0/16", "nickname": "sixteen", "vlan": 7}`,
		`{"group": 1, "v6_address": "2001:db8:1::/48", "nickname": "six"}`,
		`{"group": 1, "address": "203.0.113.9", "nickname": "release 192.0.2"}`,
	} {
		c.Do("POST", "/entity", e).Want(200)
	}
	const seven, twenty, both, sixteen, six, text = "192.0.2.7", "twenty", "192.0.250.1", "sixteen", "six", "release 192.0.2"
	for query, want := range map[string][]string{
		"192.":       {seven, twenty, both, text},
		"192.0.2":    {seven, twenty, both, text}, // which all are written so
		"192.0.2.":   {seven},
		"192.0.20":   {twenty},
		"192.0.20.":  {twenty},
		"192.0.3":    {},
		"192.0.02":   {},
		"192.0.300":  {},
		"198.51":     {seven, sixteen}, // an owner's name
		"198.51.100": {sixteen},        // which holds them
		"198.52":     {},
		"2001:":      {both, six}, "2001:db8": {both, six}, "2001:0DB8": {both, six}, "2001:db8:": {both, six}, "2001:db8::": {both, six},
		"2001:db8:1": {both, six}, "2001:db8:1:": {six}, "2001:db8:0001": {six}, "2001:db8:1d": {both}, "2001:db8:001": {both},
		"2001:db8:2": {}, "2001:db9": {}, "2001:db80": {}, "2001:db8:1:7": {six}, "2001:db8:1::7": {six}, "2001:dbg": {},
		"192.0.2&vlan=7": {both}, "192.0.2&owner=5": {seven}, "2001:db8&sort=-name": {six, both},
		"192.0.2&assigned=false&sort=-address": {text, both, twenty},
	} {
		answer := c.Do("GET", "/entity?count=true&q="+query, nil)
		if got := names(answer); !slices.Equal(got, want) || answer.Header.Get("X-Total-Count") != fmt.Sprint(len(want)) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	if got := paged(t, c, "/entity?per_page=1&q=192.0.2&sort=-address"); !slices.Equal(got, []string{text, both, twenty, seven}) {
		t.Errorf("got %v, want %v", got, []string{text, both, twenty, seven})
	}
}

// paged follows the links to the next page.
func paged(t *testing.T, c *testkit.Client, path string) (all []string) {
	t.Helper()
	for path != "" {
		page := c.Do("GET", path, nil)
		all = append(all, names(page)...)
		path = links(page)["next"]
	}
	return all
}

// Entities are sorted by their addresses as numbers, IPv4 before IPv6. Free entities can be listed by themselves.
func TestEntitiesByAddressAndAssignment(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	for _, e := range []string{
		`{"group": 1, "v6_address": "2001:db8::10", "nickname": "ten of six"}`,
		`{"group": 1, "address": "10.0.0.10", "nickname": "ten"}`,
		`{"group": 1, "address": "10.0.0.9", "nickname": "nine", "owner": {"id": 5}, "vlan": 7}`,
		`{"group": 2, "address": "10.0.0.9", "nickname": "nine of Bern", "v6_address": "2001:db8::1"}`,
		`{"group": 1, "v6_address": "2001:db8::9", "nickname": "nine of six", "owner": {"id": 5}}`,
		`{"group": 2, "address": "9.255.255.0/24", "nickname": "prefix", "owner": {"id": 6}}`,
	} {
		c.Do("POST", "/entity", e).Want(200)
	}
	created := []string{"ten of six", "ten", "nine", "nine of Bern", "nine of six", "prefix"}
	all := []string{"prefix", "nine", "nine of Bern", "ten", "nine of six", "ten of six"}
	for query, want := range map[string][]string{
		"":                             all,
		"&group_id=1":                  {"nine", "ten", "nine of six", "ten of six"},
		"&assigned=true":               {"prefix", "nine", "nine of six"},
		"&assigned=false":              {"nine of Bern", "ten", "ten of six"},
		"&assigned=false&group_id=1":   {"ten", "ten of six"},
		"&assigned=true&group_id=1":    {"nine", "nine of six"},
		"&owner=5":                     {"nine", "nine of six"},
		"&owner_id=5&vlan=7":           {"nine"},
		"&owner=5&assigned=false":      {},
		"&owner=5&assigned=true":       {"nine", "nine of six"},
		"&q=nine":                      {"nine", "nine of Bern", "nine of six"},
		"&q=nine&assigned=false":       {"nine of Bern"},
		"&q=10.0.0.0/8&assigned=false": {"nine of Bern", "ten"},
		"&name=ten":                    {"ten"},
	} {
		for _, sort := range []string{"address", "-address", "name", "-id"} {
			want := slices.Clone(want)
			switch sort {
			case "-address":
				slices.Reverse(want)
			case "name":
				slices.Sort(want)
			case "-id":
				slices.SortFunc(want, func(a, b string) int { return slices.Index(created, b) - slices.Index(created, a) })
			}
			path := "/entity?count=true&sort=" + sort + query
			answer := c.Do("GET", path, nil)
			if got := names(answer); !slices.Equal(got, want) || answer.Header.Get("X-Total-Count") != fmt.Sprint(len(want)) {
				t.Errorf("%s: got %q, want %q", path, got, want)
			}
			if got := paged(t, c, path+"&per_page=1"); !slices.Equal(got, want) {
				t.Errorf("%s in pages: got %q, want %q", path, got, want)
			}
		}
	}
	c.Do("POST", "/entity/3/release", nil).Want(200)
	if got := names(
		c.Do("GET", "/entity?assigned=false&group_id=1&sort=address", nil),
	); !slices.Equal(
		got,
		[]string{"10.0.0.9", "ten", "ten of six"},
	) {
		t.Errorf("got %v, want 10.0.0.9 without its nickname, ten and ten of six", got)
	}
	c.Do("GET", "/entity?assigned=perhaps", nil).Want(400)
	c.Do("GET", "/entity?per_page=1&sort=address&cursor=eyJxIjoiIiwidiI6IngiLCJpIjoxfQ", nil).Want(400)
}

func TestCSV(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	post := func(path, text string) *testkit.Response {
		return c.Do("POST", path, text, "Content-Type", "text/csv; charset=utf-8")
	}
	created := testkit.Decode[rest.Import](
		post("/port-speed", "\ufeffname,speed,billing_id,switchPortCount\n\"1 Gbit/s, full\",1000,GE,true\r\n\"10\"\"\",10000,,\n").Want(200),
	)
	if created.Count != 2 || created.First != 1 || created.Last != 2 {
		t.Fatalf("got %+v, want two port speeds, 1 and 2", created)
	}
	post("/port-speed", "name,speed,colour\na,1,red\n,2,blue\n").WantErrors("/1/colour", "unknown", "/3/name", "required")
	list := c.Do("GET", "/port-speed", nil, "Accept", "text/csv").Want(200)
	if want := "id,name,billing_id,speed,switchPortCount\n1,\"1 Gbit/s, full\",GE,1000,false\n2,\"10\"\"\",,10000,false\n"; list.Text !=
		want ||
		!strings.HasPrefix(list.Header.Get("Content-Type"), "text/csv") {
		t.Fatalf("got %s: %s, want text/csv: %s", list.Header.Get("Content-Type"), list.Text, want)
	}
	if page := c.Do("GET", "/port-speed?per_page=1&q=gbit", nil, "Accept", "application/json, text/csv;q=0.5").
		Want(200).
		Text; !strings.HasPrefix(
		page,
		"[",
	) {
		t.Fatalf("got %s, want a JSON list", page)
	}
	post("/port-speed", testkit.WithoutIDs(t, list.Text)).WantErrors("/2/name", "taken", "/3/name", "taken")
	c.Do("DELETE", "/port-speed/1,2", nil).Want(200)
	post("/port-speed", list.Text).WantErrors("/2/id", "not_found", "/3/id", "not_found")
	post("/port-speed", testkit.WithoutIDs(t, list.Text)).Want(200)
	if got := len(names(c.Do("GET", "/port-speed", nil))); got != 2 {
		t.Fatalf("got %d port speeds, want 2", got)
	}

	post(
		"/port-speed",
		"name,speed\na,1\nb,x\n,3\n\"c\nd\",0\n",
	).WantErrors("/3/speed", "type", "/4/name", "required", "/5/name", "invalid", "/5/speed", "out_of_range")
	message := testkit.Decode[problem.Problem](post("/port-speed", "speed,name\n1,a\nx,b\n").Want(422)).Errors[0].Message
	if message != "must be an integer (line 3, column 1)" {
		t.Errorf("got %q, want that line 3, column 1 must be an integer", message)
	}
	post("/group", "name\nBerlin\nBern\nBerlin\n").WantErrors("/4/name", "taken")
	for _, invalid := range []string{
		"", "name,speed", "name,speed\n", "name,speed\na\n", "name,name\na,b\n", "name,speed\n\"a,1\n", "name,speed\n\xff,1\n",
	} {
		post("/port-speed", invalid).Want(400)
	}
	if got := len(names(c.Do("GET", "/port-speed", nil))) + len(names(c.Do("GET", "/group", nil))); got != 2 {
		t.Fatalf("got %d port speeds and groups, want the 2 from before", got)
	}
}

func TestEntitiesInCSV(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for _, e := range []string{
		`{"group": 1, "address": "192.0.2.0/28", "nickname": "Rack", "vlan": 7, "gateway": "192.0.2.1"}`,
		`{"group": 1, "v4": {"address": "192.0.2.32", "range_end": "192.0.2.40", "subnet_mask": "255.255.255.0"}, "owner": {"id": 5, "server": {"id": 9}}}`,
		`{"group": 1, "address": "10.0.0.1", "v6_address": "2001:db8::/64", "billing_id": "B"}`,
	} {
		c.Do("POST", "/entity", e).Want(200)
	}
	before := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity", nil).Want(200))
	c.Do("POST", "/group", `{"name": "Bern"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 2, "address": "10.0.0.1"}`).Want(200) // is not in Berlin's plan
	list := c.Do("GET", "/entity?group_id=1", nil, "Accept", "text/csv").Want(200).Text
	used := testkit.Decode[problem.Problem](c.Do("POST", "/entity", testkit.WithoutIDs(t, list), "Content-Type", "text/csv").Want(422)).Errors
	if len(used) != 4 || used[0].Pointer != "/2/address" || used[0].Code != "overlaps" || used[2].Line != 4 {
		t.Fatalf("got %+v, want an overlap in each line, the first at /2/address", used)
	}
	for _, e := range before {
		c.Do("POST", fmt.Sprintf("/entity/%d/release", e.ID), nil).Want(200)
		c.Do("DELETE", fmt.Sprint("/entity/", e.ID), nil).Want(200)
	}
	c.Do("POST", "/entity", testkit.WithoutIDs(t, list), "Content-Type", "text/csv").Want(200)
	after := testkit.Decode[[]network.IPEntity](c.Do("GET", "/entity?group_id=1", nil).Want(200))
	for i := range after {
		after[i].ID = before[i].ID
	}
	if testkit.JSON(after) != testkit.JSON(before) {
		t.Errorf("got\n%s, want\n%s", testkit.JSON(after), testkit.JSON(before))
	}
}

// A search finds every entity that has the text anywhere in its nickname, its billing id, or the name of its owner or
// server, and no other entity. Length and case do not matter.
func TestSearchFindsAnyPart(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	texts := [][4]string{
		{"rack 12, Ünit 0001234", "SVC-0001234", "Acme Hosting GmbH", "fra1-s0012"},
		{"rack 12", "SVC-00012345", "Acme", "fra1-s001234"},
		{"100%_sure\\", "SVC-1000123", "acme hosting ltd", "srv-100012"},
		{"mail", "svc-0001", "", ""},
	}
	for i, text := range texts {
		rename(t, db, i+1, text[2])
		body := map[string]any{"group": 1, "address": fmt.Sprint("192.0.2.", i), "nickname": text[0], "billing_id": text[1]}
		if text[2] != "" {
			body["owner"] = map[string]any{"id": i + 1, "server": map[string]any{"id": i + 1, "name": text[3]}}
		}
		c.Do("POST", "/entity", body).Want(200)
	}
	rapid.Check(t, func(rt *rapid.T) {
		of := []rune(rapid.SampledFrom(texts[rapid.IntRange(0, 3).Draw(rt, "entity")][:]).Draw(rt, "member"))
		if len(of) < 3 {
			return
		}
		from := rapid.IntRange(0, len(of)-3).Draw(rt, "from")
		q := string(of[from:rapid.IntRange(from+3, len(of)).Draw(rt, "to")])
		if rapid.Bool().Draw(rt, "upper") {
			q = strings.ToUpper(q)
		}
		q += rapid.SampledFrom([]string{"", "", "", "4", "0123"}).Draw(rt, "more")
		var want []string
		for _, text := range texts {
			if strings.Contains(strings.ToLower(strings.Join(text[:], "\n")), strings.ToLower(q)) {
				want = append(want, text[0])
			}
		}
		if got := names(c.Do("GET", "/entity?"+url.Values{"q": {q}}.Encode(), nil)); !slices.Equal(got, want) {
			rt.Fatalf("%q: got %q, want %q", q, got, want)
		}
	})
}

// The entities of an owner are sorted and found by their names, even while these are edited.
func TestListsOfAnOwner(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for i, vlan := range []int{7, 7, 8} {
		c.Do(
			"POST", "/entity",
			map[string]any{
				"group": 1, "address": fmt.Sprint("192.0.2.", i), "nickname": string(rune('c' - i)), "vlan": vlan, "owner": map[string]any{"id": 5},
			},
		).
			Want(200)
	}
	want := func(query, list string) {
		t.Helper()
		if got := strings.Join(names(c.Do("GET", "/entity?owner=5"+query, nil)), " "); got != list {
			t.Errorf("%s: got %s, want %s", query, got, list)
		}
	}
	want("&sort=name", "a b c")
	want("&vlan=7", "c b")
	want("&q=192.0.2.1", "b")
	c.Do("PATCH", "/entity/1", `{"nickname": null, "vlan": 8}`).Want(200)
	c.Do("PATCH", "/entity/2", `{"owner": null}`).Want(200)
	c.Do("PATCH", "/entity/2", `{"nickname": "z", "owner": {"id": 5}}`).Want(200)
	want("&sort=-name", "z a 192.0.2.0")
	want("&vlan=8&sort=name", "192.0.2.0 a")
	want("&vlan=7&group_id=1", "z")
	if stale := rows(
		t,
		db,
		"SELECT a::text FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id WHERE (a.entity_name, a.vlan) IS DISTINCT "+
			"FROM (e.name, e.vlan)",
	); stale != "" {
		t.Errorf("got assignments with another name or VLAN than their entity's: %s, want none", stale)
	}
}

// A bulk creation that is too large says which limit it exceeds, and creates nothing.
func TestPlanIsTooLong(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	for row, message := range map[string]string{
		"1,192.0.2.1,\n": "The body has more than 10000 rows.",
		"1,192.0.2.1," + strings.Repeat("n", 900) + "\n": "The body is larger than 8388608 bytes.",
	} {
		a := c.Do("POST", "/entity", "group,address,nickname\n"+strings.Repeat(row, 10_001), "Content-Type", "text/csv").Want(413)
		if detail := testkit.Decode[problem.Problem](a).Detail; detail != message {
			t.Errorf("got %s, want %s", detail, message)
		}
	}
	if n := len(names(c.Do("GET", "/entity", nil))); n != 0 {
		t.Errorf("got %d entities, want 0", n)
	}
}
