package product_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/login"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/identity/session"
)

// holder is an account, and what the rules look at.
type holder struct {
	name               string
	owner              principal.Owner
	holds              principal.Grants
	integration        int64 // of a client
	key, moved, factor int64 // of one that is tried
	passkey, unmade    int64 // security keys of it: a verified one, and one that it is asked to make
	options            secondfactor.CreationOptions
	email              string
	another            func() int64 // makes such an account, and answers its id
}

// asker is a key, and what the rules look at.
type asker struct {
	name   string
	of     *holder
	bound  *principal.Grants
	acting bool
	client *testkit.Client
	spare  int64 // a key of the account, to be given away
}

// The rules, as behaviour says them and not as the code does.

// can is what a key can do: what its owner holds, within its bound.
func (a *asker) can() principal.Grants {
	if a.bound != nil {
		return a.of.holds & *a.bound
	}
	return a.of.holds
}

func guards(t principal.OwnerType) permission.Permission {
	return map[principal.OwnerType]permission.Permission{
		principal.Admin: permission.UsersAdmins, principal.Client: permission.UsersClients, principal.Integration: permission.SystemIntegrations,
	}[t]
}

// reads: who holds the leaf, and everybody himself.
func (a *asker) reads(h *holder) bool {
	return a.of == h || a.can().Holds(principal.Grant(guards(h.owner.Type), permission.Read))
}

// writes: who governs the account, by a session or key of his own.
func (a *asker) writes(h *holder) bool { return !a.acting && a.governs(h) }

// governs: who holds the leaf's write, and all that the account holds; an integration its own clients alone.
func (a *asker) governs(h *holder) bool {
	switch {
	case !a.can().Holds(principal.Grant(guards(h.owner.Type), permission.Write)) || !a.can().Holds(h.holds):
		return false
	case a.of.owner.Type == principal.Integration && h.owner.Type == principal.Client:
		return h.integration == a.of.owner.ID
	}
	return true
}

// writesKeys: those of the own account, too.
func (a *asker) writesKeys(h *holder) bool {
	return !a.acting && a.reads(h) && (a.of == h || a.writes(h))
}

// registers: a security key for the own account, by a key that is as free as the account.
func (a *asker) registers(h *holder) bool {
	return !a.acting && a.of == h && h.owner.Type != principal.Integration && (h.owner.Type == principal.Client || a.can().Holds(h.holds))
}

func (a *asker) writesFactors(h *holder) bool { return a.reads(h) && a.writes(h) }

// acts: by itself, and for clients who writes to them.
func (a *asker) acts(h *holder) bool {
	return !a.acting && (a.of == h || h.owner.Type == principal.Client && a.writes(h))
}

func (a *asker) grants(more principal.Grants) func(*holder) bool {
	return func(h *holder) bool { return a.writes(h) && a.can().Holds(more) }
}

// boundOf is the bound of what it makes for an account, or whose value it sets.
func (a *asker) boundOf(h *holder, was *principal.Grants) *principal.Grants {
	bound := func(x, y *principal.Grants) *principal.Grants {
		if x == nil || y == nil {
			return map[bool]*principal.Grants{true: y, false: x}[x == nil]
		}
		both := *x & *y
		return &both
	}
	if bound := bound(was, a.bound); a.of == h {
		return bound
	}
	can := a.can()
	return bound(bound(was, a.bound), &can)
}

// attempt is something that is tried, of which the rules say whether it is done.
type attempt struct {
	what         string
	method, path string
	body         any
	may          func(*holder) bool
	writers      bool   // are told what is wrong, and may not either
	undo         func() // what was done
	look         func(*testkit.Response)
}

// Nobody lifts himself: for each key and each account, what is made, granted, reset, linked and edited is what the rules allow.
func TestEscalation(t *testing.T) {
	t.Parallel()
	p, c, _ := withPanels(t)
	e := &escalation{t: t, p: p, root: c}
	e.makeAccounts()
	tried, done := 0, 0
	for _, a := range e.askers {
		for _, h := range append(e.targets, a.of) {
			for _, try := range e.attempts(a, h) {
				answer := a.client.Do(try.method, try.path, try.body)
				tried++
				switch may := try.may(h); {
				case may && answer.Status == http.StatusOK, may && answer.Status == http.StatusFound:
					done++
					if try.look != nil {
						try.look(answer)
					}
					if try.undo != nil {
						try.undo()
					}
				case !may && (answer.Status == http.StatusForbidden || answer.Status == http.StatusNotFound):
				case !may && try.writers && a.writesFactors(h) && answer.Status == http.StatusUnprocessableEntity:
				default:
					t.Errorf(
						"%s, which can %s, tries to %s %s, which holds %s: got %d, want it allowed %t: %s",
						a.name,
						told(a.can()),
						try.what,
						h.name,
						told(h.holds),
						answer.Status,
						may,
						answer.Text,
					)
				}
			}
		}
	}
	if done < 100 || tried < 1000 {
		t.Errorf("got %d allowed of %d attempts, want at least 100 of 1000", done, tried)
	}
}

