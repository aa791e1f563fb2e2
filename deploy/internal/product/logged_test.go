package product_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// TestEveryChangeIsLogged makes each change that there is an operation for, and looks in the log for what it declares to
// leave there. A new operation is covered by being there.
func TestEveryChangeIsLogged(t *testing.T) { both(t, testEveryChangeIsLogged) }

func testEveryChangeIsLogged(t *testing.T, p *product.Product, c *testkit.Client) {
	w := &logWalk{walk: newWalk(t, p, c), made: map[string]change{}}
	w.inTurn(func(changes []rest.Operation) { w.doAll(changes, w.do) })
	producttest.Drain(t, p)
	w.compare(p)
	w.deliver(p)
}

// deliver asks for webhooks of all events that there were.
func (w *logWalk) deliver(p *product.Product) {
	w.t.Helper()
	types := map[string]bool{}
	for name, db := range p.Databases {
		rows, err := db.Query(w.t.Context(), "SELECT DISTINCT type FROM change")
		if err != nil {
			w.t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			w.t.Fatalf("read which events %s has: %v", name, err)
		}
		for _, of := range found {
			types[of] = true
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(types)), 100) {
		w.c.Do("POST", "/webhook", map[string]any{"url": "https://hooks.example.com", "types": some}).Want(200)
	}
}

// TestEverySecondCall sends each change twice, and holds what becomes of the second one against what it declares.
func TestEverySecondCall(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := &logWalk{walk: newWalk(t, p, c), made: map[string]change{}}
	w.inTurn(func(operations []rest.Operation) {
		w.doAll(operations, w.do)
		for _, o := range operations {
			producttest.Followed(t, p)
			before := w.viewed(o.Effect.ViewPath)
			path := o.Path
			if o.Method == http.MethodDelete {
				before = nil
			}
			answer := w.c.Do(o.Method, w.item(path), o.Example)
			again := rest.RetryRefused
			if answer.Status == http.StatusOK {
				again = rest.RetryRepeats
				if after := w.viewed(
					o.Effect.ViewPath,
				); after != nil && reflect.DeepEqual(after, before) &&
					(!makes(o) || w.ids[w.item(path)] == fmt.Sprint(answer.ID())) {
					again = rest.RetrySafe
				}
			}
			if again != o.Effect.Retry {
				t.Errorf("%s %s: got the second call %s, want %s: %d %s", o.Method, o.Path, again, o.Effect.Retry, answer.Status, answer.Text)
			}
		}
	})
}

// inTurn does the changes: what makes items, what edits them, what makes or assigns many, and what deletes, with what is
// below others first.
func (w *logWalk) inTurn(do func([]rest.Operation)) {
	var edits, deletes, creates, many []rest.Operation
	for _, o := range w.operations {
		switch {
		case o.Effect.Logs == "": // it changes nothing
		case hasOwnTests(o):
		case o.Effect.Logs != rest.LogsItem:
			many = append(many, o)
		case o.Method == http.MethodDelete:
			deletes = append(deletes, o)
		case makes(o):
			creates = append(creates, o)
		default:
			edits = append(edits, o)
		}
	}
	slices.SortStableFunc(deletes, func(a, b rest.Operation) int { return strings.Count(b.Path, "/") - strings.Count(a.Path, "/") })
	do(creates)
	do(edits)
	w.c.Do("POST", w.item("/pxe/install/{install_id}/cancel"), nil).Want(200) // one that has not ended is not deleted
	do(deletes)
	w.ids["/group"] = fmt.Sprint(w.c.Do("POST", "/group", `{"name": "another"}`).Want(200).ID())
	w.ids["/pxe/file"] = fmt.Sprint(
		w.c.Do("POST", "/pxe/file",
			map[string]any{"name": "another", "install_max_concurrent": 1, "group": w.ids["/group"], "host": "files.example.net", "port": 8443,
				"api_key":    "x",
				"public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"}).
			Want(200).
			ID(),
	)
	w.ids["/client"] = fmt.Sprint(w.c.Do("POST", "/client", order("another@example.com")).Want(200).ID())
	w.ids["/pxe/profile"] = "1" // which comes with Ironplane
	w.c.Do("POST", "/email/template", `{"name": "welcome", "subject": "x", "body": "x"}`)
	w.created("/webhook", w.c.Do("POST", "/webhook", `{"url": "https://hooks.example.com", "types": ["integration.*"]}`).Want(200).ID())
	do(many)
}

