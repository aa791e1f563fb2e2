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

// testAccount is an account that callers try to change, or whose keys are callers.
type testAccount struct {
	name                  string
	owner                 principal.Owner
	grants                principal.Grants
	integration           int64 // the integration of a client
	key, movedKey, factor int64 // the ids of its items
	passkey, pending      int64 // its verified security key, and the one that is to be registered
	options               secondfactor.CreationOptions
	email                 string
	create                func() int64 // creates an account like this one, and returns its id
}

// caller is a key that tries operations.
type caller struct {
	name    string
	account *testAccount
	bound   *principal.Grants
	acting  bool
	client  *testkit.Client
	spare   int64 // another key of its account, which it tries to move
}

// The methods of caller are the rules as the reference states them, and not as the code does.

// effective returns the key's permissions: those of its owner, within its bound.
func (a *caller) effective() principal.Grants {
	if a.bound != nil {
		return a.account.grants & *a.bound
	}
	return a.account.grants
}

// permissionFor returns the permission that operations on such accounts need.
func permissionFor(t principal.OwnerType) permission.Permission {
	return map[principal.OwnerType]permission.Permission{
		principal.Admin: permission.UsersAdmins, principal.Client: permission.UsersClients, principal.Integration: permission.SystemIntegrations,
	}[t]
}

// canRead reports whether the key has the permission to read, or the account is its own.
func (a *caller) canRead(target *testAccount) bool {
	return a.account == target || a.effective().Holds(principal.Grant(permissionFor(target.owner.Type), permission.Read))
}

// canWrite reports whether the key governs the account, and does not belong to an acting session.
func (a *caller) canWrite(target *testAccount) bool { return !a.acting && a.governs(target) }

// governs reports whether the key has the permission to write, and every permission of the account. An integration governs only
// its own clients.
func (a *caller) governs(target *testAccount) bool {
	switch {
	case !a.effective().Holds(principal.Grant(permissionFor(target.owner.Type), permission.Write)) || !a.effective().Holds(target.grants):
		return false
	case a.account.owner.Type == principal.Integration && target.owner.Type == principal.Client:
		return target.integration == a.account.owner.ID
	}
	return true
}

// canWriteKeys reports whether the key can write keys of the account: its own, or one that it can write.
func (a *caller) canWriteKeys(target *testAccount) bool {
	return !a.acting && a.canRead(target) && (a.account == target || a.canWrite(target))
}

// canRegister reports whether the key can add a security key. The account must be its own, and an admin's key must have all
// permissions of the admin.
func (a *caller) canRegister(target *testAccount) bool {
	return !a.acting && a.account == target && target.owner.Type != principal.Integration &&
		(target.owner.Type == principal.Client || a.effective().Holds(target.grants))
}

// canWriteFactors reports whether the key can change second factors of the account.
func (a *caller) canWriteFactors(target *testAccount) bool {
	return a.canRead(target) && a.canWrite(target)
}

// canAct reports whether the key can act as the account: its own, or a client that it can write.
func (a *caller) canAct(target *testAccount) bool {
	return !a.acting && (a.account == target || target.owner.Type == principal.Client && a.canWrite(target))
}

// canLink reports whether the key can create a link that signs in to the account. An acting session creates links for its own account.
func (a *caller) canLink(target *testAccount) bool {
	return a.canAct(target) || a.acting && a.account == target
}

// canGrant returns the rule for granting these permissions.
func (a *caller) canGrant(more principal.Grants) func(*testAccount) bool {
	return func(target *testAccount) bool { return a.canWrite(target) && a.effective().Holds(more) }
}

// wantBound returns the expected bound of a key that this key creates for an account. If it sets the value of an existing key,
// before is the bound of that key.
func (a *caller) wantBound(target *testAccount, before *principal.Grants) *principal.Grants {
	bound := func(x, y *principal.Grants) *principal.Grants {
		if x == nil || y == nil {
			return map[bool]*principal.Grants{true: y, false: x}[x == nil]
		}
		both := *x & *y
		return &both
	}
	if bound := bound(before, a.bound); a.account == target {
		return bound
	}
	grants := a.effective()
	return bound(bound(before, a.bound), &grants)
}

