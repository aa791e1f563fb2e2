package product_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/media"
	"github.com/ironplane/ironplane/services/system"
)

// TestEveryRoute walks all routes of all services through the gateway. It reads what it needs to know from their
// declarations, so it covers new routes, too.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	p, c := w.p, w.c
	_, unprivileged := newAdmin(t, c, "nobody", `{}`)
	w.dead = []string{newKey(t, c, "expired"), newKey(t, c, "revoked")}
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE api_key SET expires_at = now() - interval '1 second' WHERE name = 'expired'")
	revoked := testkit.Decode[keys.APIKey](c.WithKey(w.dead[1]).Do("GET", "/auth/key/current", nil).Want(200))
	c.Do("DELETE", path("/auth/key/%d", revoked.ID), nil).Want(200)
	for _, key := range w.dead {
		testkit.Eventually(t, "the key is refused", func() bool { return c.WithKey(key).Do("GET", "/port-speed", nil).Status == 401 })
	}
	others := map[principal.OwnerType]*principal.Principal{principal.Client: nil, principal.Integration: nil}
	for kind := range others {
		others[kind] = &principal.Principal{Owner: principal.Owner{Type: kind, ID: 999}}
		err := p.Databases[identity.Name].QueryRow(t.Context(), "INSERT INTO api_key (name, hash, owner_type, owner_id) "+
			"VALUES ('', sha256($1::text::bytea), $1, 999) RETURNING id", kind).
			Scan(&others[kind].KeyID)
		if err != nil {
			t.Fatal(err)
		}
	}

	for service, routes := range p.Routes {
		for _, o := range rest.Operations(routes) {
			t.Run(service+" "+o.Method+" "+o.Path, func(t *testing.T) {
				w := *w
				w.t, w.c = t, c.WithT(t)
				w.checkDirectCall(p.Services[service], o)
				if guard.IsInternal(o.Guard) {
					w.c.Do(o.Method, w.item(o.Path), nil).Want(404)
					return
				}
				w.withoutKey(o)
				w.withoutPermission(o, unprivileged.WithT(t), false)
				for kind, caller := range others {
					w.withoutPermission(o, testkit.NewClient(t, testkit.As(p.Services[service], caller)), kind == principal.Client)
				}
				w.missingItem(o)
				w.otherMethod(o)
				if o.Guard == guard.Client { // which admits no admin
					w.c = testkit.NewClient(t, testkit.As(p.Services[service], others[principal.Client]))
				}
				w.garbage(o)
			})
		}
	}
}

// oneOfEach is a product with one item of each collection. The walks that use it change no item.
var oneOfEach struct {
	once sync.Once
	walk *walk
}

// sharedWalk returns the walk over oneOfEach, for tests that only read or are refused. With -own, each walk has its own product.
func sharedWalk(t *testing.T) *walk {
	t.Helper()
	begin := func(t testing.TB) *walk {
		p, c := producttest.Split(t)
		w := newWalk(t, p, c)
		w.createOneOfEach()
		return w
	}
	if producttest.Own() {
		return begin(t)
	}
	oneOfEach.once.Do(func() { oneOfEach.walk = begin(testkit.Shared()) })
	w := *oneOfEach.walk
	w.t, w.c, w.ids = t, w.c.WithT(t), maps.Clone(w.ids)
	return &w
}

type walk struct {
	t          testing.TB
	c          *testkit.Client
	operations []rest.Operation  // that callers from outside can reach
	ids        map[string]string // by collection
	dead       []string          // keys that no longer work
	p          *product.Product
}