// change is one that was made.
type change struct {
	operation rest.Operation
	before    map[string]any
	after     map[string]any
}

type logWalk struct {
	*walk
	made    map[string]change // by the request's id
	refused []string
	tries   int
}

// doAll does each operation once. What is in the way of one, another one takes away.
func (w *logWalk) doAll(operations []rest.Operation, do func(rest.Operation) *testkit.Response) {
	w.t.Helper()
	operations = slices.Clone(operations)
	for len(operations) > 0 {
		before, refusals := len(operations), ""
		operations = slices.DeleteFunc(operations, func(o rest.Operation) bool {
			answer := do(o)
			if answer.Status != http.StatusOK {
				refusals += fmt.Sprintf("\n%s %s: %s", o.Method, o.Path, answer.Text)
			}
			return answer.Status == http.StatusOK
		})
		if len(operations) == before {
			w.t.Fatalf("got refusals alone, want another change made:%s", refusals)
		}
	}
}

func (w *logWalk) do(o rest.Operation) *testkit.Response {
	w.t.Helper()
	w.tries++
	request, path := fmt.Sprint("try-", w.tries), w.item(o.Path)
	made := change{operation: o}
	producttest.Followed(w.t, w.p)
	if o.Method == http.MethodDelete {
		made.before = w.view(path)
	} else if !makes(o) {
		made.before = w.viewed(o.Effect.ViewPath)
	}
	answer := w.c.Do(o.Method, path, o.Example, "X-Request-Id", request)
	if answer.Status != http.StatusOK {
		w.refused = append(w.refused, request)
		return answer
	}
	if makes(o) {
		w.created(path, answer.ID())
	}
	made.after = w.viewed(o.Effect.ViewPath)
	w.made[request] = made
	return answer
}

// viewed is what a path shows, nil where it is empty.
func (w *logWalk) viewed(path string) map[string]any {
	w.t.Helper()
	if path == "" {
		return nil
	}
	return w.view(w.item(path))
}

func (w *logWalk) view(path string) map[string]any {
	w.t.Helper()
	leaves := map[string]any{}
	flatten(leaves, "", single(w.c.Do("GET", path, nil).Want(200)))
	return leaves
}

func flatten(into map[string]any, prefix string, object map[string]any) {
	for name, value := range object {
		if inner, ok := value.(map[string]any); ok {
			flatten(into, prefix+name+".", inner)
		} else {
			into[prefix+name] = value
		}
	}
}

