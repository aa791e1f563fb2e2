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
	"github.com/ironplane/ironplane/services/system/audit"
)

// TestEveryChangeIsLogged sends each operation that changes something, and checks that the log has what the operation declares.
// It covers new operations, too.
func TestEveryChangeIsLogged(t *testing.T) { both(t, testEveryChangeIsLogged) }

func testEveryChangeIsLogged(t *testing.T, p *product.Product, c *testkit.Client) {
	w := &logWalk{walk: newWalk(t, p, c), changes: map[string]change{}}
	w.inOrder(func(changes []rest.Operation) { w.doAll(changes, w.do) })
	producttest.AwaitLog(t, p)
	w.compare(p)
	w.deliver(p)
}

// deliver fetches the webhooks of all events.
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
	for eventType := range types {
		if !audit.HasSentence(eventType) {
			w.t.Errorf("got the type %s, want it among the sentences of the log", eventType)
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(types)), 100) {
		w.c.Do("POST", "/webhook", map[string]any{"url": "https://hooks.example.com", "types": some}).Want(200)
	}
}

// TestEverySecondCall sends each change twice, and compares the second result with what the operation declares.
func TestEverySecondCall(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := &logWalk{walk: newWalk(t, p, c), changes: map[string]change{}}
	w.inOrder(func(operations []rest.Operation) {
		w.doAll(operations, w.do)
		for _, o := range operations {
			producttest.AwaitConsumers(t, p)
			before := w.viewed(o.Effect.ViewPath)
			path := o.Path
			if o.Method == http.MethodDelete {
				before = nil
			}
			answer := w.c.Do(o.Method, w.item(path)+queryOf[path], o.Example)
			retry := rest.RetryRefused
			if answer.Status == http.StatusOK {
				retry = rest.RetryRepeats
				if after := w.viewed(
					o.Effect.ViewPath,
				); after != nil && reflect.DeepEqual(after, before) &&
					(!creates(o) || w.ids[w.item(path)] == fmt.Sprint(answer.ID())) {
					retry = rest.RetrySafe
				}
			}
			if retry != o.Effect.Retry {
				t.Errorf("%s %s: got the second call %s, want %s: %d %s", o.Method, o.Path, retry, o.Effect.Retry, answer.Status, answer.Text)
			}
		}
	})
}

// inOrder calls do with the operations in this order: creating, editing, deleting (children before parents), and those on
// many items.
func (w *logWalk) inOrder(do func([]rest.Operation)) {
	var edits, releases, gifts, deletes, creating, many []rest.Operation
	for _, o := range w.operations {
		switch {
		case o.Effect.Logs == "": // it changes nothing
		case hasOwnTests(o):
		case o.Effect.Logs != rest.LogsItem:
			many = append(many, o)
		case o.Method == http.MethodDelete:
			deletes = append(deletes, o)
		case strings.HasSuffix(o.Path, "/release"):
			releases = append(releases, o)
		case strings.HasSuffix(o.Path, "/give"):
			gifts = append(gifts, o)
		case creates(o):
			creating = append(creating, o)
		default:
			edits = append(edits, o)
		}
	}
	slices.SortStableFunc(deletes, func(a, b rest.Operation) int { return strings.Count(b.Path, "/") - strings.Count(a.Path, "/") })
	do(creating)
	do(edits)
	w.c.Do("POST", w.item("/pxe/install/{install_id}/cancel"), nil).Want(200) // one that has not ended is not deleted, and keeps its entity
	do(releases)
	entity := w.item("/entity/{entity_id}")
	w.c.Do("PATCH", entity, map[string]any{"owner": map[string]any{"id": json.Number(w.ids["/client"])}}).Want(200) // it has the sub client
	do(gifts)
	w.c.Do("PATCH", entity, `{"owner": null}`).Want(200)
	w.c.Do("PATCH", entity, `{"status": "available"}`).Want(200) // a quarantined one is not deleted
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

// change is an operation that was sent, with the item before and after it.
type change struct {
	operation rest.Operation
	before    map[string]any
	after     map[string]any
}

type logWalk struct {
	*walk
	changes map[string]change // by the request's id
	refused []string
	tries   int
}

// doAll sends each operation once. It postpones an operation until those in its way are done.
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
	changes := change{operation: o}
	producttest.AwaitConsumers(w.t, w.p)
	if o.Method == http.MethodDelete {
		changes.before = w.view(path)
	} else if !creates(o) {
		changes.before = w.viewed(o.Effect.ViewPath)
	}
	answer := w.c.Do(o.Method, path+queryOf[o.Path], o.Example, "X-Request-Id", request)
	if answer.Status != http.StatusOK {
		w.refused = append(w.refused, request)
		return answer
	}
	if creates(o) {
		w.created(path, answer.ID())
	}
	changes.after = w.viewed(o.Effect.ViewPath)
	w.changes[request] = changes
	return answer
}

