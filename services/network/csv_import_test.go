package network_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func sendCSV(c *testkit.Client, path, sheet string, headers ...string) *testkit.Response {
	return c.Do("POST", path, sheet, append([]string{"Content-Type", "text/csv"}, headers...)...)
}

func wantImport(t *testing.T, response *testkit.Response, created, updated, unchanged, refused int) rest.Import {
	t.Helper()
	done := testkit.Decode[rest.Import](response.Want(200))
	if done.Count != created || done.Updated != updated || done.Unchanged != unchanged || done.Refused != refused {
		t.Errorf("got %s, want %d created, %d updated, %d unchanged and %d refused", response.Text, created, updated, unchanged, refused)
	}
	return done
}

// Rows with an id edit, and other rows create, in one unit of work with a record for each item that changes.
func TestCSVEditsAndCreates(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	recorded := func() string {
		return rows(t, db, "SELECT string_agg(type || ' ' || (targets->0->>'id'), ', ' ORDER BY id) FROM change")
	}
	wantImport(t, sendCSV(c, "/group", "name,billing_id,reserved\nBerlin,B,true\nBern,,\n"), 2, 0, 0, 0)
	wantImport(t, sendCSV(c, "/group", "name,id,billing_id\nBerlin 2,1,\nBern,2,\nBasel,,C\n"), 1, 1, 1, 0)
	want := "group.created 1, group.created 2, group.edited 1, group.created 3"
	if got := recorded(); got != want {
		t.Errorf("got the records %s, want %s", got, want)
	}
	list := c.Do("GET", "/group", nil, "Accept", "text/csv").Want(200).Text
	wantList := "id,name,billing_id,reserved,entities.count,entitiesCount,servers.count,servers.inventory," +
		"pxe_dhcp_server.id,pxe_dhcp_server.name\n" +
		"1,Berlin 2,,true,0,0,0,0,,\n2,Bern,,false,0,0,0,0,,\n3,Basel,C,false,0,0,0,0,,\n"
	if list != wantList { // an empty cell clears the billing id, and a column that is not there changes nothing
		t.Errorf("got %q, want %q", list, wantList)
	}
	wantImport(t, sendCSV(c, "/group", list), 0, 0, 3, 0)
	if got := recorded(); got != want {
		t.Errorf("got the records %s after an import that changed nothing, want %s", got, want)
	}
	sendCSV(c, "/group", "id,name\n1,\n2,Bern\n").WantErrors("/2/name", "required")
	sendCSV(c, "/group", "id,name\n1,x\n1,y\n99,z\nnew,q\n-1,r\n").
		WantErrors("/3/id", "disagrees", "/4/id", "not_found", "/5/id", "type", "/6/id", "type")
	sendCSV(c, "/group", "id,name\n1,x\n", "If-Match", `"1"`).Want(400)
	sendCSV(c, "/group?colour=red", "name\nx\n").Want(400)
	if got := recorded(); got != want {
		t.Errorf("got the records %s after refused imports, want %s", got, want)
	}
}

// Spreadsheets write ; or , as the separator, a byte order mark, CRLF, quoted line breaks, columns without a name and empty rows.
func TestCSVOfSpreadsheets(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	sheet := "\ufeffname;speed;billing_id;\r\n\"1 Gbit/s; full, \"\"new\"\"\";1000;\"GE; 1\";\r\n;;;\r\n10;10000;'=1+1;\r\n"
	done := wantImport(t, sendCSV(c, "/port-speed", sheet), 2, 0, 0, 0)
	if done.First != 1 || done.Last != 2 {
		t.Errorf("got %+v, want the ids 1 to 2", done)
	}
	got := c.Do("GET", "/port-speed", nil).Want(200).Text
	want := `[{"id":1,"name":"1 Gbit/s; full, \"new\"","billing_id":"GE; 1","speed":1000,"switchPortCount":false},` +
		`{"id":2,"name":"10","billing_id":"=1+1","speed":10000,"switchPortCount":false}]` + "\n"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	list := c.Do("GET", "/port-speed", nil, "Accept", "text/csv").Want(200).Text
	if !strings.Contains(list, ",'=1+1,") {
		t.Errorf("got %q, want ' before a text that spreadsheets take for a formula", list)
	}
	wantImport(t, sendCSV(c, "/port-speed", list), 0, 0, 2, 0)
	sendCSV(c, "/port-speed", "name;speed\na,1;x\n").WantErrors("/2/speed", "type")
	sendCSV(c, "/port-speed", "name,speed\nK\xf6ln,1\n").WantDetail(problem.BadRequest,
		"The body is not valid UTF-8. Save it as CSV in UTF-8.")
}

