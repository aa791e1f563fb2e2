package product_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/system"
)

// TestEverySeveral edits and deletes several items with one request, of each resource that allows it.
func TestEverySeveral(t *testing.T) { producttest.InOneProcess(t, testEverySeveral) }

func testEverySeveral(t *testing.T, p *product.Product, c *testkit.Client) {
	w := newWalk(t, p, c)
	w.createOneOfEach()
	_, unprivileged := newAdmin(t, c, "nobody", `{}`)
	examples := map[string]rest.Operation{}
	for _, o := range w.operations {
		if creates(o) {
			examples[o.Effect.ViewPath] = o
		}
	}
	tried, count := 0, 1
	for _, o := range w.operations {
		if _, count := examples[o.Path]; !o.Several || !count && !strings.HasPrefix(o.Path, "/client/") ||
			o.Path == "/pxe/install/{install_id}" { // no request creates such an item in a state in which it can be deleted: see TestInstall
			continue
		}
		tried++
		t.Run(o.Method+" "+o.Path, func(t *testing.T) {
			w := &several{
				walk:   &walk{t: t, c: c.WithT(t), ids: w.ids},
				path:   w.item(o.Path[:strings.LastIndex(o.Path, "/")]),
				create: examples[o.Path],
				count:  &count,
			}
			w.refusals(o, unprivileged.WithT(t))
			if o.Method == http.MethodPatch {
				w.edits(p, o)
			} else {
				w.deletions(p)
			}
		})
	}
	if tried < 15 {
		t.Errorf("got %d operations tried, want at least 15", tried)
	}
}

type several struct {
	*walk
	path   string // of the collection
	create rest.Operation
	count  *int // the number of created items
}

// another creates an item like the example, with other values for unique members.
func (w *several) another() int64 {
	w.t.Helper()
	*w.count++
	if w.create.Example == nil { // links that are seen from their other end
		end, relation, _ := strings.Cut(strings.TrimPrefix(w.path, "/client/"), "/")
		count := w.c.Do(
			"POST",
			fmt.Sprintf("/client/%d/%s", w.client(), map[string]string{"parent": "sub", "granter": "super"}[relation]),
			map[string]any{"client_id": end},
		)
		return count.Want(200).ID()
	}
	var body map[string]any
	if err := json.Unmarshal(w.create.Example, &body); err != nil {
		w.t.Fatal(err)
	}
	w.vary(body)
	answer := w.c.Do("POST", w.path, body)
	if answer.Status != 200 {
		w.t.Fatalf("POST %s: got %d %s, want 200 for each body that vary makes of the example. A member that no two items have alike "+
			"is to be varied: add it to vary in several_test.go", w.path, answer.Status, answer.Text)
	}
	id := answer.ID()
	w.atRest(w.at(id))
	return id
}

func (w *several) client() int64 {
	w.t.Helper()
	return w.c.Do("POST", "/client", order(fmt.Sprintf("several-%d@example.com", *w.count))).Want(200).ID()
}

func (w *several) vary(body map[string]any) {
	for name, value := range body {
		switch name {
		case "name", "folder", "username", "slug", "billing_id", "nickname":
			body[name] = fmt.Sprintf("%s-%d", value, *w.count)
		case "email":
			body[name] = fmt.Sprintf("%d-%s", *w.count, value)
		case "client_id", "target_id":
			body[name] = w.client()
		case "address":
			body[name] = fmt.Sprintf("10.0.0.%d", *w.count)
		case "v6", "range_end", "gateway", "subnet_mask", "owner":
			delete(body, name)
		default:
			if inner, ok := value.(map[string]any); ok {
				w.vary(inner)
			}
		}
	}
}

// request returns an id for a request.
func (w *several) request() string { return fmt.Sprint("several-", *w.count) }

func (w *several) at(ids ...int64) string {
	return w.path + "/" + strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
}