// viewed returns the item at a path, or nil for an empty path.
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
	for request, changes := range w.changes {
		if n := len(
			items[request],
		); n != 1 && changes.operation.Effect.Logs != rest.LogsEach && changes.operation.Path != "/pxe/iso" ||
			n == 0 { // the end of an import has its own item
			w.t.Errorf("%s %s: got %d log items, want 1, or more if it logs each", changes.operation.Method, changes.operation.Path, n)
			continue
		}
		w.compareItem(changes, items[request][0])
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

func (w *logWalk) compareItem(changes change, id int64) {
	w.t.Helper()
	operation := changes.operation.Method + " " + changes.operation.Path
	item := testkit.Decode[logItem](w.c.Do("GET", path("/log/%d", id), nil).Want(200))
	if item.User.URL != "/admin/1" || item.IP != "127.0.0.1" || len(item.Data.Changes) == 0 {
		w.t.Errorf("%s: got %+v, want the changes of admin 1 at 127.0.0.1", operation, item)
	}
	for _, name := range changes.operation.Secrets {
		if item.Data.Changes[name]["after"] != "[secret]" {
			w.t.Errorf("%s: got %v, want the new %s as [secret]", operation, item.Data.Changes, name)
		}
	}
	byLink := changes.operation.Method == http.MethodPatch &&
		strings.Contains(changes.operation.Path, "/client/{client_id}/su") // the view of a link shows only some of the changed members
	if changes.operation.Effect.Logs != rest.LogsItem || byLink {
		return
	}
	got := maps.Clone(item.Data.Changes)
	maps.DeleteFunc(got, func(_ string, c map[string]any) bool { return c["before"] == "[secret]" || c["after"] == "[secret]" })
	want := map[string]map[string]any{}
	for name, value := range changes.before {
		if !reflect.DeepEqual(changes.after[name], value) {
			want[name] = map[string]any{"before": value}
		}
	}
	for name, value := range changes.after {
		if before, existed := changes.before[name]; !reflect.DeepEqual(before, value) {
			want[name] = map[string]any{"after": value}
			if existed {
				want[name]["before"] = before
			}
		}
	}
	for _, name := range unrecorded[changes.operation.Path] {
		delete(want, name)
	}
	for _, name := range []string{"status", "error", "progress"} { // they change during the import
		if changes.operation.Path == "/pxe/iso" {
			delete(got, name)
			delete(want, name)
		}
	}
	if !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(want, "", " ")
		w.t.Errorf("%s: got %v, want %s", operation, got, text)
	}
}

// unrecorded are members that items' views have and records leave out, because they change without a record. Each noun has
// two operations: one that creates an item and one that deletes it.
var unrecorded = map[string][]string{
	"/auth/key":                        {"last_used_at.iso_8601", "last_used_at.unix"},
	"/auth/key/{key_id}":               {"last_used_at.iso_8601", "last_used_at.unix"},
	"/client":                          {"serversCount", "suspended"},
	"/client/{client_id}":              {"serversCount", "suspended"},
	"/client/{client_id}/sub":          {"child.serversCount"},
	"/client/{client_id}/sub/{sub_id}": {"child.serversCount"},
	"/entity":                          {"siblings_count"},
	"/entity/{entity_id}":              {"siblings_count"},
	"/group":                           {"entities.count", "entitiesCount", "servers.count", "servers.inventory"},
	"/group/{group_id}":                {"entities.count", "entitiesCount", "servers.count", "servers.inventory"},
	"/integration":                     {"clients", "keys", "permissions", "servers"},
	"/integration/{integration_id}":    {"clients", "keys", "permissions", "servers"},
	"/pxe/install":                     {"progress", "reason", "seen_at.iso_8601", "seen_at.unix", "step"},
	"/pxe/install/{install_id}":        {"progress", "reason", "seen_at.iso_8601", "seen_at.unix", "step"},
	"/pxe/iso/{iso_manager_id}":        {"progress"},
	"/webhook":                         {"resting"},
	"/webhook/{webhook_id}":            {"resting"},
}
