package pxe_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
)

// owners doubles the services that have IP entities and clients. It holds their responses by path.
type owners map[string]string

func (o owners) Ask(_ context.Context, _, path string, into any) error {
	return json.Unmarshal([]byte(cmp.Or(o[path], "null")), into)
}

func (owners) Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, timeout)
}

// newInstalls serves the pxe service with IP entities, a client, a DHCP server of IP group 1 and a profile.
func newInstalls(t *testing.T) (c, client *testkit.Client, db *pg.DB, profile int64) {
	t.Helper()
	db = testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) SELECT 'entity', n, '192.0.2.' || n, 1 FROM generate_series(1, 40) n")
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) VALUES ('client', 5, 'Ben Miller', 1), "+
		"('client', 6, 'Sub', 1), ('client', 7, 'Foreign', 1), ('group', 1, 'Berlin', 1)")
	box, err := pxe.Definition.NewBox(seal.NewMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	known := owners{
		"/internal/machine-address/30": `{"v4": {"first": "192.0.2.32", "bits": 29, "mask": 29, "gateway": "192.0.2.33"}, "v6": {"first": "2001:db8:1::", "bits": 64, "mask": 64, "gateway": "2001:db8:1::1"}, "group": {"id": 1, "name": "Berlin"}}`,
		"/internal/machine-address/31": `{"v4": {"first": "192.0.2.31"}, "group": {"id": 1, "name": "Berlin"}}`,
		"/internal/machine-address/32": `{"v6": {"first": "2001:db8::9"}, "group": {"id": 1, "name": "Berlin", "dhcp_server": 1}}`,
		"/internal/email/5":            `"ben@example.com"`,
		"/internal/email/6":            `"sub@example.com"`,
		"/internal/email/7":            `"foreign@example.com"`,

		"/internal/reach?above=5&client=6": `{"whole": true, "link": 1}`,
		"/internal/reach?above=5&client=7": `{}`,
	}
	for n := range 10 {
		known[fmt.Sprintf("/internal/machine-address/%d", n)] = fmt.Sprintf(
			`{"v4": {"first": "192.0.2.%d", "mask": 24, "gateway": "192.0.2.254"}, "vlan": 120, "group": {"id": 1, "name": "Berlin", "dhcp_server": 1}}`,
			n,
		)
	}
	routes := pxe.New(service.Deps{DB: db, Box: box, Peers: known, Settings: service.Settings{Store: t.TempDir()}}).Routes()
	handler := rest.NewHandler(pxe.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), routes)
	c = testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(principal.All)))
	createItem(t, c, "/pxe/dhcp", `{"name": "Berlin", "host": "dhcp.example.net", "api_key": "x"}`)
	boot := createItem(t, c, "/pxe/boot-script", `{"name": "boot", "body": "#!ipxe\nkernel {{.URL.Files}}/linux {{.URL.Preseed}}\n"}`)
	preseed := createItem(t, c, "/pxe/preseed", `{"name": "seed", "body": "{{crypt .Password}}\n{{netmask (value \"net\" .Variables)}}"}`)
	profile = createItem(t, c, "/pxe/profile", fmt.Sprintf(`{"name": "mine", "boot_script": %d, "preseed": %d}`, boot, preseed))
	client = testkit.NewClient(t, testkit.As(handler, &principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: 5}, KeyID: 1}))
	return c, client, db, profile
}

// forced passes over that the tests' agents never answer, and that nobody can sign in.
const forced = "?force=agent_unreachable,no_login"

const netVariable = `"variables": {"net": "192.0.2.0/24"}`

