package product_test

import (
	"net/http"
	"net/url"
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

// holder is an account, with what the rules need to know.
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

// asker is a key, with what the rules need to know.
type asker struct {
	name   string
	of     *holder
	bound  *principal.Grants
	acting bool
	client *testkit.Client
	spare  int64 // a key of the account, to be given away
}

// The rules, as behaviour says them and not as the code does.

// effective returns the key's permissions: those of its owner, within its bound.
func (a *asker) effective() principal.Grants {
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

// reads: the key has the permission to read, or the account is its own.
func (a *asker) reads(h *holder) bool {
	return a.of == h || a.effective().Holds(principal.Grant(guards(h.owner.Type), permission.Read))
}

// writes: the key governs the account, and does not belong to an acting session.
func (a *asker) writes(h *holder) bool { return !a.acting && a.governs(h) }

// governs: the key has the permission to write, and every permission of the account. An integration governs only its own
// clients.
func (a *asker) governs(h *holder) bool {
	switch {
	case !a.effective().Holds(principal.Grant(guards(h.owner.Type), permission.Write)) || !a.effective().Holds(h.holds):
		return false
	case a.of.owner.Type == principal.Integration && h.owner.Type == principal.Client:
		return h.integration == a.of.owner.ID
	}
	return true
}

// writesKeys: as governs, and the keys of its own account.
func (a *asker) writesKeys(h *holder) bool {
	return !a.acting && a.reads(h) && (a.of == h || a.writes(h))
}

// registers: a security key of its own account, by a key that is not bound more tightly than the account.
func (a *asker) registers(h *holder) bool {
	return !a.acting && a.of == h && h.owner.Type != principal.Integration &&
		(h.owner.Type == principal.Client || a.effective().Holds(h.holds))
}

func (a *asker) writesFactors(h *holder) bool { return a.reads(h) && a.writes(h) }

// acts: as its own account, and as clients that it may write to.
func (a *asker) acts(h *holder) bool {
	return !a.acting && (a.of == h || h.owner.Type == principal.Client && a.writes(h))
}

func (a *asker) grants(more principal.Grants) func(*holder) bool {
	return func(h *holder) bool { return a.writes(h) && a.effective().Holds(more) }
}

// boundOf returns the bound of a key that this key creates for an account, or sets the value of.
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
	grants := a.effective()
	return bound(bound(was, a.bound), &grants)
}

// attempt is an operation to try, with the rule that decides whether it succeeds.
type attempt struct {
	label        string
	method, path string
	body         any
	may          func(*holder) bool
	writers      bool   // are told what is wrong, and may not either
	undo         func() // what was done
	look         func(*testkit.Response)
}

// No account extends its own rights. For each key and each account, creating, granting, resetting, linking and editing
// succeeds exactly as the rules say.
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
						describeGrants(a.effective()),
						try.label,
						h.name,
						describeGrants(h.holds),
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
	count   int
	askers  []*asker
	targets []*holder
}

// holding returns the permissions to read and to write these leaves, or what a leaf names in particular.
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