type escalation struct {
	t       *testing.T
	p       *product.Product
	root    *testkit.Client
	made    int
	askers  []*asker
	targets []*holder
}

// holding is a set of leaves, with their reading and writing unless they say otherwise.
func holding(leaves ...string) (g principal.Grants) {
	for _, leaf := range leaves {
		if strings.Contains(leaf, " ") {
			g |= principal.ParseGrants([]string{leaf})
		} else {
			g |= principal.ParseGrants([]string{leaf + " read", leaf + " write"})
		}
	}
	return g
}

// account makes an account that can sign in, and holds this.
func (e *escalation) account(kind principal.OwnerType, name string, holds principal.Grants) *holder {
	e.t.Helper()
	h := &holder{name: name, owner: principal.Owner{Type: kind}}
	h.another = func() int64 {
		e.t.Helper()
		e.made++
		h.email = path("e%d@example.com", e.made)
		body := map[principal.OwnerType]any{principal.Integration: map[string]any{"name": path("%s %d", name, e.made)},
			principal.Client: order(h.email),
			principal.Admin:  map[string]any{"email": h.email, "password": ""}}[kind]
		return e.root.Do("POST", "/"+string(kind), body).Want(200).ID()
	}
	h.owner.ID = h.another()
	if holds != 0 {
		e.raise(h, holds)
	}
	return h
}

func (e *escalation) raise(h *holder, holds principal.Grants) {
	e.t.Helper()
	h.holds = holds
	e.root.Do("PATCH", h.owner.URL()+"/permission", principal.SetOf(holds)).Want(200)
	if h.owner.Type == principal.Integration {
		producttest.Followed(e.t, e.p) // identity goes by what it has heard
	}
}

// keyBy is a key of an account that somebody makes.
func (e *escalation) keyBy(maker *testkit.Client, h *holder) (int64, *testkit.Client) {
	e.t.Helper()
	key := testkit.Decode[keys.APIKey](
		maker.Do("POST", "/auth/key", map[string]any{"name": "made", "owner": map[string]any{"url": h.owner.URL()}}).Want(200),
	)
	return key.ID, e.root.WithKey(key.Key)
}

// asking adds a key of the account that the first admin makes.
func (e *escalation) asking(h *holder) *asker {
	e.t.Helper()
	all := principal.All
	_, client := e.keyBy(e.root, h)
	a := &asker{name: h.name, of: h, bound: &all, client: client}
	e.askers = append(e.askers, a)
	return a
}