// A dry run gives the report of the import, and changes and records nothing. With partial, rows with errors are left out.
func TestCSVDryRunAndPartial(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	state := func() string {
		return rows(t, db, "SELECT concat((SELECT string_agg(g::text, '|') FROM ip_group g), (SELECT count(*) FROM change))")
	}
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	const sheet = "id,name,reserved\n,Bern,\n1,Berlin,maybe\n,Berlin,\n,Basel,true\n"
	errs := []string{"/3/reserved", "type", "/4/name", "taken"}
	before := state()
	sendCSV(c, "/group", sheet).WantErrors(errs...)
	sendCSV(c, "/group?dry_run=true", sheet).WantErrors(errs...)
	done := wantImport(t, sendCSV(c, "/group?dry_run=true&partial=true", sheet), 2, 0, 0, 2)
	if done.First != 0 || done.Last != 0 {
		t.Errorf("got %+v, want no ids from a dry run", done)
	}
	wantImport(t, sendCSV(c, "/group?dry_run=1", "name\nBern\n", "Idempotency-Key", "dry"), 1, 0, 0, 0)
	if after := state(); after != before {
		t.Errorf("got %s, want %s, as before", after, before)
	}
	done = wantImport(t, sendCSV(c, "/group?partial=true", sheet), 2, 0, 0, 2)
	want := `[{"pointer":"/3/reserved","code":"type","message":"must be true or false (line 3, column 3)","line":3,"column":3},` +
		`{"pointer":"/4/name","code":"taken","message":"is taken (line 4, column 2)","line":4,"column":2}]`
	if got := testkit.JSON(done.Errors); got != want {
		t.Errorf("got the errors %s, want %s", got, want)
	}
	if got := names(c.Do("GET", "/group", nil)); strings.Join(got, ",") != "Berlin,Bern,Basel" {
		t.Errorf("got the groups %v, want the one from before and the two without errors", got)
	}
	wantImport(t, sendCSV(c, "/group?partial=true", "id,name\n9,x\n"), 0, 0, 0, 1)
	sendCSV(c, "/group?partial=true", "name\n"+strings.Repeat("Berlin\n", 1001)).WantDetail(problem.Invalid,
		"The body has 1000 errors or more, so nothing was imported. The first one: 2/name is taken (line 2, column 1).")
	for _, key := range []string{"", "partial"} { // as with any POST
		query := map[string]string{"": "/group", "partial": "/group?partial=true"}[key]
		first := sendCSV(c, query, "name\nTwice"+key+"\n", "Idempotency-Key", "a"+key).Want(200)
		if second := sendCSV(c, query, "name\nTwice"+key+"\n", "Idempotency-Key", "a"+key).Want(200); second.Text != first.Text {
			t.Errorf("got %s for a repeated request, want %s", second.Text, first.Text)
		}
	}
}