func (w *several) refusals(o rest.Operation, unprivileged *testkit.Client) {
	w.t.Helper()
	a, b := w.another(), w.another()
	before := w.c.Do("GET", w.at(a), nil).Want(200).Text
	try := func(ids string) *testkit.Response { return w.c.Do(o.Method, w.path+"/"+ids, o.Example) }
	try(fmt.Sprintf("%d,%d", a, a)).WantDetail(problem.BadRequest, fmt.Sprintf("The path names %d twice.", a))
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint(a + int64(i))
	}
	try(strings.Join(many, ",")).WantDetail(problem.BadRequest, "The path names more than 100 items.")
	w.c.Do(o.Method, w.at(a, b), o.Example, "If-Match", "*").Want(400)
	for _, ids := range []string{"%d,999999999", "999999999,%d", "%d,", ",%d", "%d,%%20999999999", "%d,x", "0%d,999999999"} {
		try(fmt.Sprintf(ids, a)).Want(404)
	}
	if o.Guard != guard.AnyKey || o.Scoped {
		if answer := unprivileged.Do(o.Method, w.at(a, b), o.Example); answer.Status != 403 && answer.Status != 404 {
			w.t.Errorf("got %d %s for a caller without permissions, want 403 or 404", answer.Status, answer.Text)
		}
	}
	w.c.WithKey(apikey.New().Reveal()).Do(o.Method, w.at(a, b), o.Example).Want(401)
	if after := w.c.Do("GET", w.at(a), nil).Want(200).Text; after != before {
		w.t.Errorf("got %s, want %s", after, before)
	}
}

// edits sends the items' ids in no order. The example may set a unique member.
func (w *several) edits(p *product.Product, o rest.Operation) {
	w.t.Helper()
	a, b, third := w.another(), w.another(), w.another()
	asked := []int64{third, a, b}
	if answer := w.c.Do("PATCH", w.at(asked...), `{}`).Want(200); !slices.Equal(ids(answer), asked) {
		w.t.Errorf("got %s, want the items %v", answer.Text, asked)
	}
	before := w.c.Do("GET", w.at(a), nil).Want(200)
	request := w.request()
	answer := w.c.Do("PATCH", w.at(asked...), o.Example, "X-Request-Id", request)
	if answer.Status == 422 {
		for _, e := range testkit.Decode[problem.Problem](answer).Errors {
			if !slices.ContainsFunc(asked, func(id int64) bool { return strings.HasPrefix(e.Pointer, fmt.Sprintf("/%d/", id)) }) {
				w.t.Errorf("got an error at %s, want it in one of %v", e.Pointer, asked)
			}
		}
		if after := w.c.Do("GET", w.at(a), nil).Want(200); after.Text != before.Text || after.Header.Get("ETag") != before.Header.Get("ETag") {
			w.t.Errorf("%s was refused: got %s, want %s with the same ETag", w.at(asked...), after.Text, before.Text)
		}
		return
	}
	if answer.Want(200); !slices.Equal(ids(answer), asked) {
		w.t.Errorf("got %s, want the items %v", answer.Text, asked)
	}
	shown := testkit.Decode[[]map[string]any](answer)
	for i, id := range asked {
		if got := testkit.Decode[map[string]any](w.c.Do("GET", w.at(id), nil).Want(200)); !reflect.DeepEqual(got, shown[i]) {
			w.t.Errorf("got %v, want the edit's answer %v", got, shown[i])
		}
	}
	w.logged(p, request, len(asked))
}

func (w *several) deletions(p *product.Product) {
	w.t.Helper()
	a, b := w.another(), w.another()
	w.dryRun(p, b, a)
	request := w.request()
	answer := w.c.Do("DELETE", w.at(b, a), nil, "X-Request-Id", request).Want(200)
	if want := fmt.Sprintf("s %d, %d deleted.", b, a); !strings.HasSuffix(testkit.Decode[rest.Message](answer).Message, want) {
		w.t.Errorf("got %s, want a message that ends with %q", answer.Text, want)
	}
	for _, id := range []int64{a, b} {
		if answer := w.c.Do("GET", w.at(id), nil); answer.Status != 404 {
			w.t.Errorf("%s: got %d %s, want 404", w.at(id), answer.Status, answer.Text)
		}
	}
	w.logged(p, request, 2)
}