func (e *escalation) makeAccounts() {
	t := e.t
	t.Helper()
	for _, admin := range []struct {
		name  string
		holds principal.Grants
	}{
		{"an admin without anything", 0}, {"an admin of admins", holding("users.admins")},
		{"an admin who reads admins", holding("users.admins read", "users.clients read", "system.integrations read")},
		{"an admin of admins and groups", holding("users.admins", "network.groups")}, {"an admin of clients", holding("users.clients")},
		{"an admin of integrations", holding("system.integrations")},
		{"an admin of nearly all", principal.All &^ holding("pxe.installs write")},
	} {
		e.asking(e.account(principal.Admin, admin.name, admin.holds))
	}
	shop := e.asking(e.account(principal.Integration, "shop", holding("users.clients")))
	stranger := e.asking(e.account(principal.Integration, "stranger", holding("users.clients", "system.integrations")))
	e.asking(e.account(principal.Integration, "staff", holding("users.admins", "network.groups read")))
	ben := e.account(principal.Client, "ben", 0)
	e.asking(ben)

	// Keys that carry a bound: of an account that rose after they were made, and what is made with them.
	risen := e.account(principal.Admin, "an admin who rose", 0)
	maker := e.asking(e.account(principal.Admin, "a maker", holding("users.admins", "users.clients")))
	_, bounded := e.keyBy(maker.client, risen)
	e.raise(risen, principal.All)
	forgotten()
	bound := holding("users.admins", "users.clients")
	e.askers = append(e.askers, &asker{name: "an admin who rose, by a key with a bound", of: risen, bound: &bound, client: bounded})
	_, heir := e.keyBy(bounded, risen)
	e.askers = append(
		e.askers,
		&asker{name: "an admin who rose, by a key that was made with one that has a bound", of: risen, bound: &bound, client: heir},
	)
	_, signedIn := signIn(t, e.root, loginOf("admin", e.typed(risen), password))
	e.askers = append(e.askers, &asker{name: "an admin who rose, who has signed in", of: risen, client: signedIn})

	// Acting sessions: for a client, and of one's own.
	for _, made := range []struct {
		by   *asker
		whom *holder
	}{{maker, ben}, {shop, e.ofIntegration(shop, "the shop's customer")}, {e.askers[len(e.askers)-1], risen}} {
		link := testkit.Decode[session.SSOLink](made.by.client.Do("GET", "/auth/sso?owner="+made.whom.owner.URL(), nil).Want(200))
		key := testkit.Decode[keys.APIKey](e.root.WithKey("").Do("POST", "/auth/sso", exchangeOf(codeOf(t, link.URL).Get("key"))).Want(200))
		e.askers = append(
			e.askers,
			&asker{
				name:   made.whom.name + ", by a session of " + made.by.name,
				of:     made.whom,
				bound:  made.by.bound,
				acting: true,
				client: e.root.WithKey(key.Key),
			},
		)
	}

	for _, h := range []*holder{
		e.account(principal.Admin, "an admin to be tried", 0), e.account(principal.Admin, "an admin of groups", holding("network.groups")),
		e.account(principal.Admin, "an admin of all", principal.All),
		e.account(principal.Integration, "a tried integration", 0),
		e.account(principal.Integration, "an integration of groups", holding("network.groups")),
		e.account(principal.Client, "nobody's client", 0), e.ofIntegration(shop, "the shop's client"),
		e.ofIntegration(stranger, "the stranger's client"),
	} {
		e.furnish(h)
		e.targets = append(e.targets, h)
	}
}

// furnish gives an account what is tried.
func (e *escalation) furnish(h *holder) {
	e.t.Helper()
	h.key, _ = e.keyBy(e.root, h)
	h.moved, _ = e.keyBy(e.root, h)
	if h.owner.Type == principal.Integration {
		return
	}
	e.secure(h)
}

// secure gives an account, which has none, second factors.
func (e *escalation) secure(h *holder) {
	e.t.Helper()
	_, itself := e.keyBy(e.root, h)
	made := testkit.Decode[mfa.Authenticator](itself.Do("POST", "/auth/verify/auth", `{"method": 3, "name": "unmade"}`).Want(200))
	h.unmade, h.options = made.ID, secondfactor.ParseOptions[secondfactor.CreationOptions](e.t, []byte(*made.Value))
	err := e.p.Databases[identity.Name].QueryRow(e.t.Context(), "INSERT INTO authenticator (owner_type, owner_id, method_id, value, "+
		"verified) VALUES ($1, $2, 2, 'tried@example.com', true) RETURNING id", h.owner.Type, h.owner.ID).
		Scan(&h.factor)
	if err != nil {
		e.t.Fatal(err)
	}
	e.keep(h)
}

// keep gives an account a security key that was verified.
func (e *escalation) keep(h *holder) {
	e.t.Helper()
	device := secondfactor.NewDevice(e.t)
	err := e.p.Databases[identity.Name].QueryRow(e.t.Context(), `
		INSERT INTO authenticator (owner_type, owner_id, method_id, verified, domain, handle, credential, public_key) VALUES ($1, $2, 3, true, $3, 'h', $4, $5) RETURNING id`,
		h.owner.Type, h.owner.ID, secondfactor.Settings.PasskeyDomain, device.ID, device.PublicKey()).Scan(&h.passkey)
	if err != nil {
		e.t.Fatal(err)
	}
}

// replace puts another account in the place of one that was deleted.
func (e *escalation) replace(h *holder) {
	e.t.Helper()
	h.owner.ID = h.another()
	if h.holds != 0 {
		e.raise(h, h.holds)
	}
	e.furnish(h)
}

// typed gives an admin a password to sign in with, and answers the address.
func (e *escalation) typed(h *holder) (email string) {
	e.t.Helper()
	admin := testkit.Decode[admin.Admin](e.root.Do("PATCH", h.owner.URL(), map[string]any{"password": password}).Want(200))
	return admin.Email
}

