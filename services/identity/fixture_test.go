package identity_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// fixture is the identity service between doubles of its neighbours. Its callers authenticate with the service's keys. The fixture
// looks up the key of each request at the service, as a gateway does, and caches nothing.
type fixture struct {
	*testkit.RunningService
	*neighbours.All

	t       testing.TB
	peers   mesh.Peers
	clients map[int64]credentials.Account // by id
	mu      sync.Mutex
}

// newFixture starts a fixture, and returns it with a client that has the first admin's key.
func newFixture(t *testing.T) (*fixture, *testkit.Client) {
	t.Helper()
	return newFixtureWith(t, service.Settings{})
}

func newFixtureWith(t *testing.T, settings service.Settings) (*fixture, *testkit.Client) {
	t.Helper()
	running, all := neighbours.Run(t, identity.Definition, testkit.ServiceOptions{Settings: settings})
	s := &fixture{RunningService: running, All: all, t: t, peers: running.Peers(principal.Gateway), clients: map[int64]credentials.Account{}}
	key, created, err := admin.CreateFirst(t.Context(), s.DB)
	if err != nil || !created {
		t.Fatalf("the first admin: got %t, %v, want true", created, err)
	}
	return s, testkit.NewClient(t, http.HandlerFunc(s.serve)).WithKey(key.Reveal())
}

// serve calls the service as the gateway does. The header Test-Address is the caller's address.
// The path /-/holds/network.groups reports whether the key has network.groups read.
func (s *fixture) serve(w http.ResponseWriter, r *http.Request) {
	call := &principal.Call{Peer: principal.Gateway, IP: netip.MustParseAddr("192.0.2.7"), RequestID: "test", Agent: r.UserAgent()}
	if address := r.Header.Get("Test-Address"); address != "" {
		call.IP = netip.MustParseAddr(address)
	}
	if value := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); value != "" {
		if call.Principal = s.findPrincipal(r.Context(), value, call.IP); call.Principal == nil {
			problem.Write(w, r, s.Deps.Log, apikey.Invalid())
			return
		}
	}
	ctx := principal.NewContext(r.Context(), call)
	if needed, asks := strings.CutPrefix(r.URL.Path, "/-/holds/"); asks {
		if call.Principal == nil || !call.Principal.Grants.Holds(principal.ParseGrants([]string{needed + " read"})) {
			problem.Write(w, r.WithContext(ctx), s.Deps.Log, problem.New(problem.Forbidden, "The key lacks %s read.", needed))
		}
		return
	}
	s.Handler().ServeHTTP(w, r.WithContext(ctx))
}

// findPrincipal returns the principal of a key, or nil if the key is not valid.
func (s *fixture) findPrincipal(ctx context.Context, value string, ip netip.Addr) *principal.Principal {
	hash := apikey.Hash(value)
	var key keycache.Key
	if err := s.peers.Ask(ctx, identity.Name, "/internal/key/"+hex.EncodeToString(hash[:]), &key); err != nil {
		if ctx.Err() == nil {
			s.t.Errorf("ask for a key as the gateway: %v", err)
		}
		return nil
	}
	owner, actor := s.findOwner(ctx, key.Owner), s.findOwner(ctx, key.Actor)
	inside := len(key.Networks) == 0
	for _, network := range key.Networks {
		inside = inside || network.Contains(ip)
	}
	isOver := key.Expires != nil && !key.Expires.After(time.Now())
	isOutdated := (!key.SignedIn.IsZero() || key.Actor == key.Owner) && key.Credentials < owner.Credentials
	if !key.Exists() || !owner.Active || isOver || isOutdated || !inside || key.Actor.ID != 0 && !actor.Active {
		return nil
	}
	return &principal.Principal{
		KeyID: key.ID, Owner: key.Owner, Name: owner.Name, Grants: owner.Within(key.Bound), Acting: key.Actor.ID != 0, SignedIn: key.SignedIn,
	}
}