// account creates an account with these permissions, which can sign in.
func (e *escalation) account(kind principal.OwnerType, name string, holds principal.Grants) *holder {
	e.t.Helper()
	h := &holder{name: name, owner: principal.Owner{Type: kind}}
	h.another = func() int64 {
		e.t.Helper()
		e.count++
		h.email = path("e%d@example.com", e.count)
		body := map[principal.OwnerType]any{principal.Integration: map[string]any{"name": path("%s %d", name, e.count)},
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
		producttest.AwaitConsumers(e.t, e.p) // identity goes by what it has heard
	}
}

// keyBy lets maker create a key of an account.
func (e *escalation) keyBy(maker *testkit.Client, h *holder) (int64, *testkit.Client) {
	e.t.Helper()
	key := testkit.Decode[keys.APIKey](
		maker.Do("POST", "/auth/key", map[string]any{"name": "made", "owner": map[string]any{"url": h.owner.URL()}}).Want(200),
	)
	return key.ID, e.root.WithKey(key.Key)
}

// asking adds a key of the account, which the first admin creates, to the askers.
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
	other := e.asking(e.account(principal.Integration, "stranger", holding("users.clients", "system.integrations")))
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
	for _, count := range []struct {
		by   *asker
		whom *holder
	}{{maker, ben}, {shop, e.ofIntegration(shop, "the shop's customer")}, {e.askers[len(e.askers)-1], risen}} {
		link := testkit.Decode[session.SSOLink](count.by.client.Do("GET", "/auth/sso?owner="+count.whom.owner.URL(), nil).Want(200))
		key := testkit.Decode[keys.APIKey](e.root.WithKey("").Do("POST", "/auth/sso", exchangeOf(codeOf(t, link.URL).Get("key"))).Want(200))
		e.askers = append(
			e.askers,
			&asker{
				name:   count.whom.name + ", by a session of " + count.by.name,
				of:     count.whom,
				bound:  count.by.bound,
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
		e.ofIntegration(other, "the stranger's client"),
	} {
		e.furnish(h)
		e.targets = append(e.targets, h)
	}
}

// furnish gives an account the items that attempts are made on.
func (e *escalation) furnish(h *holder) {
	e.t.Helper()
	h.key, _ = e.keyBy(e.root, h)
	h.moved, _ = e.keyBy(e.root, h)
	if h.owner.Type == principal.Integration {
		return
	}
	e.secure(h)
}

// secure gives second factors to an account that has none.
func (e *escalation) secure(h *holder) {
	e.t.Helper()
	_, itself := e.keyBy(e.root, h)
	count := testkit.Decode[mfa.Authenticator](itself.Do("POST", "/auth/verify/auth", `{"method": 3, "name": "unmade"}`).Want(200))
	h.unmade, h.options = count.ID, secondfactor.ParseOptions[secondfactor.CreationOptions](e.t, []byte(*count.Value))
	err := e.p.Databases[identity.Name].QueryRow(e.t.Context(), "INSERT INTO authenticator (owner_type, owner_id, method_id, value, "+
		"verified) VALUES ($1, $2, 2, 'tried@example.com', true) RETURNING id", h.owner.Type, h.owner.ID).
		Scan(&h.factor)
	if err != nil {
		e.t.Fatal(err)
	}
	e.keep(h)
}

// keep gives an account a verified security key.
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

// replace creates another account in place of a deleted one.
func (e *escalation) replace(h *holder) {
	e.t.Helper()
	h.owner.ID = h.another()
	if h.holds != 0 {
		e.raise(h, h.holds)
	}
	e.furnish(h)
}

// typed gives an admin a password to sign in with, and returns its address.
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
		e.count++
		h.email = path("e%d@example.com", e.count)
		return a.client.Do("POST", "/client", order(h.email)).Want(200).ID()
	}
	h.owner.ID = h.another()
	return h
}