// newWalk returns a walk over the product, which gets the items that no operation creates.
func newWalk(t testing.TB, p *product.Product, c *testkit.Client) *walk {
	for _, name := range []string{"owner", "reseller"} { // examples have the id of the first one
		c.Do("POST", "/client", order(name+"@example.com")).Want(200)
	}
	testkit.Execute(
		t,
		p.Databases[system.Name],
		"INSERT INTO email_message (template, account, to_name, to_email, secret, status) "+
			"VALUES ('welcome', '/client/1', 'Ben', 'ben@example.com', false, 'failed')",
	)
	c.Do("PATCH", "/admin/1", map[string]any{"password": password}).Want(200)
	session := c.Do("POST", "/auth/key", map[string]any{"type": "admin", "username": "admin", "password": password}).Want(200).ID()
	testkit.Execute(
		t,
		p.Databases[identity.Name],
		"INSERT INTO password_reset (owner_type, owner_id, hash, expires_at) "+
			"VALUES ('admin', 1, sha256(repeat('A', 43)::bytea), now() + interval '1 hour')",
	)
	testkit.Execute(
		t,
		p.Databases[identity.Name],
		"INSERT INTO sso_code (hash, owner_type, owner_id, key_id, actor_type, actor_id, actor_name, expires_at) "+
			"VALUES (sha256(repeat('A', 43)::bytea), 'client', 2, 1, 'admin', 1, 'admin', now() + interval '1 hour')",
	)
	w := &walk{t: t, c: c, p: p, ids: map[string]string{"/system/job": failedJob(t, p), "/auth/session": fmt.Sprint(session)}}
	for _, service := range slices.Sorted(maps.Keys(p.Routes)) {
		for _, o := range rest.Operations(p.Routes[service]) {
			if !guard.IsInternal(o.Guard) && o.Guard != guard.Client { // the caller is an admin
				w.operations = append(w.operations, o)
			}
		}
	}
	return w
}

// creates reports whether an operation creates an item of the collection that it is sent to.
func creates(o rest.Operation) bool {
	return o.Method == http.MethodPost && strings.HasPrefix(o.Effect.ViewPath, o.Path+"/{")
}

// edits reports whether an operation edits an item that can be viewed.
func edits(o rest.Operation) bool { return o.Method == http.MethodPatch && o.Effect.ViewPath != "" }

// hasOwnTests reports whether an operation ends the caller's own key or sessions, needs a code or a provider that the walk
// lacks, or undoes another operation. See TestLogin, TestTwoFactorLogin, TestOpenID, TestInstalls and TestSuspendedBy.
func hasOwnTests(o rest.Operation) bool {
	return slices.Contains(
		[]string{
			"deleteCurrentAPIKey",
			"endOtherSessions",
			"confirmVerifyCode",
			"beginOpenIDLogin",
			"createRecoveryCodes",
			"deleteAdminVerify",
			"deleteClientVerify",
			"cancelInstall",
			"retryInstall",
			"adoptClient",
			"confirmAdoption",
			"suspendClient",
			"unsuspendClient",
			"suspendOverdueClients",
		},
		o.Name,
	)
}

// newKey creates a key of the caller with this name.
func newKey(t *testing.T, c *testkit.Client, name string) string {
	t.Helper()
	return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": name}).Want(200)).Key
}

// queryOf are the queries with which an example can be sent where no agent runs, by path.
var queryOf = map[string]string{
	"/pxe/install":                    "?force=agent_unreachable",
	"/pxe/install/{install_id}/retry": "?force=agent_unreachable,no_login",
}

// createOneOfEach sends the examples of all operations that create an item, until each collection has one.
func (w *walk) createOneOfEach() {
	w.t.Helper()
	waiting := slices.DeleteFunc(slices.Clone(w.operations), func(o rest.Operation) bool { return !creates(o) })
	for len(waiting) > 0 {
		before := len(waiting)
		var last *testkit.Response
		waiting = slices.DeleteFunc(waiting, func(o rest.Operation) bool {
			last = w.c.Do(o.Method, w.item(o.Path)+queryOf[o.Path], o.Example)
			if last.Status == http.StatusOK {
				w.created(w.item(o.Path), last.ID())
			}
			return last.Status == http.StatusOK
		})
		if len(waiting) == before {
			w.t.Fatalf("the example of %s: got %s, want a new item", waiting[0].Path, last.Text)
		}
	}
}

// created notes a created item. It also links a client from the reseller, tests a webhook, and gives an ISO, which cannot be
// downloaded, an edition.
func (w *walk) created(path string, id int64) {
	w.ids[path] = fmt.Sprint(id)
	if path == "/webhook" {
		deliveryID := w.c.Do("POST", fmt.Sprintf("/webhook/%d/test", id), nil).Want(200).ID()
		w.ids[fmt.Sprintf("/webhook/%d/delivery", id)] = fmt.Sprint(deliveryID)
	}
	if path == "/pxe/iso" {
		w.atRest(fmt.Sprintf("%s/%d", path, id))
		testkit.Execute(
			w.t,
			w.p.Databases[pxe.Name],
			fmt.Sprintf("INSERT INTO iso_edition (iso_id, number, name) VALUES (%d, 1, 'Standard')", id),
		)
	}
	if path == "/pxe/dhcp" {
		testkit.Execute(
			w.t,
			w.p.Databases[pxe.Name],
			fmt.Sprintf(
				"INSERT INTO discovery (name, address, facts, dhcp_server_id, first_seen_at, seen_at) "+
					"VALUES ('52:54:00:12:34:99', '', '{}', %d, now(), now())",
				id,
			),
		)
	}
	if path == "/client" {
		for link, other := range map[string]string{"sub": "parent", "super": "granter"} {
			linkID := w.c.Do("POST", "/client/2/"+link, map[string]any{"client_id": id}).Want(200).ID()
			w.ids[fmt.Sprintf("/client/%d/%s", id, other)] = fmt.Sprint(linkID)
		}
	}
}