func (w *logWalk) compare(p *product.Product) {
	w.t.Helper()
	items := map[string][]int64{}
	rows, err := p.Databases[system.Name].Query(w.t.Context(), "SELECT request_id, id FROM log WHERE request_id LIKE 'try-%' ORDER BY id")
	if err != nil {
		w.t.Fatal(err)
	}
	for rows.Next() {
		var request string
		var id int64
		if err := rows.Scan(&request, &id); err != nil {
			w.t.Fatal(err)
		}
		items[request] = append(items[request], id)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	for _, request := range w.refused {
		if len(items[request]) > 0 {
			w.t.Errorf("got %v of a request that changed nothing, want no log item", items[request])
		}
	}
	for request, made := range w.made {
		if n := len(
			items[request],
		); n != 1 && made.operation.Effect.Logs != rest.LogsEach && made.operation.Path != "/pxe/iso" ||
			n == 0 { // the end of an import is another
			w.t.Errorf("%s %s: got %d log items, want 1, or more if it logs each", made.operation.Method, made.operation.Path, n)
			continue
		}
		w.compareItem(made, items[request][0])
	}
}

type logItem struct {
	IP   string
	User struct{ URL string }
	Data struct {
		Message string
		Changes map[string]map[string]any
	}
}

func (w *logWalk) compareItem(made change, id int64) {
	w.t.Helper()
	what := made.operation.Method + " " + made.operation.Path
	item := testkit.Decode[logItem](w.c.Do("GET", path("/log/%d", id), nil).Want(200))
	if item.User.URL != "/admin/1" || item.IP != "127.0.0.1" || len(item.Data.Changes) == 0 {
		w.t.Errorf("%s: got %+v, want the changes of admin 1 at 127.0.0.1", what, item)
	}
	for _, name := range made.operation.Secrets {
		if item.Data.Changes[name]["after"] != "[secret]" {
			w.t.Errorf("%s: got %v, want the new %s as [secret]", what, item.Data.Changes, name)
		}
	}
	byLink := made.operation.Method == http.MethodPatch &&
		strings.Contains(made.operation.Path, "/client/{client_id}/su") // which shows less than what changed
	if made.operation.Effect.Logs != rest.LogsItem || byLink {
		return
	}
	got := maps.Clone(item.Data.Changes)
	maps.DeleteFunc(got, func(_ string, c map[string]any) bool { return c["before"] == "[secret]" || c["after"] == "[secret]" })
	want := map[string]map[string]any{}
	for name, value := range made.before {
		if !reflect.DeepEqual(made.after[name], value) {
			want[name] = map[string]any{"before": value}
		}
	}
	for name, value := range made.after {
		if was, there := made.before[name]; !reflect.DeepEqual(was, value) {
			want[name] = map[string]any{"after": value}
			if there {
				want[name]["before"] = was
			}
		}
	}
	for _, name := range unrecorded[made.operation.Path] {
		delete(want, name)
	}
	for _, moves := range []string{"status", "error", "progress"} { // while an ISO is loaded
		if made.operation.Path == "/pxe/iso" {
			delete(got, moves)
			delete(want, moves)
		}
	}
	if !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(want, "", " ")
		w.t.Errorf("%s: got %v, want %s", what, got, text)
	}
}

// unrecorded are members that the views of items have and records leave out, by the operations that record such an item: they
// change without a record. Two for each noun, to make one and to delete it.
var unrecorded = map[string][]string{
	"/auth/key":                        {"last_used_at.iso_8601", "last_used_at.unix"},
	"/auth/key/{key_id}":               {"last_used_at.iso_8601", "last_used_at.unix"},
	"/client":                          {"serversCount"},
	"/client/{client_id}":              {"serversCount"},
	"/client/{client_id}/sub":          {"child.serversCount"},
	"/client/{client_id}/sub/{sub_id}": {"child.serversCount"},
	"/entity":                          {"siblings_count"},
	"/entity/{entity_id}":              {"siblings_count"},
	"/group":                           {"entities.count", "entitiesCount", "servers.count", "servers.inventory"},
	"/group/{group_id}":                {"entities.count", "entitiesCount", "servers.count", "servers.inventory"},
	"/integration":                     {"clients", "keys", "permissions"},
	"/integration/{integration_id}":    {"clients", "keys", "permissions"},
	"/pxe/install":                     {"progress", "reason", "seen_at.iso_8601", "seen_at.unix", "step"},
	"/pxe/install/{install_id}":        {"progress", "reason", "seen_at.iso_8601", "seen_at.unix", "step"},
	"/pxe/iso/{iso_manager_id}":        {"progress"},
	"/webhook":                         {"resting"},
	"/webhook/{webhook_id}":            {"resting"},
}
