package product_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/session"
)

// policyRows returns the cells of the policy's table, by operation: no key, client, reseller, integration, admin, permission.
func policyRows() map[string][]string {
	rows := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\|(.*)\\|$").FindAllStringSubmatch(product.Policy(), -1) {
		for cell := range strings.SplitSeq(row[2], "|") {
			rows[row[1]] = append(rows[row[1]], strings.TrimSpace(cell))
		}
	}
	return rows
}

// bodyOf has bodies of clients for operations whose example is an operator's.
var bodyOf = map[string]string{
	"updateIPEntity": `{"nickname": "mine"}`,
	"updateClient":   `{"first": "Anna"}`,
	"createClient":   `{"email": "policy-new@example.com", "first": "Ann", "last": "Bo"}`,
	"createAPIKey":   `{"name": "mine"}`,
}

// TestPolicyByTrial sends every operation as a client, as a reseller about its sub client, and as integrations. Each is refused where
// the policy has no mark, and nowhere else. The API document of a key has the same operations.
func TestPolicyByTrial(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	c := w.c
	rows := policyRows()
	above := c.Do("POST", "/client", order("policy-reseller@example.com")).Want(200).ID()
	reseller := c.WithKey(lastingKeyOf(t, c, above))
	below := reseller.Do("POST", "/client", order("policy-client@example.com")).Want(200).ID()
	_, powerless := newIntegration(t, c, "Powerless", `{}`)
	_, limited := newIntegration(t, c, "Limited", `{"network": {"entities": {"read": true}}}`)

	send := func(by *testkit.Client, o rest.Operation, client int64) bool {
		var body any = o.Example
		if own := bodyOf[o.Name]; own != "" {
			body = own
		}
		at := strings.NewReplacer("{client_id}", path("%d", client), "{setting_group_id}", "1").Replace(o.Path) // every key reads group 1
		status := by.Do(o.Method, w.withID(at, "999999999"), body).Status
		return status != http.StatusForbidden && status != http.StatusUnauthorized
	}
	documented := func(by *testkit.Client) map[string]bool {
		t.Helper()
		text := by.Do("GET", "/-/openapi.json", nil).Want(200).Text
		document, err := openapi3.NewLoader().LoadFromData([]byte(text))
		if err != nil {
			t.Fatalf("got a document that cannot be loaded: %v", err)
		}
		found := map[string]bool{}
		for at, item := range document.Paths.Map() {
			for method := range item.Operations() {
				found[method+" "+at] = true
			}
		}
		return found
	}
	for _, caller := range []struct {
		label  string
		by     *testkit.Client
		client int64 // in paths
		column int
	}{
		{"a client", c.WithKey(lastingKeyOf(t, c, below)), below, 1},
		{"a reseller", reseller, below, 2},
		{"an integration without permissions", powerless, below, 3},
		{"an integration that reads IP entities", limited, below, 3},
	} {
		usable := documented(caller.by)
		for _, o := range w.operations {
			name := o.Method + " " + o.Path
			row := rows[name]
			if len(row) != 6 || strings.Join(row[:5], "") == "" {
				t.Fatalf("%s: got the cells %q, want six, and one caller that may use it", name, row)
			}
			may := row[caller.column] != "" && row[caller.column] != "permission" ||
				strings.Contains(row[5], "network.entities read") && caller.by == limited
			isListed := may || row[0] != "" || caller.column == 1 && row[2] != "" // each client can become a reseller
			if usable[name] != isListed {
				t.Errorf("%s in the document of %s: got %t, want %t", name, caller.label, usable[name], isListed)
			}
			if row[0] != "" || slices.Contains([]string{"deleteCurrentAPIKey", "endOtherSessions"}, o.Name) {
				continue // they need no key, or end the caller's
			}
			if row[caller.column] == "own, or permission" { // the paths name another one
				may = false
			}
			client := caller.client
			if caller.column == 2 && !guard.IsForResellers(o.Guard) {
				client = above
			}
			if got := send(caller.by, o, client); got != may {
				t.Errorf("%s by %s: got admitted %t, want %t", name, caller.label, got, may)
			}
		}
	}
	link := testkit.Decode[session.SSOLink](c.Do("GET", "/auth/sso", nil).Want(200))
	for _, acting := range []struct {
		of     string
		begun  *testkit.Response
		column int
	}{
		{"a client", reseller.Do("POST", "/auth/key", path(`{"owner": {"url": "/client/%d"}}`, below)), 1},
		{"an admin", c.WithKey("").Do("POST", "/auth/sso", exchangeOf(codeOf(t, link.URL).Get("key"))), 4},
	} {
		by := c.WithKey(testkit.Decode[struct{ Key string }](acting.begun.Want(200)).Key)
		usable := documented(by)
		for _, o := range w.operations {
			name := o.Method + " " + o.Path
			if row := rows[name]; row[0] != "" || row[acting.column] == "" ||
				slices.Contains([]string{"deleteCurrentAPIKey", "createAPIKey"}, o.Name) {
				continue // it ends the session, or renews it
			}
			if got := send(by, o, below); got != usable[name] {
				t.Errorf("%s by an acting session of %s: got admitted %t, want %t as in its document", name, acting.of, got, usable[name])
			}
		}
	}
	forClients := 0
	for _, row := range rows {
		if row[4] == "" {
			forClients++
		}
	}
	if got, known := len(documented(c)), len(documented(c.WithKey(""))); known != len(rows) || got != len(rows)-forClients {
		t.Errorf("got %d operations for an admin and %d without a key, want %d and %d", got, known, len(rows)-forClients, len(rows))
	}
	if text := reseller.Do("GET", "/-/openapi.json", nil).Text; strings.Contains(text, `"PortSpeed"`) || !strings.Contains(text, `"IPEntity"`) {
		t.Error("got a document for a client with the schema of port speeds or without that of IP entities, want those that it needs")
	}
}