// dryRun deletes the items in a dry run, which changes and logs nothing.
func (w *several) dryRun(p *product.Product, ids ...int64) {
	w.t.Helper()
	request := w.request() + "-dry"
	before := make([]*testkit.Response, len(ids))
	for i, id := range ids {
		before[i] = w.c.Do("GET", w.at(id), nil).Want(200)
	}
	answer := w.c.Do("DELETE", w.at(ids...)+"?dry_run=true", nil, "X-Request-Id", request).Want(200)
	if text := testkit.Decode[rest.Message](answer).Message; !strings.HasPrefix(text, "Nothing was changed, because dry_run is true.") {
		w.t.Errorf("got %q, want a message that nothing was changed", text)
	}
	w.c.Do("DELETE", w.at(ids...)+"?dry_run=maybe", nil).Want(400)
	for i, id := range ids {
		if after := w.c.Do("GET", w.at(id), nil).Want(200); after.Text != before[i].Text ||
			after.Header.Get("ETag") != before[i].Header.Get("ETag") {
			w.t.Errorf("got %s after a dry run, want %s with the same ETag", after.Text, before[i].Text)
		}
	}
	w.logged(p, request, 0)
}

func (w *several) logged(p *product.Product, request string, want int) {
	w.t.Helper()
	producttest.AwaitLog(w.t, p)
	var got int
	err := p.Databases[system.Name].QueryRow(
		w.t.Context(), "SELECT count(DISTINCT targets->0->>'id') FROM log WHERE request_id = $1", request,
	).
		Scan(&got)
	if err != nil || got != want {
		w.t.Errorf("got %d items in the log (%v), want %d", got, err, want)
	}
}

// ids returns the ids of the items in a response.
func ids(a *testkit.Response) (all []int64) {
	for _, item := range testkit.Decode[[]struct{ ID int64 }](a) {
		all = append(all, item.ID)
	}
	return all
}

// A caller can delete several keys with one request even if the calling key is one of them, at any position.
func TestDeletesOwnKeys(t *testing.T) { shared(t, testDeletesOwnKeys) }

func testDeletesOwnKeys(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, unprivileged := newAdmin(t, c, "nobody", `{}`)
	newOne := func(c *testkit.Client) keys.APIKey {
		return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "one of many"}`).Want(200))
	}
	first, calling, last, foreign := newOne(unprivileged), newOne(unprivileged), newOne(unprivileged), newOne(c)
	caller := unprivileged.WithKey(calling.Key)
	caller.Do("DELETE", path("/auth/key/%d,%d", calling.ID, foreign.ID), nil).Want(404)
	caller.Do("DELETE", path("/auth/key/%d,%d,%d", last.ID, calling.ID, first.ID), nil).Want(200)
	for _, key := range []keys.APIKey{first, calling, last} {
		becomes(t, c.WithKey(key.Key), "/auth/key", 401)
	}

	c.Do("PATCH", path("/admin/%d/permission", id), usersAdmins).Want(200)
	calling, ownKey := newOne(unprivileged), newOne(unprivileged)
	holder := unprivileged.WithKey(calling.Key)
	other, _ := newAdmin(t, c, "other", `{}`)
	others := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", other)}}).Want(200),
	)
	holder.Do("DELETE", path("/auth/key/%d,%d", calling.ID, foreign.ID), nil).Want(403) // the key belongs to the first admin
	holder.Do("DELETE", path("/auth/key/%d,%d", calling.ID, others.ID), nil).Want(200)
	unprivileged.WithKey(ownKey.Key).Do("DELETE", path("/admin/%d,%d", id, other), nil).Want(200)
	becomes(t, unprivileged.WithKey(ownKey.Key), "/auth/key", 401)
}

// Each account in a path is guarded by itself. One's own account in the path does not open others.
func TestSeveralAccountsAreGuarded(t *testing.T) {
	producttest.InOneProcess(t, testSeveralAccountsAreGuarded)
}

func testSeveralAccountsAreGuarded(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, unprivileged := newAdmin(t, c, "nobody", `{}`)
	other, _ := newAdmin(t, c, "other", `{}`)
	for _, both := range []string{path("/admin/%d,%d", id, other), path("/admin/%d,%d", other, id)} {
		unprivileged.Do("PATCH", both, `{}`).WantDetail(problem.Forbidden, "The key lacks users.admins write.")
		unprivileged.Do("DELETE", both, nil).Want(403)
	}
	if got := testkit.Decode[[]admin.Admin](
		c.Do("PATCH", path("/admin/%d,%d", other, id), `{"receive_copies": true}`).Want(200),
	); !got[0].ReceiveCopies ||
		!got[1].ReceiveCopies {
		t.Errorf("got %+v, want both to receive copies", got)
	}
	c.Do("DELETE", path("/admin/1,%d", id), nil).Want(409) // the last admin with users.admins write
	c.Do("GET", path("/admin/%d", id), nil).Want(200)
}