func (e *escalation) ofIntegration(a *asker, name string) *holder {
	e.t.Helper()
	h := &holder{name: name, owner: principal.Owner{Type: principal.Client}, integration: a.of.owner.ID}
	h.another = func() int64 {
		e.t.Helper()
		e.made++
		h.email = path("e%d@example.com", e.made)
		return a.client.Do("POST", "/client", order(h.email)).Want(200).ID()
	}
	h.owner.ID = h.another()
	return h
}

// attempts are what a key tries with an account.
func (e *escalation) attempts(a *asker, h *holder) (all []attempt) {
	e.made++
	root, url, db := e.root, h.owner.URL(), e.p.Databases[identity.Name]
	fresh := path("fresh%d", e.made)
	keyBound := func(key keys.APIKey) *principal.Grants {
		if key.Bound == nil {
			return nil
		}
		bound := principal.ParseGrants(*key.Bound)
		return &bound
	}
	compare := func(what string, is, want *principal.Grants) {
		if (is == nil) != (want == nil) || is != nil && *is != *want {
			e.t.Errorf("%s, which can %s, %s %s: got the bound %v, want %v", a.name, told(a.can()), what, h.name, is, want)
		}
	}
	all = append(
		all,
		attempt{
			what:   "make a key for",
			method: "POST",
			path:   "/auth/key",
			body:   map[string]any{"name": fresh, "owner": map[string]any{"url": url}},
			may:    a.writesKeys,
			look: func(answer *testkit.Response) {
				compare("makes a key for", keyBound(testkit.Decode[keys.APIKey](answer)), a.boundOf(h, nil))
			},
		},
		attempt{what: "act for", method: "POST", path: "/auth/key", body: map[string]any{"owner": map[string]any{"url": url}}, may: a.acts},
	)
	if a.of == h {
		all = append(
			all,
			attempt{
				what:   "make a security key for",
				method: "POST",
				path:   "/auth/verify/auth",
				body:   `{"method": 3}`,
				may:    a.registers,
				look: func(answer *testkit.Response) {
					root.Do("DELETE", path("/auth/verify/auth/%d", answer.ID()), nil).Want(200)
				},
			},
		)
	}
	if a.of != h || h.owner.Type != principal.Integration { // which has no panel
		all = append(all, attempt{what: "make a link for", method: "GET", path: "/auth/sso?owner=" + url, may: a.acts})
	}
	if h.owner.Type != principal.Client {
		for _, leaf := range []string{"network.groups read", "users.admins write", "pxe.installs write"} {
			more := principal.ParseGrants([]string{leaf})
			if h.holds.Holds(more) || a.of == h && a.writes(h) && a.can().Holds(more) {
				continue
			}
			all = append(
				all,
				attempt{
					what:   "give " + leaf + " to",
					method: "PATCH",
					path:   url + "/permission",
					body:   principal.SetOf(h.holds | more),
					may:    a.grants(more),
					undo:   func() { e.raise(h, h.holds) },
				},
			)
		}
	}
	if a.of == h { // what else is done with the own account takes its password, or takes it away
		return all
	}
	ends := a.writes                      // disables and deletes
	if h.owner.Type == principal.Client { // an admin's work, which he also does from the panel that a link has led him to
		ends = a.governs
	}
	if a.spare == 0 {
		a.spare, _ = e.keyBy(root, a.of)
	}
	another := func(key *int64) {
		root.Do("DELETE", path("/auth/key/%d", *key), nil).Want(200)
		*key, _ = e.keyBy(root, h)
	}
	all = append(
		all,
		attempt{
			what:   "edit a key of",
			method: "PATCH",
			path:   path("/auth/key/%d", h.key),
			body:   map[string]any{"name": fresh},
			may:    a.writesKeys,
		},
		attempt{
			what:   "set the value of a key of",
			method: "PATCH",
			path:   path("/auth/key/%d", h.key),
			body:   map[string]any{"name": fresh, "key": fresh + strings.Repeat("x", 40)},
			may:    a.writesKeys,
			look: func(answer *testkit.Response) {
				compare("sets the value of a key of", keyBound(testkit.Decode[keys.APIKey](answer)), a.boundOf(h, ptr(principal.All)))
				another(&h.key)
			},
		},
		attempt{
			what:   "take a key of",
			method: "PATCH",
			path:   path("/auth/key/%d", h.moved),
			body:   map[string]any{"name": fresh, "owner": map[string]any{"url": a.of.owner.URL()}},
			may:    a.writesKeys,
			look: func(answer *testkit.Response) {
				compare("takes a key of", keyBound(testkit.Decode[keys.APIKey](answer)), a.boundOf(a.of, ptr(principal.All)))
				another(&h.moved)
			},
		},
		attempt{
			what:   "give a key to",
			method: "PATCH",
			path:   path("/auth/key/%d", a.spare),
			body:   map[string]any{"name": fresh, "owner": map[string]any{"url": url}},
			may:    a.writesKeys,
			look: func(answer *testkit.Response) {
				compare("gives a key to", keyBound(testkit.Decode[keys.APIKey](answer)), a.boundOf(h, ptr(principal.All)))
				root.Do("DELETE", path("/auth/key/%d", a.spare), nil).Want(200)
				a.spare = 0
			},
		},
		attempt{
			what:   "disable",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"name": h.name, "disabled": true},
			may:    ends,
			undo:   func() { root.Do("PATCH", url, map[string]any{"name": h.name, "disabled": false}).Want(200) },
		},
	)
	remove := attempt{what: "delete", method: "DELETE", path: url, may: ends, undo: func() { e.replace(h) }}
	if h.owner.Type == principal.Integration {
		return append(
			all,
			attempt{
				what:   "rename",
				method: "PATCH",
				path:   url,
				body:   map[string]any{"name": fresh},
				may:    a.writes,
				undo:   func() { root.Do("PATCH", url, map[string]any{"name": h.name}).Want(200) },
			},
			remove,
		)
	}
	return append(
		all,
		attempt{
			what:   "have a link mailed to",
			method: "POST",
			path:   "/auth/password-reset",
			body:   map[string]any{"type": h.owner.Type, "email": h.email},
			may:    func(*holder) bool { return true },
			look: func(answer *testkit.Response) {
				if shown := testkit.Decode[login.PasswordReset](answer).User.ID != nil; shown != a.reads(h) {
					e.t.Errorf("%s, which can %s, mails a link to %s: got shown %t, want %t", a.name, told(a.can()), h.name, shown, !shown)
				}
			},
		},
		attempt{
			what:   "change the address of",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"email": fresh + "@example.com"},
			may:    a.writes,
			undo:   func() { h.email = fresh + "@example.com" },
		},
		attempt{
			what:   "change the password of",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"password": fresh + " walks home in the rain"},
			may:    a.writes,
		},
		attempt{
			what:   "remove an authenticator of",
			method: "PATCH",
			path:   path("/auth/verify/auth/%d", h.factor),
			body:   map[string]any{"verified": false},
			may:    a.writesFactors,
			undo:   func() { testkit.Execute(e.t, db, "UPDATE authenticator SET verified = true WHERE id = $1", h.factor) },
		},
		attempt{what: "confirm a code of", method: "POST", path: path("/auth/verify/auth/%d/code", h.factor), body: "{}", may: nobody},
		attempt{
			what:   "call a security key otherwise of",
			method: "PATCH",
			path:   path("/auth/verify/auth/%d", h.passkey),
			body:   map[string]any{"name": fresh},
			may:    a.writesFactors,
		},
		attempt{
			what:   "ask for the signature of a security key of",
			method: "POST",
			path:   path("/auth/verify/auth/%d/code", h.passkey),
			body:   "{}",
			may:    nobody,
		},
		attempt{
			what:    "register a security key of one's own for",
			method:  "PATCH",
			path:    path("/auth/verify/auth/%d", h.unmade),
			body:    secondfactor.VerifyBody(secondfactor.NewDevice(e.t).Create(h.options)),
			may:     nobody,
			writers: true,
		},
		attempt{
			what:   "be asked for a new security key of",
			method: "POST",
			path:   path("/auth/verify/auth/%d/code", h.unmade),
			body:   "{}",
			may:    nobody,
		},
		attempt{
			what:   "remove a security key of",
			method: "DELETE",
			path:   path("/auth/verify/auth/%d", h.passkey),
			may:    a.writesFactors,
			undo:   func() { e.keep(h) },
		},
		attempt{what: "remove all authenticators of", method: "DELETE", path: url + "/verify", may: a.writes, undo: func() { e.secure(h) }},
		remove,
	)
}

func nobody(*holder) bool { return false }

func told(g principal.Grants) string {
	if g == principal.All {
		return "everything"
	}
	return strings.Join(g.Names(), ", ")
}

func ptr[T any](value T) *T { return &value }