// attempt is an operation to try, with the rule that decides whether it succeeds.
type attempt struct {
	label        string
	method, path string
	body         any
	isAllowed    func(*testAccount) bool
	isValidated  bool   // a caller that can write gets a 422
	undo         func() // reverts the operation
	check        func(*testkit.Response)
}

// No account extends its own rights. For each key and each account, creating, granting, resetting, linking and editing
// succeeds exactly as the rules say.
func TestEscalation(t *testing.T) {
	t.Parallel()
	p, c, _ := withPanels(t)
	e := &escalation{t: t, p: p, root: c}
	e.makeAccounts()
	tried, done := 0, 0
	for _, a := range e.callers {
		for _, target := range append(e.targets, a.account) {
			for _, try := range e.attempts(a, target) {
				response := a.client.Do(try.method, try.path, try.body)
				tried++
				switch allowed := try.isAllowed(target); {
				case allowed && response.Status == http.StatusOK, allowed && response.Status == http.StatusFound:
					done++
					if try.check != nil {
						try.check(response)
					}
					if try.undo != nil {
						try.undo()
					}
				case !allowed && (response.Status == http.StatusForbidden || response.Status == http.StatusNotFound):
				case !allowed && try.isValidated && a.canWriteFactors(target) && response.Status == http.StatusUnprocessableEntity:
				default:
					t.Errorf(
						"%s, with %s, tries to %s %s, with %s: got %d, want it allowed %t: %s",
						a.name,
						describeGrants(a.effective()),
						try.label,
						target.name,
						describeGrants(target.grants),
						response.Status,
						allowed,
						response.Text,
					)
				}
			}
		}
	}
	if done < 100 || tried < 1000 {
		t.Errorf("got %d allowed of %d attempts, want at least 100 of 1000", done, tried)
	}
}

// escalation holds the accounts and callers of TestEscalation.
type escalation struct {
	t       *testing.T
	p       *product.Product
	root    *testkit.Client
	count   int
	callers []*caller
	targets []*testAccount
}

// grantsOf returns the rights to read and to write these permissions. A permission with an access, such as "users.admins read",
// is only that right.
func grantsOf(leaves ...string) (g principal.Grants) {
	for _, leaf := range leaves {
		if strings.Contains(leaf, " ") {
			g |= principal.ParseGrants([]string{leaf})
		} else {
			g |= principal.ParseGrants([]string{leaf + " read", leaf + " write"})
		}
	}
	return g
}

// newAccount creates an account with these permissions.
func (e *escalation) newAccount(kind principal.OwnerType, name string, grants principal.Grants) *testAccount {
	e.t.Helper()
	target := &testAccount{name: name, owner: principal.Owner{Type: kind}}
	target.create = func() int64 {
		e.t.Helper()
		e.count++
		target.email = path("e%d@example.com", e.count)
		body := map[principal.OwnerType]any{principal.Integration: map[string]any{"name": path("%s %d", name, e.count)},
			principal.Client: order(target.email),
			principal.Admin:  map[string]any{"email": target.email, "password": ""}}[kind]
		return e.root.Do("POST", "/"+string(kind), body).Want(200).ID()
	}
	target.owner.ID = target.create()
	if grants != 0 {
		e.grant(target, grants)
	}
	return target
}

// grant sets the permissions of an account.
func (e *escalation) grant(target *testAccount, grants principal.Grants) {
	e.t.Helper()
	target.grants = grants
	e.root.Do("PATCH", target.owner.URL()+"/permission", principal.SetOf(grants)).Want(200)
	if target.owner.Type == principal.Integration {
		producttest.AwaitConsumers(e.t, e.p) // identity uses its copy of an integration's permissions
	}
}

// createKey lets maker create a key of an account.
func (e *escalation) createKey(maker *testkit.Client, target *testAccount) (int64, *testkit.Client) {
	e.t.Helper()
	key := testkit.Decode[keys.APIKey](
		maker.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": map[string]any{"url": target.owner.URL()}}).Want(200),
	)
	return key.ID, e.root.WithKey(key.Key)
}