// attempts returns what a key tries with an account.
func (e *escalation) attempts(a *asker, h *holder) (all []attempt) {
	e.count++
	root, url, db := e.root, h.owner.URL(), e.p.Databases[identity.Name]
	fresh := path("fresh%d", e.count)
	keyBound := func(key keys.APIKey) *principal.Grants {
		if key.Bound == nil {
			return nil
		}
		bound := principal.ParseGrants(*key.Bound)
		return &bound
	}
	compare := func(label string, is, want *principal.Grants) {
		if (is == nil) != (want == nil) || is != nil && *is != *want {
			e.t.Errorf("%s, which can %s, %s %s: got the bound %v, want %v", a.name, describeGrants(a.effective()), label, h.name, is, want)
		}
	}
	all = append(
		all,
		attempt{
			label:  "make a key for",
			method: "POST",
			path:   "/auth/key",
			body:   map[string]any{"name": fresh, "owner": map[string]any{"url": url}},
			may:    a.writesKeys,
			look: func(answer *testkit.Response) {
				compare("makes a key for", keyBound(testkit.Decode[keys.APIKey](answer)), a.boundOf(h, nil))
			},
		},
		attempt{label: "act for", method: "POST", path: "/auth/key", body: map[string]any{"owner": map[string]any{"url": url}}, may: a.acts},
	)
	if a.of == h {
		all = append(
			all,
			attempt{
				label:  "make a security key for",
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
		all = append(all, attempt{label: "make a link for", method: "GET", path: "/auth/sso?owner=" + url, may: a.acts})
	}
	if h.owner.Type != principal.Client {
		for _, leaf := range []string{"network.groups read", "users.admins write", "pxe.installs write"} {
			more := principal.ParseGrants([]string{leaf})
			if h.holds.Holds(more) || a.of == h && a.writes(h) && a.effective().Holds(more) {
				continue
			}
			all = append(
				all,
				attempt{
					label:  "give " + leaf + " to",
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
	if h.owner.Type == principal.Client { // an admin's work, which an admin also does from the panel that a link has led to
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
			label:  "edit a key of",
			method: "PATCH",
			path:   path("/auth/key/%d", h.key),
			body:   map[string]any{"name": fresh},
			may:    a.writesKeys,
		},
		attempt{
			label:  "set the value of a key of",
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
			label:  "take a key of",
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
			label:  "give a key to",
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
			label:  "disable",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"name": h.name, "disabled": true},
			may:    ends,
			undo:   func() { root.Do("PATCH", url, map[string]any{"name": h.name, "disabled": false}).Want(200) },
		},
	)
	remove := attempt{label: "delete", method: "DELETE", path: url, may: ends, undo: func() { e.replace(h) }}
	if h.owner.Type == principal.Integration {
		return append(
			all,
			attempt{
				label:  "rename",
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
			label:  "have a link mailed to",
			method: "POST",
			path:   "/auth/password-reset",
			body:   map[string]any{"type": h.owner.Type, "email": h.email},
			may:    func(*holder) bool { return true },
			look: func(answer *testkit.Response) {
				if shown := testkit.Decode[login.PasswordReset](answer).User.ID != nil; shown != a.reads(h) {
					e.t.Errorf("%s, which can %s, mails a link to %s: got shown %t, want %t", a.name, describeGrants(a.effective()), h.name, shown, !shown)
				}
			},
		},
		attempt{
			label:  "change the address of",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"email": fresh + "@example.com"},
			may:    a.writes,
			undo:   func() { h.email = fresh + "@example.com" },
		},
		attempt{
			label:  "change the password of",
			method: "PATCH",
			path:   url,
			body:   map[string]any{"password": fresh + " walks home in the rain"},
			may:    a.writes,
		},
		attempt{
			label:  "remove an authenticator of",
			method: "PATCH",
			path:   path("/auth/verify/auth/%d", h.factor),
			body:   map[string]any{"verified": false},
			may:    a.writesFactors,
			undo:   func() { testkit.Execute(e.t, db, "UPDATE authenticator SET verified = true WHERE id = $1", h.factor) },
		},
		attempt{label: "confirm a code of", method: "POST", path: path("/auth/verify/auth/%d/code", h.factor), body: "{}", may: isNever},
		attempt{
			label:  "call a security key otherwise of",
			method: "PATCH",
			path:   path("/auth/verify/auth/%d", h.passkey),
			body:   map[string]any{"name": fresh},
			may:    a.writesFactors,
		},
		attempt{
			label:  "ask for the signature of a security key of",
			method: "POST",
			path:   path("/auth/verify/auth/%d/code", h.passkey),
			body:   "{}",
			may:    isNever,
		},
		attempt{
			label:   "register a security key of one's own for",
			method:  "PATCH",
			path:    path("/auth/verify/auth/%d", h.unmade),
			body:    secondfactor.VerifyBody(secondfactor.NewDevice(e.t).Create(h.options)),
			may:     isNever,
			writers: true,
		},
		attempt{
			label:  "be asked for a new security key of",
			method: "POST",
			path:   path("/auth/verify/auth/%d/code", h.unmade),
			body:   "{}",
			may:    isNever,
		},
		attempt{
			label:  "remove a security key of",
			method: "DELETE",
			path:   path("/auth/verify/auth/%d", h.passkey),
			may:    a.writesFactors,
			undo:   func() { e.keep(h) },
		},
		attempt{label: "remove all authenticators of", method: "DELETE", path: url + "/verify", may: a.writes, undo: func() { e.secure(h) }},
		remove,
	)
}

// isNever is the rule of an attempt that no key may make.
func isNever(*holder) bool { return false }

// describeGrants returns the permissions as text, for failures.
func describeGrants(g principal.Grants) string {
	if g == principal.All {
		return "everything"
	}
	return strings.Join(g.Names(), ", ")
}

func ptr[T any](value T) *T { return &value }

// codeOf returns the values that a link passes to its panel.
func codeOf(t *testing.T, link string) url.Values {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil || !strings.HasSuffix(at.Path, "/auth/sso") || at.RawQuery != "" {
		t.Fatalf("got the link %s (%v), want /auth/sso without a query", link, err)
	}
	values, err := url.ParseQuery(at.Fragment)
	if err != nil || values.Get("key") == "" {
		t.Fatalf("got the link %s (%v), want a key in its fragment", link, err)
	}
	return values
}

// exchangeOf returns the body that exchanges a code for a key.
func exchangeOf(code string) string { return `{"code": "` + code + `"}` }