// atRest waits until an item stops changing by itself. The import of an ISO fails in the examples, some time after the
// request.
func (w *walk) atRest(item string) {
	w.t.Helper()
	if strings.HasPrefix(item, "/pxe/iso/") && strings.Count(item, "/") == 3 {
		testkit.Eventually(w.t, "the import has ended", func() bool {
			return testkit.Decode[media.ISOManager](w.c.Do("GET", item, nil).Want(200)).Status == "failed"
		})
	}
}

var parameter = regexp.MustCompile(`{[a-z_]+}`)

// item puts the created items' ids into a path.
func (w *walk) item(path string) string { return w.withID(path, "") }

// withID puts an id into a path, or the created items' ids if it is empty.
func (w *walk) withID(path, id string) string {
	for {
		at := parameter.FindStringIndex(path)
		if at == nil {
			return path
		}
		this := id
		if this == "" {
			this = w.ids[strings.TrimSuffix(path[:at[0]], "/")]
		}
		if this == "" {
			this = "1"
		}
		path = path[:at[0]] + this + path[at[1]:]
	}
}

// checkDirectCall expects a service to refuse a call that did not come from the gateway.
func (w *walk) checkDirectCall(service http.Handler, o rest.Operation) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	service.ServeHTTP(recorder, httptest.NewRequest(o.Method, w.item(o.Path), strings.NewReader("{}")))
	if recorder.Code != http.StatusForbidden {
		w.t.Errorf("got %d for a call past the gateway, want %d", recorder.Code, http.StatusForbidden)
	}
}

// withoutKey tries an operation without a key, and with keys that do not work.
func (w *walk) withoutKey(o rest.Operation) {
	w.t.Helper()
	if o.Guard != guard.Public {
		response := w.c.WithKey("").Do(o.Method, w.item(o.Path), o.Example).Want(401)
		if response.Header.Get("WWW-Authenticate") != "Bearer" {
			w.t.Errorf("got WWW-Authenticate %q, want Bearer", response.Header.Get("WWW-Authenticate"))
		}
	}
	for _, key := range append(w.dead, "x", apikey.New().Reveal(), strings.Repeat("k", 40)) {
		w.c.WithKey(key).Do(o.Method, w.item(o.Path), o.Example).Want(401)
	}
}

// withoutPermission tries an operation on other owners' items, with a key that has no permissions.
func (w *walk) withoutPermission(o rest.Operation, unprivileged *testkit.Client, client bool) {
	w.t.Helper()
	switch {
	case o.Guard == guard.Public:
	case (strings.HasSuffix(o.Guard.String(), " or a client") || guard.IsForResellers(o.Guard)) && client:
		want := http.StatusNotFound
		if !strings.Contains(o.Path, "{") {
			want = map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusForbidden}[o.Method]
		}
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(want)
	case o.Guard == guard.Client && client: // the client has no machine
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(422)
	case o.Guard == guard.Client:
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).WantDetail(403, "Only a client can use this route.")
	case o.Guard == guard.EveryKey:
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(200)
	case o.Guard.String() == "the target's permission":
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(403)
	case o.Scoped && (o.Guard == guard.AnyKey || o.Guard == guard.ForCredentials(guard.AnyKey)) && strings.HasSuffix(o.Path, "}"):
		unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(404)
	case strings.HasPrefix(o.Guard.String(), "any key"):
	default:
		response := unprivileged.Do(o.Method, w.item(o.Path), o.Example).Want(403)
		permission, _, _ := strings.Cut(o.Guard.String(), " ")
		if !strings.Contains(response.Text, permission) {
			w.t.Errorf("got the 403 %s, want %s in it", response.Text, permission)
		}
	}
}

