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

// TestEveryRoute walks all routes of all services through the gateway. A new route is covered by being there: what
// has to be known of it, it declares.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	p, c := w.p, w.c
	_, nobody := newAdmin(t, c, "nobody", `{}`)
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
				w.strangersProcess(p.Services[service], o)
				if guard.IsInternal(o.Guard) {
					w.c.Do(o.Method, w.item(o.Path), nil).Want(404)
					return
				}
				w.withoutKey(o)
				w.withoutPermission(o, nobody.WithT(t), false)
				for kind, caller := range others {
					w.withoutPermission(o, testkit.NewClient(t, testkit.As(p.Services[service], caller)), kind == principal.Client)
				}
				w.missingItem(o)
				w.garbage(o)
				w.otherMethod(o)
			})
		}
	}
}

// oneOfEach is a product with one item of each collection, for the walks that change none of them.
var oneOfEach struct {
	once sync.Once
	walk *walk
}

// sharedWalk returns a walk over the product that all walks share which only read, or are refused. With -own each has its own.
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
	dead       []string          // keys that do not work any more
	p          *product.Product
}

func newWalk(t testing.TB, p *product.Product, c *testkit.Client) *walk {
	for _, name := range []string{"owner", "reseller"} { // of whom the first one's number stands in examples
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
			if !guard.IsInternal(o.Guard) {
				w.operations = append(w.operations, o)
			}
		}
	}
	return w
}

// makes tells whether an operation makes an item of the collection that it is sent to.
func makes(o rest.Operation) bool {
	return o.Method == http.MethodPost && strings.HasPrefix(o.Effect.ViewPath, o.Path+"/{")
}

// edits tells whether an operation edits what can be viewed.
func edits(o rest.Operation) bool { return o.Method == http.MethodPatch && o.Effect.ViewPath != "" }

// hasOwnTests tells whether an operation ends the caller's own key or sessions, takes a code or a provider that the walk does not have, or
// takes another's effect away: see TestLogin, TestTwoFactorLogin, TestOpenID and TestInstalls.
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
		},
		o.Name,
	)
}

func newKey(t *testing.T, c *testkit.Client, name string) string {
	t.Helper()
	return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": name}).Want(200)).Key
}

