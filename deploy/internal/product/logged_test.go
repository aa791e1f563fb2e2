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

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// TestEveryChangeIsLogged makes each change that there is an operation for, and looks for exactly one item in the log
// that says what came of it. A new operation is covered by being there, and has to be accepted with its examples.
func TestEveryChangeIsLogged(t *testing.T) { producttest.Both(t, testEveryChangeIsLogged) }

// summarized are operations on many items at once, whose log item says how many, and not each member of each; with
// bodies that do not get in each other's way.
var summarized = map[string]string{
	"/group/{group_id}/allocate":    `{"owner": {"id": 17}}`,
	"/group/{group_id}/entity/bulk": `{"prefix": "198.51.100.0/28", "vlan": 7}`,
}

func testEveryChangeIsLogged(t *testing.T, p *product.Product, c *testkit.Client) {
	document := testkit.Decode[apiDocument](c.With("").Do("GET", "/-/openapi.json", nil).Want(200))
	w := &logWalk{walk: &walk{t: t, c: c, document: document, ids: map[string]string{}}, made: map[string]change{}}
	var edits, deletes, creates, summaries []rest.Operation
	for _, routes := range p.Routes {
		for _, o := range rest.Operations(routes) {
			switch {
			case !o.Public() || o.Method == http.MethodGet:
			case summarized[o.Path] != "":
				summaries = append(summaries, o)
			case o.Method == http.MethodDelete:
				deletes = append(deletes, o)
			case w.hasItems(o.Path):
				creates = append(creates, o)
			default:
				edits = append(edits, o)
			}
		}
	}
	slices.SortFunc(deletes, func(a, b rest.Operation) int { return strings.Count(b.Path, "/") - strings.Count(a.Path, "/") }) // what goes with another, first
	for _, operations := range [][]rest.Operation{creates, edits, deletes} {
		w.doAll(operations)
	}
	w.ids["/group"] = fmt.Sprint(c.Do("POST", "/group", `{"name": "another"}`).Want(200).ID())
	w.doAll(summaries)
	producttest.Drain(t, p)
	w.compare(p)
}

// change is one that was made.
type change struct {
	operation rest.Operation
	summary   bool
	before    map[string]any
	after     map[string]any
	secrets   []string
}

type logWalk struct {
	*walk
	made    map[string]change // by the request's id
	refused []string
	tries   int
}

// doAll does each operation once. What is in the way of one, another one takes away.
func (w *logWalk) doAll(operations []rest.Operation) {
	w.t.Helper()
	for len(operations) > 0 {
		before, refusals := len(operations), ""
		operations = slices.DeleteFunc(operations, func(o rest.Operation) bool {
			answer := w.do(o)
			if answer.Status != http.StatusOK {
				refusals += fmt.Sprintf("\n%s %s: %s", o.Method, o.Path, answer.Text)
			}
			return answer.Status == http.StatusOK
		})
		if len(operations) == before {
			w.t.Fatalf("there are changes that cannot be made:%s", refusals)
		}
	}
}

func (w *logWalk) do(o rest.Operation) *testkit.Answer {
	w.t.Helper()
	w.tries++
	request, path, body := fmt.Sprint("try-", w.tries), w.item(o.Path), w.edited(o)
	made := change{operation: o, summary: summarized[o.Path] != ""}
	item := w.itemOf(o)
	if item != "" && !w.hasItems(o.Path) {
		made.before = w.view(item)
	}
	answer := w.c.Do(o.Method, path, body, "X-Request-Id", request)
	if answer.Status != http.StatusOK {
		w.refused = append(w.refused, request)
		return answer
	}
	if w.hasItems(o.Path) {
		w.ids[path] = fmt.Sprint(answer.ID())
		item = w.itemOf(o)
	}
	if item != "" && o.Method != http.MethodDelete {
		made.after = w.view(item)
	}
	if item == "" && !made.summary {
		w.t.Errorf("%s %s changes nothing that can be viewed", o.Method, o.Path)
	}
	if schema := w.body(o.Method, o.Path); schema != nil {
		made.secrets = schema.secrets("")
	}
	w.made[request] = made
	return answer
}

// itemOf is the path at which what an operation changes can be viewed.
func (w *logWalk) itemOf(o rest.Operation) string {
	path := o.Path
	if w.hasItems(path) {
		for other := range w.document.Paths {
			if strings.HasPrefix(other, path+"/{") && strings.Count(other, "/") == strings.Count(path, "/")+1 {
				return w.item(other)
			}
		}
	}
	for ; path != "" && summarized[o.Path] == ""; path = path[:strings.LastIndex(path, "/")] {
		if _, viewed := w.document.Paths[path]["get"]; viewed && strings.Contains(path, "{") {
			return w.item(path)
		}
	}
	return ""
}

func (w *logWalk) view(path string) map[string]any {
	w.t.Helper()
	leaves := map[string]any{}
	flatten(leaves, "", testkit.Decode[map[string]any](w.c.Do("GET", path, nil).Want(200)))
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

// edited is the example of an operation's body, which for an edit is made to say something else than for the create.
func (w *logWalk) edited(o rest.Operation) any {
	if summarized[o.Path] != "" {
		return summarized[o.Path]
	}
	body, ok := w.example(o).(map[string]any)
	if !ok || o.Method != http.MethodPatch {
		return w.example(o)
	}
	if len(body) == 0 {
		return map[string]any{"network": map[string]any{"groups": map[string]any{"read": true}}}
	}
	for _, member := range []string{"name", "nickname", "username", "value"} {
		if text, ok := body[member].(string); ok && text[len(text)-1] <= '9' { // a date stays one
			body[member] = text[:len(text)-1] + "0"
		} else if ok {
			body[member] = text + "0"
		}
	}
	return body
}

// secrets are the members that an example sets and nobody is shown.
func (s *bodySchema) secrets(prefix string) (names []string) {
	for name, member := range s.Properties {
		kept := name != "current_password" // which confirms
		if member.WriteOnly && kept && len(member.Examples) > 0 && !strings.HasPrefix(member.Description, "Another spelling") {
			names = append(names, prefix+name)
		}
		names = append(names, member.secrets(prefix+name+".")...)
	}
	return names
}

func (w *logWalk) compare(p *product.Product) {
	w.t.Helper()
	items := map[string][]int64{}
	rows, err := p.Databases[system.Name].Query(w.t.Context(), "SELECT request_id, id FROM log WHERE request_id LIKE 'try-%'")
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
			w.t.Errorf("a request that changed nothing is logged as %v", items[request])
		}
	}
	for request, made := range w.made {
		if n := len(items[request]); n != 1 {
			w.t.Errorf("%s %s left %d items", made.operation.Method, made.operation.Path, n)
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
		w.t.Errorf("%s is logged as %+v", what, item)
	}
	for _, name := range made.secrets {
		if item.Data.Changes[name]["after"] != "[secret]" {
			w.t.Errorf("%s: that %s was set is not logged: %v", what, name, item.Data.Changes)
		}
	}
	if made.summary {
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
	if !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(want, "", " ")
		w.t.Errorf("%s is logged as %v, want %s", what, got, text)
	}
}