// findOwner returns what a gateway knows about an account.
func (s *fixture) findOwner(ctx context.Context, account principal.Owner) (owner keycache.Owner) {
	switch account.Type {
	case principal.Admin:
		if err := s.peers.Ask(ctx, identity.Name, path("/internal/owner/admin/%d", account.ID), &owner); err != nil && ctx.Err() == nil {
			s.t.Errorf("ask for %s as the gateway: %v", account.URL(), err)
		}
	case principal.Client:
		a := s.Clients.Account(account.ID)
		owner = keycache.Owner{Active: a.ID != 0 && !a.Disabled, Name: a.Name, Credentials: a.Version}
	case principal.Integration:
		owner = keycache.Owner{Active: true, Name: "shop"}
	}
	return owner
}

const password = "a long walk in the rain"

// hash is the hash of password, with cheap parameters, so that tests compare it fast.
const hash = `$argon2id$v=19$m=1024,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$Orm+6mp8EkatOJLsACOGU1BTK8LKqU7my/GZMsG592A`

// newPerson creates an admin or a client that can sign in with password.
func (s *fixture) newPerson(kind, email string) (id int64) {
	s.t.Helper()
	if kind == "client" {
		s.mu.Lock()
		id = int64(len(s.clients) + 1)
		a := credentials.Account{ID: id, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: email, Hash: hash, Version: 1}
		s.clients[id] = a
		s.mu.Unlock()
		s.Clients.Set(a)
		return id
	}
	name, _, _ := strings.Cut(email, "@")
	err := s.DB.InTx(s.t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return tx.QueryRow(s.t.Context(), "INSERT INTO admin (username, email, password_hash) VALUES ($1, $2, $3) RETURNING id",
			name, email, hash).Scan(&id)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// editClient has the clients service change a client's account.
func (s *fixture) editClient(id int64, change func(*credentials.Account)) {
	s.t.Helper()
	a := s.Clients.Account(id)
	change(&a)
	s.Clients.Set(a)
}

// countRecords counts the records of a type of change.
func (s *fixture) countRecords(kind string) (n int) {
	s.t.Helper()
	if err := s.DB.QueryRow(s.t.Context(), "SELECT count(*) FROM change WHERE type = $1", kind).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// wantRecords waits until there are this many records of a type of change. Some are written after the response.
func (s *fixture) wantRecords(kind string, want int) {
	s.t.Helper()
	testkit.Await(s.t, "there are records of "+kind, func() int { return s.countRecords(kind) }, func(got int) bool { return got >= want })
	if got := s.countRecords(kind); got != want {
		s.t.Errorf("records of %s: got %d, want %d", kind, got, want)
	}
}

// newAdmin creates an admin with these permissions, and returns a client with its key.
func newAdmin(t *testing.T, c *testkit.Client, username, permissions string) (id int64, client *testkit.Client) {
	t.Helper()
	id = c.Do("POST", "/admin", map[string]any{"username": username, "email": username + "@example.com", "password": ""}).Want(200).ID()
	c.Do("PATCH", path("/admin/%d/permission", id), permissions).Want(200)
	key := c.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": map[string]any{"url": path("/admin/%d", id)}}).Want(200)
	return id, c.WithKey(testkit.Decode[keys.APIKey](key).Key)
}

func loginBody(kind, email, password string) string {
	return `{"type": "` + kind + `", "email": "` + email + `", "password": "` + password + `"}`
}

// signIn begins a session, and returns its key and a client with it.
func signIn(t *testing.T, c *testkit.Client, body string) (keys.APIKey, *testkit.Client) {
	t.Helper()
	key := testkit.Decode[keys.APIKey](c.WithKey("").WithT(t).Do("POST", "/auth/key", body).Want(200))
	if key.Key == "" || key.Name != "Session" || key.ExpiresAt == nil {
		t.Fatalf("got %+v, want a session that expires", key)
	}
	return key, c.WithKey(key.Key).WithT(t)
}

// setPanels sets the addresses of the API and the panels.
func (s *fixture) setPanels() {
	for setting, url := range map[settings.Text]string{
		settings.APIURL:    "https://api.example.com",
		settings.AdminURL:  "https://admin.example.com",
		settings.ClientURL: "https://panel.example.com/",
	} {
		s.System.SetSetting(setting.Slug, url)
	}
}