// missingItem tries ids that do not exist, and a path that does not exist.
func (w *walk) missingItem(o rest.Operation) {
	w.t.Helper()
	if strings.Contains(o.Path, "{") {
		for _, id := range []string{"999999999", "9223372036854775808", "abc", "01", "-1", "1.0", "%31x", "+1"} {
			w.c.Do(o.Method, w.withID(o.Path, id), o.Example, contentType(o)...).Want(404)
		}
	}
	w.c.Do(o.Method, w.item(o.Path)+"/nothing/here", nil).Want(404)
}

// contentType returns the Content-Type header for an operation that reads its body itself.
func contentType(o rest.Operation) []string {
	if len(o.Accepts) == 0 {
		return nil
	}
	return []string{"Content-Type", o.Accepts[0]}
}

// garbage sends bodies that are not JSON, are too long, or break the schema.
func (w *walk) garbage(o rest.Operation) {
	w.t.Helper()
	if o.Garbage == nil {
		return
	}
	path := w.item(o.Path)
	for _, garbage := range []string{``, `{`, `[1]`, `"x"`, `null`, `{"a": 1} {}`, `{"a": 1, "a": 2}`, "{\"a\": \"\xff\"}", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)} {
		w.c.Do(o.Method, path, garbage).Want(400)
	}
	w.c.Do(o.Method, path, `name=x`, "Content-Type", "application/x-www-form-urlencoded").Want(415)
	w.c.Do(o.Method, path, `{"a": "`+strings.Repeat("x", 1<<20)+`"}`).Want(413)
	invalid := testkit.Decode[problem.Problem](w.c.Do(o.Method, path, o.Garbage).Want(422))
	if len(invalid.Errors) == 0 || invalid.RequestID == "" || invalid.Instance != path {
		w.t.Errorf("got the 422 %+v, want errors, a request id and the instance %s", invalid, path)
	}
}

// otherMethod sends a method that the path does not have.
func (w *walk) otherMethod(o rest.Operation) {
	w.t.Helper()
	response := w.c.Do("PURGE", w.item(o.Path), nil).Want(405)
	if !slices.Contains(strings.Split(response.Header.Get("Allow"), ", "), o.Method) {
		w.t.Errorf("got Allow %q, want %s in it", response.Header.Get("Allow"), o.Method)
	}
}

// TestEveryLeaf tries every operation that a permission guards with a key that has all permissions but this one, and with a
// key that has only this one.
func TestEveryLeaf(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	c := w.c
	id, partial := newAdmin(t, c, "partial", `{}`)
	guarded := map[principal.Grants][]rest.Operation{}
	for _, o := range w.operations {
		for p := range permission.Permission(permission.Count) {
			if o.Guard != guard.Has(p) {
				continue
			}
			access := permission.Write
			if o.Method == http.MethodGet {
				access = permission.Read
			}
			held := principal.Grant(p, access)
			guarded[held] = append(guarded[held], o)
		}
	}
	isRefused := func(o rest.Operation, item func(string) string) bool {
		return partial.Do(o.Method, item(o.Path), o.Example).Status == http.StatusForbidden
	}
	for missing, operations := range guarded {
		c.Do("PATCH", path("/admin/%d/permission", id), principal.SetOf(principal.All&^missing)).Want(200)
		testkit.Eventually(t, missing.Names()[0]+" is taken away", func() bool { return isRefused(operations[0], w.item) })
		for _, o := range operations {
			partial.Do(o.Method, w.item(o.Path), o.Example).WantDetail(http.StatusForbidden, "The key lacks "+missing.Names()[0]+".")
		}
		c.Do("PATCH", path("/admin/%d/permission", id), principal.SetOf(missing)).Want(200)
		nothing := func(path string) string { return w.withID(path, "999999999") }
		testkit.Eventually(t, missing.Names()[0]+" is there alone", func() bool { return !isRefused(operations[0], nothing) })
		for _, o := range operations {
			if response := partial.Do(o.Method, w.withID(o.Path, "999999999"), o.Example); response.Status == http.StatusForbidden {
				t.Errorf("%s %s with %s alone: got %s, want no 403", o.Method, o.Path, missing.Names()[0], response.Text)
			}
		}
	}
}

// failedJob inserts a job of the network service that has failed for good, and returns its id.
func failedJob(t testing.TB, p *product.Product) string {
	t.Helper()
	var n int64
	job := service.Job{Kind: "nobodys"}
	err := p.Databases[network.Name].InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if err := jobs.Enqueue(t.Context(), tx, &job, struct{}{}); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "UPDATE river_job SET state = 'discarded', finalized_at = now(), attempt = max_attempts RETURNING id").
			Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", network.Name, n)
}