// addCaller adds a key of the account, which the first admin creates, to the callers.
func (e *escalation) addCaller(target *testAccount) *caller {
	e.t.Helper()
	all := principal.All
	_, client := e.createKey(e.root, target)
	a := &caller{name: target.name, account: target, bound: &all, client: client}
	e.callers = append(e.callers, a)
	return a
}

// makeAccounts creates the callers and the accounts that they try to change.
func (e *escalation) makeAccounts() {
	t := e.t
	t.Helper()
	for _, admin := range []struct {
		name   string
		grants principal.Grants
	}{
		{"an admin without permissions", 0}, {"an admin of admins", grantsOf("users.admins")},
		{"an admin who reads admins", grantsOf("users.admins read", "users.clients read", "system.integrations read")},
		{"an admin of admins and groups", grantsOf("users.admins", "network.groups")}, {"an admin of clients", grantsOf("users.clients")},
		{"an admin of integrations", grantsOf("system.integrations")},
		{"an admin of almost everything", principal.All &^ grantsOf("pxe.installs write")},
	} {
		e.addCaller(e.newAccount(principal.Admin, admin.name, admin.grants))
	}
	shop := e.addCaller(e.newAccount(principal.Integration, "shop", grantsOf("users.clients")))
	other := e.addCaller(e.newAccount(principal.Integration, "another integration", grantsOf("users.clients", "system.integrations")))
	e.addCaller(e.newAccount(principal.Integration, "staff", grantsOf("users.admins", "network.groups read")))
	ben := e.newAccount(principal.Client, "ben", 0)
	e.addCaller(ben)

	// Bounded keys: their account got all permissions after they were created. A key that they create has the same bound.
	promoted := e.newAccount(principal.Admin, "a promoted admin", 0)
	maker := e.addCaller(e.newAccount(principal.Admin, "an admin who creates keys", grantsOf("users.admins", "users.clients")))
	_, bounded := e.createKey(maker.client, promoted)
	e.grant(promoted, principal.All)
	forgotten()
	bound := grantsOf("users.admins", "users.clients")
	e.callers = append(e.callers, &caller{name: "a promoted admin, by a bounded key", account: promoted, bound: &bound, client: bounded})
	_, derived := e.createKey(bounded, promoted)
	e.callers = append(
		e.callers,
		&caller{name: "a promoted admin, by a key of a bounded key", account: promoted, bound: &bound, client: derived},
	)
	_, signedIn := signIn(t, e.root, loginOf("admin", e.setPassword(promoted), password))
	e.callers = append(e.callers, &caller{name: "a promoted admin, by a session", account: promoted, client: signedIn})

	// Acting sessions: as clients, and as the own account.
	for _, acting := range []struct {
		by *caller
		as *testAccount
	}{{maker, ben}, {shop, e.newClientOf(shop, "the shop's customer")}, {e.callers[len(e.callers)-1], promoted}} {
		link := testkit.Decode[session.SSOLink](acting.by.client.Do("GET", "/auth/sso?owner="+acting.as.owner.URL(), nil).Want(200))
		key := testkit.Decode[keys.APIKey](e.root.WithKey("").Do("POST", "/auth/sso", exchangeOf(codeOf(t, link.URL).Get("key"))).Want(200))
		e.callers = append(
			e.callers,
			&caller{
				name:    acting.as.name + ", by a session of " + acting.by.name,
				account: acting.as,
				bound:   acting.by.bound,
				acting:  true,
				client:  e.root.WithKey(key.Key),
			},
		)
	}
	nested := *e.callers[len(e.callers)-2]
	link := testkit.Decode[session.SSOLink](nested.client.Do("GET", "/auth/sso", nil).Want(200))
	key := testkit.Decode[keys.APIKey](e.root.WithKey("").Do("POST", "/auth/sso", exchangeOf(codeOf(t, link.URL).Get("key"))).Want(200))
	nested.name, nested.client = "a session of a link of "+nested.name, e.root.WithKey(key.Key)
	e.callers = append(e.callers, &nested)

	for _, target := range []*testAccount{
		e.newAccount(principal.Admin, "another admin", 0), e.newAccount(principal.Admin, "an admin of groups", grantsOf("network.groups")),
		e.newAccount(principal.Admin, "an admin of everything", principal.All),
		e.newAccount(principal.Integration, "an integration without permissions", 0),
		e.newAccount(principal.Integration, "an integration of groups", grantsOf("network.groups")),
		e.newAccount(principal.Client, "a client without an integration", 0), e.newClientOf(shop, "the shop's client"),
		e.newClientOf(other, "the other integration's client"),
	} {
		e.addItems(target)
		e.targets = append(e.targets, target)
	}
}