// createOneOfEach sends the examples of all that makes an item, until each collection has one.
func (w *walk) createOneOfEach() {
	w.t.Helper()
	waiting := slices.DeleteFunc(slices.Clone(w.operations), func(o rest.Operation) bool { return !makes(o) })
	for len(waiting) > 0 {
		before := len(waiting)
		var last *testkit.Response
		waiting = slices.DeleteFunc(waiting, func(o rest.Operation) bool {
			last = w.c.Do(o.Method, w.item(o.Path), o.Example)
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

// created notes what was made. A client is also linked from the reseller, a webhook tried out, and an ISO, which cannot be loaded, gets
// an edition.
func (w *walk) created(path string, id int64) {
	w.ids[path] = fmt.Sprint(id)
	if path == "/webhook" {
		made := w.c.Do("POST", fmt.Sprintf("/webhook/%d/test", id), nil).Want(200).ID()
		w.ids[fmt.Sprintf("/webhook/%d/delivery", id)] = fmt.Sprint(made)
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
			made := w.c.Do("POST", "/client/2/"+link, map[string]any{"client_id": id}).Want(200).ID()
			w.ids[fmt.Sprintf("/client/%d/%s", id, other)] = fmt.Sprint(made)
		}
	}
}

// atRest waits until an item changes no more by itself, as an ISO does while it is imported, which fails in the examples.
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

func (w *walk) strangersProcess(service http.Handler, o rest.Operation) {
	w.t.Helper()
	recorder := httptest.NewRecorder()
	service.ServeHTTP(recorder, httptest.NewRequest(o.Method, w.item(o.Path), strings.NewReader("{}")))
	if recorder.Code != http.StatusForbidden {
		w.t.Errorf("got %d for a call past the gateway, want %d", recorder.Code, http.StatusForbidden)
	}
}

func (w *walk) withoutKey(o rest.Operation) {
	w.t.Helper()
	if o.Guard != guard.Public {
		answer := w.c.WithKey("").Do(o.Method, w.item(o.Path), o.Example).Want(401)
		if answer.Header.Get("WWW-Authenticate") != "Bearer" {
			w.t.Errorf("got WWW-Authenticate %q, want Bearer", answer.Header.Get("WWW-Authenticate"))
		}
	}
	for _, key := range append(w.dead, "x", apikey.New().Reveal(), strings.Repeat("k", 40)) {
		w.c.WithKey(key).Do(o.Method, w.item(o.Path), o.Example).Want(401)
	}
}

// withoutPermission tries with a key that holds nothing, on items of others.
func (w *walk) withoutPermission(o rest.Operation, nobody *testkit.Client, client bool) {
	w.t.Helper()
	switch {
	case o.Guard == guard.Public:
	case strings.HasSuffix(o.Guard.String(), " or a client") && client:
		want := http.StatusNotFound
		if !strings.Contains(o.Path, "{") {
			want = map[string]int{http.MethodGet: http.StatusOK, http.MethodPost: http.StatusForbidden}[o.Method]
		}
		nobody.Do(o.Method, w.item(o.Path), o.Example).Want(want)
	case o.Guard == guard.EveryKey:
		nobody.Do(o.Method, w.item(o.Path), o.Example).Want(200)
	case o.Guard.String() == "the target's permission":
		nobody.Do(o.Method, w.item(o.Path), o.Example).Want(403)
	case o.Scoped && o.Guard == guard.AnyKey && strings.HasSuffix(o.Path, "}"):
		nobody.Do(o.Method, w.item(o.Path), o.Example).Want(404)
	case strings.HasPrefix(o.Guard.String(), "any key"):
	default:
		answer := nobody.Do(o.Method, w.item(o.Path), o.Example).Want(403)
		permission, _, _ := strings.Cut(o.Guard.String(), " ")
		if !strings.Contains(answer.Text, permission) {
			w.t.Errorf("got the 403 %s, want %s in it", answer.Text, permission)
		}
	}
}

func (w *walk) missingItem(o rest.Operation) {
	w.t.Helper()
	if strings.Contains(o.Path, "{") {
		for _, id := range []string{"999999999", "9223372036854775808", "abc", "01", "-1", "1.0", "%31x", "+1"} {
			w.c.Do(o.Method, w.withID(o.Path, id), o.Example, takes(o)...).Want(404)
		}
	}
	w.c.Do(o.Method, w.item(o.Path)+"/nothing/here", nil).Want(404)
}

// takes is the header of a body that an operation reads itself.
func takes(o rest.Operation) []string {
	if len(o.Accepts) == 0 {
		return nil
	}
	return []string{"Content-Type", o.Accepts[0]}
}

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
	wrong := testkit.Decode[problem.Problem](w.c.Do(o.Method, path, o.Garbage).Want(422))
	if len(wrong.Errors) == 0 || wrong.RequestID == "" || wrong.Instance != path {
		w.t.Errorf("got the 422 %+v, want errors, a request id and the instance %s", wrong, path)
	}
}

func (w *walk) otherMethod(o rest.Operation) {
	w.t.Helper()
	answer := w.c.Do("PURGE", w.item(o.Path), nil).Want(405)
	if !slices.Contains(strings.Split(answer.Header.Get("Allow"), ", "), o.Method) {
		w.t.Errorf("got Allow %q, want %s in it", answer.Header.Get("Allow"), o.Method)
	}
}

// TestEveryLeaf tries every operation that a permission guards with keys that hold everything but that permission's access.
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
	refused := func(o rest.Operation, item func(string) string) bool {
		return partial.Do(o.Method, item(o.Path), o.Example).Status == http.StatusForbidden
	}
	for missing, operations := range guarded {
		c.Do("PATCH", path("/admin/%d/permission", id), principal.SetOf(principal.All&^missing)).Want(200)
		testkit.Eventually(t, missing.Names()[0]+" is taken away", func() bool { return refused(operations[0], w.item) })
		for _, o := range operations {
			partial.Do(o.Method, w.item(o.Path), o.Example).WantDetail(http.StatusForbidden, "The key lacks "+missing.Names()[0]+".")
		}
		c.Do("PATCH", path("/admin/%d/permission", id), principal.SetOf(missing)).Want(200)
		nothing := func(path string) string { return w.withID(path, "999999999") }
		testkit.Eventually(t, missing.Names()[0]+" is there alone", func() bool { return !refused(operations[0], nothing) })
		for _, o := range operations {
			if answer := partial.Do(o.Method, w.withID(o.Path, "999999999"), o.Example); answer.Status == http.StatusForbidden {
				t.Errorf("%s %s with %s alone: got %s, want no 403", o.Method, o.Path, missing.Names()[0], answer.Text)
			}
		}
	}
}

// failedJob has the network service leave a job that was given up.
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