// A row names its group by id or by name, in any of three columns. A name that does not exist, is not unique, or is not the one of
// the id is an error.
func TestCSVNames(t *testing.T) {
	t.Parallel()
	c, db := newService(t)
	for _, name := range []string{"Berlin", "Frankfurt 1", "7"} {
		c.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	wantImport(t, sendCSV(c, "/entity", "group;address\nBerlin;10.0.0.1\nFrankfurt 1;10.0.0.2\n1;10.0.0.3\n"), 3, 0, 0, 0)
	wantImport(t, sendCSV(c, "/entity", "group.id,group.name,address\n,7,10.0.0.4\n3,,10.0.0.5\n2,Frankfurt 1,10.0.0.6\n"), 3, 0, 0, 0)
	got := rows(t, db, "SELECT string_agg(group_id::text, ' ' ORDER BY id) FROM ip_entity")
	if want := "1 2 1 3 3 2"; got != want {
		t.Errorf("got the groups %s, want %s", got, want)
	}
	refused := testkit.Decode[problem.Problem](sendCSV(c, "/entity", "address,group\n10.0.1.1,Bonn\n10.0.1.2,Berlin\n").Want(422)).Errors
	want := `[{"pointer":"/2/group","code":"not_found","message":"does not exist: nothing has the name \"Bonn\" (line 2, column 2)","line":2,"column":2}]`
	if testkit.JSON(refused) != want {
		t.Errorf("got %s, want %s", testkit.JSON(refused), want)
	}

	wantImport(t, sendCSV(c, "/entity", "id,group.id,group.name\n1,1,Berlin\n2,,Berlin\n3,2,Berlin\n"), 0, 2, 1, 0)
	for name, group := range map[string]string{"Frankfurt 1": "2", "Berlin": "1"} { // the cell that was edited counts
		response := sendCSV(c, "/entity", fmt.Sprintf("id,group.id,group.name\n1,%s,%s\n", map[string]string{"1": "2", "2": "1"}[group], name))
		wantImport(t, response, 0, 1, 0, 0)
	}
	sendCSV(c, "/entity", "id,group.id,group.name\n1,,\n").WantErrors("/2/group", "required")
	got = rows(t, db, "SELECT string_agg(group_id::text, ' ' ORDER BY id) FROM ip_entity")
	if want := "1 1 2 3 3 2"; got != want {
		t.Errorf("got the groups %s, want %s", got, want)
	}

	const gateway = "name,hostname,api_key,port_limit,groups\n%s,nat.example.net,k,100,\"%s\"\n"
	for name, groups := range map[string]string{"a": "Frankfurt 1, Berlin", "b": "1 2", "c": "2,1", "d": "Berlin,2"} {
		response := sendCSV(c, "/forward/gateway", fmt.Sprintf(gateway, name, groups))
		if name == "d" { // a list has names or ids
			response.WantErrors("/2/groups", "not_found")
			continue
		}
		id := wantImport(t, response, 1, 0, 0, 0).First
		if got := rows(t, db, fmt.Sprintf("SELECT group_ids::text FROM forward_gateway_view WHERE id = %d", id)); got != "{1,2}" {
			t.Errorf("%s: got the groups %s, want {1,2}", groups, got)
		}
	}
	list := c.Do("GET", "/forward/gateway", nil, "Accept", "text/csv").Want(200).Text
	wantImport(t, sendCSV(c, "/forward/gateway", list), 0, 0, 3, 0)
}

// Owners that the service has not heard of are looked up for all rows, and a missing one is an error in its line.
func TestCSVOwners(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	var sheet strings.Builder
	sheet.WriteString("group,address,owner.id\n")
	for i := range 60 {
		fmt.Fprintf(&sheet, "Berlin,10.0.0.%d,%d\n", i, 1+i%40)
	}
	wantImport(t, sendCSV(c, "/entity", sheet.String()), 60, 0, 0, 0)
	sendCSV(c, "/entity", "group,address,owner.id\n1,10.0.1.1,2\n1,10.0.1.2,900000001\n1,10.0.1.3,3\n1,10.0.1.4,900000002\n").
		WantErrors("/3/owner/id", "not_found", "/5/owner/id", "not_found")
	wantImport(t, sendCSV(c, "/entity?partial=true",
		"group,address,owner.id\n1,10.0.1.1,2\n1,10.0.1.2,900000001\n1,10.0.1.3,41\n"), 2, 0, 0, 1)
}

// A dry_run without a value is refused. A caller that means a dry run must not change anything.
func TestEmptyDryRun(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	group := path("/group/%d", c.Do("POST", "/group", `{"name": "Bern"}`).Want(200).ID())
	for _, query := range []string{"?dry_run", "?dry_run="} {
		c.Do("DELETE", group+query, nil).WantDetail(problem.BadRequest, "The query is invalid: dry_run cannot be empty.")
		sendCSV(c, "/group"+query, "name\nBasel\n").WantDetail(problem.BadRequest, "The query is invalid: dry_run cannot be empty.")
	}
	c.Do("GET", group, nil).Want(200)
	if groups := c.Do("GET", "/group", nil).Want(200).Text; strings.Contains(groups, "Basel") {
		t.Errorf("got %s, want no group Basel in it", groups)
	}
}