// addItems gives an account the keys and second factors that attempts change.
func (e *escalation) addItems(target *testAccount) {
	e.t.Helper()
	target.key, _ = e.createKey(e.root, target)
	target.movedKey, _ = e.createKey(e.root, target)
	if target.owner.Type == principal.Integration {
		return
	}
	e.addFactors(target)
}

// addFactors gives an account an address, a verified security key and one that is to be registered.
func (e *escalation) addFactors(target *testAccount) {
	e.t.Helper()
	_, own := e.createKey(e.root, target)
	created := testkit.Decode[mfa.Authenticator](own.Do("POST", "/auth/verify/auth", `{"method": 3, "name": "pending"}`).Want(200))
	target.pending, target.options = created.ID, secondfactor.ParseOptions[secondfactor.CreationOptions](e.t, []byte(*created.Value))
	err := e.p.Databases[identity.Name].QueryRow(e.t.Context(), "INSERT INTO authenticator (owner_type, owner_id, method_id, value, "+
		"verified) VALUES ($1, $2, 2, 'tried@example.com', true) RETURNING id", target.owner.Type, target.owner.ID).
		Scan(&target.factor)
	if err != nil {
		e.t.Fatal(err)
	}
	e.addPasskey(target)
}

// addPasskey gives an account a verified security key.
func (e *escalation) addPasskey(target *testAccount) {
	e.t.Helper()
	device := secondfactor.NewDevice(e.t)
	err := e.p.Databases[identity.Name].QueryRow(e.t.Context(), `
		INSERT INTO authenticator (owner_type, owner_id, method_id, verified, domain, handle, credential, public_key) VALUES ($1, $2, 3, true, $3, 'h', $4, $5) RETURNING id`,
		target.owner.Type, target.owner.ID, secondfactor.Settings.PasskeyDomain, device.ID, device.PublicKey()).Scan(&target.passkey)
	if err != nil {
		e.t.Fatal(err)
	}
}

// replace creates another account in place of a deleted one.
func (e *escalation) replace(target *testAccount) {
	e.t.Helper()
	target.owner.ID = target.create()
	if target.grants != 0 {
		e.grant(target, target.grants)
	}
	e.addItems(target)
}

// setPassword gives an admin a password, and returns its address.
func (e *escalation) setPassword(target *testAccount) (email string) {
	e.t.Helper()
	admin := testkit.Decode[admin.Admin](e.root.Do("PATCH", target.owner.URL(), map[string]any{"password": password}).Want(200))
	return admin.Email
}

// newClientOf creates a client of an integration.
func (e *escalation) newClientOf(a *caller, name string) *testAccount {
	e.t.Helper()
	target := &testAccount{name: name, owner: principal.Owner{Type: principal.Client}, integration: a.account.owner.ID}
	target.create = func() int64 {
		e.t.Helper()
		e.count++
		target.email = path("e%d@example.com", e.count)
		return a.client.Do("POST", "/client", order(target.email)).Want(200).ID()
	}
	target.owner.ID = target.create()
	return target
}