// An install copies what it needs of other items when it is created, and keeps them from being deleted until it ends.
func TestInstall(t *testing.T) {
	t.Parallel()
	c, _, db, profile := newInstalls(t)
	create := func(host, more string) *testkit.Response {
		return c.Do("POST", "/pxe/install"+forced, fmt.Sprintf(`{"profile": %d, "host": %s, %s%s}`, profile, host, netVariable, more))
	}
	whole := create(
		`{"macs": ["52-54-00-12-34-5A", "5254.0012.345b", "52:54:00:12:34:5a"], "hostname": "web1.example.com", "entity": 7, "disk": "/dev/sda", "firmware": "uefi", "nameservers": "192.0.2.53  2001:DB8::53"}`,
		`, "password": "a long walk", "ssh_keys": "`+hostKey+` ben\n\n", "client": {"id": 5}`,
	).Want(200)
	want := fmt.Sprintf(
		`"name":"web1.example.com","status":"waiting","reason":"The agent of DHCP server 1 (Berlin) has not answered yet.","progress":0,"attempt":1,"profile":{"id":%d,"name":"mine"},"host":{"macs":["52:54:00:12:34:5a","52:54:00:12:34:5b"],"hostname":"web1.example.com","entity":{"id":7,"name":"192.0.2.7"},"ipv4":{"address":"192.0.2.7/24","gateway":"192.0.2.254"},"vlan":120,"nameservers":"192.0.2.53 2001:db8::53","disk":"/dev/sda","firmware":"uefi"},"ssh_keys":"%s ben","client":{"id":5,"name":"Ben Miller"},"dhcp_server":{"id":1,"name":"Berlin"}`,
		profile,
		hostKey,
	)
	if !strings.Contains(strings.ReplaceAll(whole.Text, `"reason":"The agent of DHCP server 1 (Berlin) cannot be reached`, ""), want) {
		t.Errorf("got %s, want %s", whole.Text, want)
	}
	if strings.Contains(whole.Text, "a long walk") ||
		!strings.HasSuffix(whole.Text, `"variables":{"net":"192.0.2.0/24"},"forced":["agent_unreachable"],"requests":[],"reports":[]}`+"\n") {
		t.Errorf("got %s, want it without the password, with the variables, and neither requests nor reports", whole.Text)
	}
	for host, want := range map[string]string{
		`{"macs": "52:54:00:00:00:30", "entity": 30, "hostname": ""}`: `host-192-0-2-34 192.0.2.34/29 192.0.2.33 2001:db8:1::2/64 2001:db8:1::1`,
		`{"macs": ["52:54:00:00:00:32"], "entity": {"id": 32}}`:       `host-2001-db8--9 - - 2001:db8::9/64 -`,
	} {
		i := testkit.Decode[install.Install](create(host, `, "dhcp_server": 1`).Want(200))
		got := i.Host.Hostname
		for _, of := range []*install.InstallAddress{i.Host.IPv4, i.Host.IPv6} {
			switch {
			case of == nil:
				got += " - -"
			case of.Gateway == nil:
				got += " " + of.Address + " -"
			default:
				got += " " + of.Address + " " + *of.Gateway
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
	}
	for query, n := range map[string]int{
		"": 3, "?mac=52-54-00-12-34-5B": 1, "?mac=52:54:00:00:00:99": 0, "?status=waiting": 3, "?status=failed": 0,
		fmt.Sprintf("?profile=%d", profile): 3, "?client=5": 1, "?q=web1": 1, "?q=12:34:5a": 1,
	} {
		if all := testkit.Decode[[]map[string]any](
			c.Do("GET", "/pxe/install"+query, nil).Want(200),
		); len(all) != n ||
			n > 0 && (all[0]["requests"] != nil || all[0]["variables"] != nil) {
			t.Errorf("%s: got %v, want %d installs without requests and variables", query, all, n)
		}
	}
	c.Do("GET", "/pxe/install?mac=x", nil).Want(400)

	c.Do("POST", "/pxe/install", `{"variables": {"a": []}}`).
		WantErrors("/host/entity", "required", "/host/macs", "required", "/profile", "required", "/variables", "type")
	create(
		`{"macs": ["01:00:5e:00:00:01", "x"], "entity": 99, "hostname": "a b", "disk": "sda", "firmware": "none", "nameservers": "x"}`,
		`, "client": 99, "ssh_keys": "ssh-ed25519 x"`,
	).
		WantErrors(
			"/client", "not_found", "/host/disk", "invalid", "/host/entity", "not_found", "/host/firmware", "invalid", "/host/hostname", "invalid",
			"/host/macs", "invalid", "/host/nameservers", "invalid", "/ssh_keys", "invalid",
		)
	create(`{"macs": ["52:54:00:00:00:31"], "entity": 31}`, ``).WantErrors("/host/entity", "invalid")
	create(`{"macs": ["52:54:00:00:00:31"], "entity": 30}`, ``).WantErrors("/dhcp_server", "required", "/host/entity", "taken")
	create(`{"macs": ["52:54:00:00:00:31"], "entity": 1}`, `, "dhcp_server": 9`).WantErrors("/dhcp_server", "not_found")
	conflict := create(`{"macs": ["52:54:00:00:00:31", "52:54:00:12:34:5b"], "entity": 1}`, ``)
	conflict.WantErrors("/host/macs", "taken")
	if !strings.Contains(conflict.Text, fmt.Sprintf(`52:54:00:12:34:5b, which install %d (web1.example.com) is installing`, whole.ID())) {
		t.Errorf("got %s, want the install that has 52:54:00:12:34:5b", conflict.Text)
	}
	refused := c.Do("POST", "/pxe/install"+forced+",variable_missing", fmt.Sprintf(`{"profile": %d, "host": {"macs": ["52:54:00:00:00:31"], "entity": 1}}`, profile))
	refused.WantErrors("/profile", "template")
	if !strings.Contains(refused.Text, `(seed): line 2, column 3: netmask: \"\" is not a prefix`) {
		t.Errorf("got %s, want the error of netmask in line 2, column 3", refused.Text)
	}

	// The items that it uses cannot be deleted until it has ended.
	for _, at := range []string{"/pxe/dhcp/1", fmt.Sprintf("/pxe/profile/%d", profile)} {
		if text := c.Do("DELETE", at, nil).Want(409).Text; !strings.Contains(text, "that have not ended") {
			t.Errorf("%s: got %s, want the installs that have not ended", at, text)
		}
	}
	at := fmt.Sprintf("/pxe/install/%d", whole.ID())
	c.Do("DELETE", at, nil).
		WantDetail(problem.Conflict, fmt.Sprintf("Install %d has not ended: it is waiting. Cancel it first: POST %s/cancel.", whole.ID(), at))
	c.Do("POST", at+"/retry"+forced, `{}`).
		WantDetail(problem.Conflict, fmt.Sprintf("Install %d cannot be retried because it has not ended: it is waiting.", whole.ID()))
	secrets := func() (n int) {
		if err := db.QueryRow(t.Context(), "SELECT count(password) + count(token) FROM install WHERE id = $1", whole.ID()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := secrets(); n != 2 {
		t.Errorf("got %d secrets, want 2", n)
	}
	if i := testkit.Decode[install.Install](
		c.Do("POST", at+"/cancel", nil).Want(200),
	); i.Status != "cancelled" || i.FinishedAt == nil ||
		secrets() != 0 {
		t.Errorf("got %+v with %d secrets, want it cancelled and finished without secrets", i, secrets())
	}
	c.Do("POST", at+"/cancel", nil).WantDetail(problem.Conflict, fmt.Sprintf("Install %d has already ended: it is cancelled.", whole.ID()))
	other := create(`{"macs": ["52:54:00:12:34:5b"], "entity": 1, "hostname": "other"}`, ``).Want(200).ID()
	c.Do("POST", at+"/retry"+forced, `{}`).
		WantDetail(problem.Conflict, fmt.Sprintf("Install %d cannot be retried: host.macs contains 52:54:00:12:34:5b, which "+
			"install %d (other) is installing.", whole.ID(), other))
	c.Do("POST", fmt.Sprintf("/pxe/install/%d/cancel", other), nil).Want(200)
	if i := testkit.Decode[install.Install](
		c.Do("POST", at+"/retry"+forced, `{"password": "another one"}`).Want(200),
	); i.Status != "waiting" || i.Attempt != 2 || i.FinishedAt != nil ||
		secrets() != 2 {
		t.Errorf("got %+v with %d secrets, want it waiting in attempt 2 with 2 secrets", i, secrets())
	}
	c.Do("POST", at+"/cancel", nil).Want(200)
	c.Do("DELETE", fmt.Sprintf("%s,%d", at, other), nil).Want(200)
	c.Do("GET", at, nil).Want(404)
}

// A client sees its own installs, without variables and requests.
func TestInstallsOfAClient(t *testing.T) {
	t.Parallel()
	c, client, _, profile := newInstalls(t)
	create := func(mac int, more string) int64 {
		return createItem(
			t,
			c,
			"/pxe/install"+forced,
			fmt.Sprintf(`{"profile": %d, "host": {"macs": ["52:54:00:00:00:%02d"], "entity": %d}, %s%s}`, profile, mac, mac, netVariable, more),
		)
	}
	own, others := create(1, `, "client": 5`), create(2, "")
	if all := testkit.Decode[[]install.Install](client.Do("GET", "/pxe/install", nil).Want(200)); len(all) != 1 || all[0].ID != own {
		t.Errorf("got the installs %+v, want only %d", all, own)
	}
	if text := client.Do("GET", fmt.Sprintf("/pxe/install/%d", own), nil).
		Want(200).
		Text; strings.Contains(text, "variables") || strings.Contains(text, "requests") ||
		!strings.Contains(text, "host-192-0-2-1") {
		t.Errorf("got %s, want host-192-0-2-1 without variables and requests", text)
	}
	client.Do("GET", fmt.Sprintf("/pxe/install/%d", others), nil).Want(404)
	for _, change := range []string{
		"POST /pxe/install", fmt.Sprintf("DELETE /pxe/install/%d", own), fmt.Sprintf("POST /pxe/install/%d/cancel", own),
		fmt.Sprintf("POST /pxe/install/%d/retry", own), "GET /pxe/discovery",
	} {
		method, path, _ := strings.Cut(change, " ")
		client.Do(method, path, `{}`).Want(403)
	}
}

// A reseller sees the installs of a sub client that it reaches whole, as it sees its own.
func TestInstallsOfASubClient(t *testing.T) {
	t.Parallel()
	c, reseller, _, profile := newInstalls(t)
	ids := map[int]int64{}
	for _, client := range []int{5, 6, 7} {
		body := fmt.Sprintf(`{"profile": %d, "host": {"macs": ["52:54:00:00:00:%02d"], "entity": %d}, %s, "client": %d}`, profile, client, client, netVariable, client)
		ids[client] = createItem(t, c, "/pxe/install"+forced, body)
	}
	for query, want := range map[string][]int64{
		"": {ids[5]}, "?client=5": {ids[5]}, "?client=6": {ids[6]}, "?client=7": {}, "?client=6&status=waiting": {ids[6]}, "?client=7&q=host": {},
	} {
		found := []int64{}
		for _, one := range testkit.Decode[[]install.Install](reseller.Do("GET", "/pxe/install"+query, nil).Want(200)) {
			found = append(found, one.ID)
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: got the installs %v, want %v", query, found, want)
		}
	}
	text := reseller.Do("GET", fmt.Sprintf("/pxe/install/%d", ids[6]), nil).Want(200).Text
	if strings.Contains(text, "variables") || strings.Contains(text, "requests") || !strings.Contains(text, "host-192-0-2-6") {
		t.Errorf("got %s, want host-192-0-2-6 without variables and requests", text)
	}
	reseller.Do("GET", fmt.Sprintf("/pxe/install/%d", ids[7]), nil).Want(404)
	reseller.Do("POST", fmt.Sprintf("/pxe/install/%d/cancel", ids[6]), nil).Want(403)
}

// When many callers install the same machine at once, one succeeds.
func TestInstallsOfOneMachine(t *testing.T) {
	t.Parallel()
	c, _, db, profile := newInstalls(t)
	var callers sync.WaitGroup
	responses := make([]*testkit.Response, 32)
	for n := range responses {
		macs := `"52:54:00:00:00:01", "52:54:00:00:00:02"`
		if n%2 == 1 {
			macs = fmt.Sprintf(`"52:54:00:00:00:02", "52:54:00:00:01:%02d"`, n)
		}
		callers.Go(func() {
			responses[n] = c.Do(
				"POST",
				"/pxe/install"+forced,
				fmt.Sprintf(`{"profile": %d, "host": {"macs": [%s], "entity": %d}, %s}`, profile, macs, n%9+1, netVariable),
			)
		})
	}
	callers.Wait()
	done := 0
	for _, a := range responses {
		switch {
		case a.Status == http.StatusOK:
			done++
		case a.Status != http.StatusUnprocessableEntity || !strings.Contains(a.Text, `"code":"taken"`):
			t.Errorf("got %d: %s, want 200 or 422 with the code taken", a.Status, a.Text)
		}
	}
	var rows int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM install").Scan(&rows); err != nil || done != 1 || rows != 1 {
		t.Errorf("got %d made and %d stored (%v), want 1 and 1", done, rows, err)
	}
}