// attempts returns the operations that a key tries on an account.
func (e *escalation) attempts(a *caller, target *testAccount) (all []attempt) {
	e.count++
	root, url, db := e.root, target.owner.URL(), e.p.Databases[identity.Name]
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
			e.t.Errorf("%s, with %s, %s %s: got the bound %v, want %v", a.name, describeGrants(a.effective()), label, target.name, is, want)
		}
	}
	all = append(
		all,
		attempt{
			label:     "create a key for",
			method:    "POST",
			path:      "/auth/key",
			body:      map[string]any{"name": fresh, "owner": map[string]any{"url": url}},
			isAllowed: a.canWriteKeys,
			check: func(response *testkit.Response) {
				compare("creates a key for", keyBound(testkit.Decode[keys.APIKey](response)), a.wantBound(target, nil))
			},
		},
		attempt{
			label:     "act for",
			method:    "POST",
			path:      "/auth/key",
			body:      map[string]any{"owner": map[string]any{"url": url}},
			isAllowed: a.canAct,
		},
	)
	if a.account == target {
		all = append(
			all,
			attempt{
				label:     "add a security key to",
				method:    "POST",
				path:      "/auth/verify/auth",
				body:      `{"method": 3}`,
				isAllowed: a.canRegister,
				check: func(response *testkit.Response) {
					root.Do("DELETE", path("/auth/verify/auth/%d", response.ID()), nil).Want(200)
				},
			},
		)
	}
	if a.account != target || target.owner.Type != principal.Integration { // an integration has no panel
		all = append(all, attempt{label: "create a link for", method: "GET", path: "/auth/sso?owner=" + url, isAllowed: a.canLink})
	}
	if target.owner.Type != principal.Client {
		for _, leaf := range []string{"network.groups read", "users.admins write", "pxe.installs write"} {
			more := principal.ParseGrants([]string{leaf})
			if target.grants.Holds(more) || a.account == target && a.canWrite(target) && a.effective().Holds(more) {
				continue
			}
			all = append(
				all,
				attempt{
					label:     "give " + leaf + " to",
					method:    "PATCH",
					path:      url + "/permission",
					body:      principal.SetOf(target.grants | more),
					isAllowed: a.canGrant(more),
					undo:      func() { e.grant(target, target.grants) },
				},
			)
		}
	}
	if a.account == target { // other changes of the own account need its password, or delete it
		return all
	}
	canEnd := a.canWrite                       // for disabling and deleting
	if target.owner.Type == principal.Client { // an acting admin may do it, too
		canEnd = a.governs
	}
	if a.spare == 0 {
		a.spare, _ = e.createKey(root, a.account)
	}
	renew := func(key *int64) {
		root.Do("DELETE", path("/auth/key/%d", *key), nil).Want(200)
		*key, _ = e.createKey(root, target)
	}
	all = append(
		all,
		attempt{
			label:     "edit a key of",
			method:    "PATCH",
			path:      path("/auth/key/%d", target.key),
			body:      map[string]any{"name": fresh},
			isAllowed: a.canWriteKeys,
		},
		attempt{
			label:     "set the value of a key of",
			method:    "PATCH",
			path:      path("/auth/key/%d", target.key),
			body:      map[string]any{"name": fresh, "key": fresh + strings.Repeat("x", 40)},
			isAllowed: a.canWriteKeys,
			check: func(response *testkit.Response) {
				compare("sets the value of a key of", keyBound(testkit.Decode[keys.APIKey](response)), a.wantBound(target, ptr(principal.All)))
				renew(&target.key)
			},
		},
		attempt{
			label:     "move to itself a key of",
			method:    "PATCH",
			path:      path("/auth/key/%d", target.movedKey),
			body:      map[string]any{"name": fresh, "owner": map[string]any{"url": a.account.owner.URL()}},
			isAllowed: a.canWriteKeys,
			check: func(response *testkit.Response) {
				compare("moves to itself a key of", keyBound(testkit.Decode[keys.APIKey](response)), a.wantBound(a.account, ptr(principal.All)))
				renew(&target.movedKey)
			},
		},
		attempt{
			label:     "move its key to",
			method:    "PATCH",
			path:      path("/auth/key/%d", a.spare),
			body:      map[string]any{"name": fresh, "owner": map[string]any{"url": url}},
			isAllowed: a.canWriteKeys,
			check: func(response *testkit.Response) {
				compare("moves its key to", keyBound(testkit.Decode[keys.APIKey](response)), a.wantBound(target, ptr(principal.All)))
				root.Do("DELETE", path("/auth/key/%d", a.spare), nil).Want(200)
				a.spare = 0
			},
		},
		attempt{
			label:     "disable",
			method:    "PATCH",
			path:      url,
			body:      map[string]any{"name": target.name, "disabled": true},
			isAllowed: canEnd,
			undo:      func() { a.client.Do("PATCH", url, map[string]any{"name": target.name, "disabled": false}).Want(200) },
		},
	)
	remove := attempt{label: "delete", method: "DELETE", path: url, isAllowed: canEnd, undo: func() { e.replace(target) }}
	if target.owner.Type == principal.Integration {
		return append(
			all,
			attempt{
				label:     "rename",
				method:    "PATCH",
				path:      url,
				body:      map[string]any{"name": fresh},
				isAllowed: a.canWrite,
				undo:      func() { root.Do("PATCH", url, map[string]any{"name": target.name}).Want(200) },
			},
			remove,
		)
	}
	return append(
		all,
		attempt{
			label:     "have a link mailed to",
			method:    "POST",
			path:      "/auth/password-reset",
			body:      map[string]any{"type": target.owner.Type, "email": target.email},
			isAllowed: func(*testAccount) bool { return true },
			check: func(response *testkit.Response) {
				if shown := testkit.Decode[login.PasswordReset](response).User.ID != nil; shown != a.canRead(target) {
					e.t.Errorf(
						"%s, with %s, mails a link to %s: got the user shown %t, want %t",
						a.name,
						describeGrants(a.effective()),
						target.name,
						shown,
						!shown,
					)
				}
			},
		},
		attempt{
			label:     "change the address of",
			method:    "PATCH",
			path:      url,
			body:      map[string]any{"email": fresh + "@example.com"},
			isAllowed: a.canWrite,
			undo:      func() { target.email = fresh + "@example.com" },
		},
		attempt{
			label:     "change the password of",
			method:    "PATCH",
			path:      url,
			body:      map[string]any{"password": fresh + " walks home in the rain"},
			isAllowed: a.canWrite,
		},
		attempt{
			label:     "remove an authenticator of",
			method:    "PATCH",
			path:      path("/auth/verify/auth/%d", target.factor),
			body:      map[string]any{"verified": false},
			isAllowed: a.canWriteFactors,
			undo: func() {
				testkit.Execute(e.t, db, "UPDATE authenticator SET verified = true WHERE id = $1", target.factor)
			},
		},
		attempt{
			label:     "confirm a code of",
			method:    "POST",
			path:      path("/auth/verify/auth/%d/code", target.factor),
			body:      "{}",
			isAllowed: isNever,
		},
		attempt{
			label:     "rename a security key of",
			method:    "PATCH",
			path:      path("/auth/verify/auth/%d", target.passkey),
			body:      map[string]any{"name": fresh},
			isAllowed: a.canWriteFactors,
		},
		attempt{
			label:     "ask for the challenge of a security key of",
			method:    "POST",
			path:      path("/auth/verify/auth/%d/code", target.passkey),
			body:      "{}",
			isAllowed: isNever,
		},
		attempt{
			label:       "register its own security key for",
			method:      "PATCH",
			path:        path("/auth/verify/auth/%d", target.pending),
			body:        secondfactor.VerifyBody(secondfactor.NewDevice(e.t).Create(target.options)),
			isAllowed:   isNever,
			isValidated: true,
		},
		attempt{
			label:     "ask for a new challenge for the pending security key of",
			method:    "POST",
			path:      path("/auth/verify/auth/%d/code", target.pending),
			body:      "{}",
			isAllowed: isNever,
		},
		attempt{
			label:     "remove a security key of",
			method:    "DELETE",
			path:      path("/auth/verify/auth/%d", target.passkey),
			isAllowed: a.canWriteFactors,
			undo:      func() { e.addPasskey(target) },
		},
		attempt{
			label:     "remove all authenticators of",
			method:    "DELETE",
			path:      url + "/verify",
			isAllowed: a.canWrite,
			undo:      func() { e.addFactors(target) },
		},
		remove,
	)
}

// isNever is the rule of an attempt that no key may make.
func isNever(*testAccount) bool { return false }

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
