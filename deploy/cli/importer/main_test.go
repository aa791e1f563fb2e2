package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/client"
)

const testKey = "ip_secret"

// faultyAPI is an API that stores everything and checks nothing. It simulates errors of the protocol. TestImportIntoTheProduct
// shows what the real API accepts.
type faultyAPI struct {
	mu        sync.Mutex
	groups    []client.Group
	entities  []client.Entity
	responses map[string]any // by Idempotency-Key
	requests  []string
	fault     func(method, path, body string) fault
}

// fault replaces a response. The zero value is no fault.
type fault struct {
	status  int
	body    string
	cut     bool // close the connection after the change, without a response
	instead func()
}

func (f *faultyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	body.ReadFrom(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path+" "+body.String())
	if r.Header.Get("Authorization") != "Bearer "+testKey {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var test fault
	if f.fault != nil {
		test = f.fault(r.Method, r.URL.Path, body.String())
	}
	if test.instead != nil {
		test.instead()
	}
	if test.status != 0 {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(test.status)
		w.Write([]byte(test.body))
		return
	}
	respond := f.respond(r, body.Bytes())
	if test.cut {
		panic(http.ErrAbortHandler)
	}
	json.NewEncoder(w).Encode(respond)
}

func (f *faultyAPI) respond(r *http.Request, body []byte) any {
	switch r.Method + " " + r.URL.Path {
	case "GET /group":
		return append([]client.Group{}, f.groups...)
	case "GET /entity":
		return append([]client.Entity{}, f.entities...)
	}
	key := r.Header.Get("Idempotency-Key")
	if earlier, ok := f.responses[key]; ok {
		return earlier
	}
	if f.responses == nil {
		f.responses = map[string]any{}
	}
	f.responses[key] = f.make(r.URL.Path, body)
	return f.responses[key]
}

func (f *faultyAPI) make(path string, body []byte) any {
	if path == "/group" {
		var b client.GroupCreate
		json.Unmarshal(body, &b)
		g := client.Group{ID: int64(len(f.groups) + 1), Name: b.Name}
		f.groups = append(f.groups, g)
		return g
	}
	if id, ok := strings.CutPrefix(path, "/entity/"); ok {
		n, _ := strconv.Atoi(id)
		var b struct {
			Status string
			Note   string
		}
		json.Unmarshal(body, &b)
		f.entities[n-1].Status, f.entities[n-1].Note = b.Status, b.Note
		return f.entities[n-1]
	}
	rows, _ := csv.NewReader(bytes.NewReader(body)).ReadAll()
	for _, row := range rows[1:] {
		f.entities = append(f.entities, f.entity(rows[0], row))
	}
	return client.Bulk{Count: int64(len(rows) - 1)}
}

// entity returns the entity of a row.
func (f *faultyAPI) entity(header, row []string) client.Entity {
	cell := func(name string) string { return row[slices.Index(header, name)] }
	id, _ := strconv.Atoi(cell("group.id"))
	group := f.groups[id-1]
	e := client.Entity{
		ID: int64(len(f.entities) + 1), Group: client.Ref{ID: group.ID, Name: group.Name}, FullIP: cell("full_ip"),
		Nickname: cell("nickname"), Gateway: cell("gateway"), SubnetMask: cell("subnet_mask"), V6Gateway: cell("v6_gateway"),
		Note: cell("note"), Status: cmp.Or(cell("status"), available),
	}
	e.VLAN, _ = strconv.ParseInt(cell("vlan"), 10, 64)
	return e
}

// created returns the rows of the entities that were created, without the header.
func (f *faultyAPI) created() []string {
	var rows []string
	for _, body := range f.posts("/entity") {
		rows = append(rows, strings.Split(strings.TrimSpace(body), "\n")[1:]...)
	}
	slices.Sort(rows)
	return rows
}

// posts returns the bodies of the POST requests to path.
func (f *faultyAPI) posts(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var bodies []string
	for _, request := range f.requests {
		if body, ok := strings.CutPrefix(request, "POST "+path+" "); ok {
			bodies = append(bodies, body)
		}
	}
	return bodies
}

// export returns the name of an export file with 4 groups and 10 entities.
func export(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "netbox.json")
	records := []string{
		recordJSON(
			"dcim.site",
			1,
			`"name": "A"`,
		),
		recordJSON("dcim.site", 2, `"name": "B"`),
		recordJSON("ipam.vrf", 1, `"name": "Red"`),
		recordJSON("ipam.vlan", 1, `"vid": 100`),
		recordJSON("ipam.prefix", 1, `"prefix": "10.0.0.0/24", "site": 1, "vlan": 1`),
		recordJSON("ipam.prefix", 2, `"prefix": "10.0.0.0/24", "vrf": 1`),
		recordJSON("ipam.prefix", 3, `"prefix": "2001:db8::/64", "site": 2`),
		recordJSON("ipam.iprange", 1, `"start_address": "10.0.0.10/24", "end_address": "10.0.0.19/24", "description": "pool"`),
		recordJSON("ipam.ipaddress", 1, `"address": "10.0.0.1/24", "role": "vrrp"`),
		recordJSON("ipam.ipaddress", 2, `"address": "10.0.0.2/24", "dns_name": "two.example", "tenant": 1`),
		recordJSON("ipam.ipaddress", 3, `"address": "10.0.0.3/24"`),
		recordJSON("ipam.ipaddress", 4, `"address": "198.51.100.4/32"`),
		recordJSON("ipam.ipaddress", 5, `"address": "198.51.100.5/24"`),
		recordJSON("ipam.ipaddress", 6, `"address": "10.0.0.15/24"`),
		recordJSON("tenancy.tenant", 1, `"name": "T"`),
	}
	if err := os.WriteFile(file, []byte("["+strings.Join(records, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

type outcome struct {
	code           int
	stdout, stderr string
}

// loginAt returns a login with an address and a key.
func loginAt(url, key string) Login { return func() (string, string, error) { return url, key, nil } }

// run runs the command with arguments, and returns the exit code of the process.
func run(ctx context.Context, args []string, login Login, stdout, stderr io.Writer) int {
	command := Command(login)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "import:", err)
		return 1
	}
	return 0
}

func importExport(t *testing.T, ctx context.Context, api *faultyAPI, more ...string) outcome {
	t.Helper()
	server := httptest.NewServer(api)
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{"netbox", export(t)}, more...), loginAt(server.URL, testKey), &stdout, &stderr)
	if strings.Contains(stdout.String()+stderr.String(), testKey) {
		t.Errorf("got the key in the output, want it hidden:\n%s%s", &stdout, &stderr)
	}
	return outcome{code, stdout.String(), stderr.String()}
}

func (o outcome) expect(t *testing.T, code int, texts ...string) {
	t.Helper()
	shown := strings.Join(strings.Fields(o.stdout+o.stderr), " ")
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			t.Errorf("got output without %q, want it there", text)
		}
	}
	if o.code != code {
		t.Errorf("got exit code %d, want %d", o.code, code)
	}
	if t.Failed() {
		t.Logf("%s%s", o.stdout, o.stderr)
	}
}

func TestImportCreatesMissingItems(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{}
	importExport(t, t.Context(), api, "-v").expect(t, 0,
		"GROUP ASSIGNED RESERVED AVAILABLE CREATED A (created) 0 6 0 6 B (created) 0 1 0 1",
		"NetBox: VRF Red (created) 0 1 0 1", "NetBox: no site (created) 0 2 0 2", "4 groups, 10 entities 0 10 0 10",
		"Created: A: 10.0.0.10-10.0.0.14 reserved mask 255.255.255.0 gateway 10.0.0.1 vlan 100", "Skipped: 1", "Other records: 3",
		"tenancy.tenant 1, T", "ipam.vlan 1, 100 (6 entities)", "ipam.vrf 1, Red (NetBox: VRF Red)",
	)
	expect(t, "groups", api.posts("/group"), []string{
		`{"name":"A"}`, `{"name":"B"}`, `{"name":"NetBox: VRF Red"}`, `{"name":"NetBox: no site"}`,
	})
	expect(t, "entities", api.created(), []string{
		`1,10.0.0.1,,100,,255.255.255.0,,,reserved,"NetBox: no status, role vrrp"`,
		`1,10.0.0.10-10.0.0.14,pool,100,10.0.0.1,255.255.255.0,,,reserved,"NetBox: no status, pool"`,
		`1,10.0.0.15,,100,10.0.0.1,255.255.255.0,,,reserved,NetBox: no status`,
		`1,10.0.0.16-10.0.0.19,pool,100,10.0.0.1,255.255.255.0,,,reserved,"NetBox: no status, pool"`,
		`1,10.0.0.2,two.example,100,10.0.0.1,255.255.255.0,,,reserved,"NetBox: no status, dns two.example, tenant T"`,
		`1,10.0.0.3,,100,10.0.0.1,255.255.255.0,,,reserved,NetBox: no status`,
		`2,2001:db8::/64,,,,,,,reserved,NetBox: active`,
		`3,10.0.0.0/24,,,,,,,reserved,NetBox: active`,
		`4,198.51.100.4,,,,,,,reserved,NetBox: no status`,
		`4,198.51.100.5,,,,255.255.255.0,,,reserved,NetBox: no status`,
	})

	importExport(t, t.Context(), api).expect(t, 0, "A (unchanged)", "UNCHANGED", "4 groups, 10 entities 0 10 0 10")
	if n := len(api.posts("/group")) + len(api.posts("/entity")); n != 8 {
		t.Errorf("got %d posts in both runs, want the 8 of the first", n)
	}
}

func TestImportLeavesDifferentItemsAlone(t *testing.T) {
	t.Parallel()
	elsewhere, a := client.Ref{ID: 1, Name: "elsewhere"}, client.Ref{ID: 2, Name: "A"}
	api := &faultyAPI{
		groups: []client.Group{{ID: 1, Name: "elsewhere"}, {ID: 2, Name: "A"}},
		entities: []client.Entity{
			{Group: elsewhere, FullIP: "198.51.100.4", Status: reserved},      // public: the same address
			{Group: elsewhere, FullIP: "10.0.0.3", VLAN: 7, Status: reserved}, // private: another one
			{Group: a, FullIP: "10.0.0.2", Nickname: "renamed", Status: reserved},
			{Group: a, FullIP: "10.0.0.15", VLAN: 100, Status: quarantined},
			{Group: a, Nickname: "not an address"},
		},
	}
	importExport(t, t.Context(), api, "--verbose").expect(t, 0, "CREATED DIFFERENT", "4 groups, 10 entities 0 10 0 7 3",
		`198.51.100.4 reserved note "NetBox: no status" (ipam.ipaddress 4): group is elsewhere, but planned is NetBox: no site`,
		"nickname is renamed, but planned is two.example, vlan is none, but planned is 100, gateway is none, but planned is 10.0.0.1, "+
			"subnet_mask is none", "status is quarantined, but planned is reserved",
	)
}

// TestImportReservesAvailableSpace shows that the next run reserves an address in use that an earlier program imported as
// available. It names space in use that it cannot reserve.
func TestImportReservesAvailableSpace(t *testing.T) {
	t.Parallel()
	a := client.Ref{ID: 1, Name: "A"}
	api := &faultyAPI{
		groups: []client.Group{{ID: 1, Name: "A"}},
		entities: []client.Entity{
			{ID: 1, Group: a, FullIP: "10.0.0.3", Status: available},
			{ID: 2, Group: a, FullIP: "10.0.0.8-10.0.0.12", Status: available},
		},
	}
	importExport(t, t.Context(), api).expect(t, 0, "CREATED CHANGED REFUSED", "4 groups, 10 entities 0 10 0 8 1 1",
		"1 overlaps with an existing entity", "overlaps with IP entity 2 (10.0.0.8-10.0.0.12), which is available and can be allocated, "+
			"although NetBox has this in use: delete it, and run the import again",
	)
	if e := api.entities[0]; e.Status != reserved || e.Note != "NetBox: no status" {
		t.Errorf("got %s with note %s, want it reserved", e.Status, e.Note)
	}
}

func TestImportSkipsRefusedItems(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{fault: func(method, path, body string) fault {
		lines := strings.Split(body, "\n")
		n := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, ",10.0.0.2,") })
		switch {
		case method == http.MethodPost && n > 0:
			return fault{
				status: 422,
				body: fmt.Sprintf(`{"title":"Unprocessable Entity","errors":[`+
					`{"pointer":"/%d/v4/address","code":"out_of_range","message":"is no server's"}]}`, n+1),
			}
		case path == "/group" && strings.Contains(body, "Red"):
			return fault{status: 422, body: `{"title":"Unprocessable Entity","detail":"No such colour."}`}
		}
		return fault{}
	}}
	importExport(t, t.Context(), api).expect(t, 0, "CREATED REFUSED", "4 groups, 10 entities 0 10 0 8 2",
		"1 refused by the API with the code out_of_range ipam.ipaddress 2, A: 10.0.0.2 (/v4/address is no server's)",
		"The API refused group NetBox: VRF Red: No such colour.", "the API refused its group NetBox: VRF Red",
	)
}

func TestImportObeysRetryAfter(t *testing.T) {
	t.Parallel()
	n := 0
	api := &faultyAPI{fault: func(string, string, string) fault {
		n++
		return fault{status: []int{0, 429, 503}[n%3]}
	}}
	importExport(t, t.Context(), api).expect(t, 0, "4 groups, 10 entities 0 10 0 10")
	if len(api.entities) != 10 || len(api.groups) != 4 {
		t.Errorf("got %d groups and %d entities, want 4 and 10", len(api.groups), len(api.entities))
	}
}

func TestImportStopsAtAServerError(t *testing.T) {
	t.Parallel()
	broken := true
	api := &faultyAPI{fault: func(method, _, body string) fault {
		if broken && method == http.MethodPost && strings.Contains(body, ",10.0.0.2,") {
			return fault{status: 500, body: `{"title":"Internal Server Error","detail":"Logged.","request_id":"r-1"}`}
		}
		return fault{}
	}}
	first := importExport(t, t.Context(), api)
	first.expect(t, 1, "import: stopped after creating 4 groups", "create 6 entities from 10.0.0.1 to 10.0.0.16-10.0.0.19 in group A",
		"500 Internal Server Error: Logged. (request r-1)", "Unknown whether it was created: A: 10.0.0.2")
	broken = false
	importExport(t, t.Context(), api).expect(t, 0)
	if len(api.entities) != 10 {
		t.Errorf("got %d entities after the second run, want 10", len(api.entities))
	}
}

func TestImportChecksItemsAfterALostResponse(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{fault: func(method, _, body string) fault {
		return fault{cut: method == http.MethodPost && strings.Contains(body, ",2001:db8::/64,")}
	}}
	first := importExport(t, t.Context(), api)
	first.expect(t, 1, "stopped after creating 4 groups")
	if strings.Contains(first.stdout, "Unknown whether") {
		t.Errorf("got entities with an unknown outcome, want none:\n%s%s", first.stdout, first.stderr)
	}
	importExport(t, t.Context(), api).expect(t, 0)
	if len(api.entities) != 10 {
		t.Errorf("got %d entities after the second run, want 10", len(api.entities))
	}
}

func TestImportEndsBetweenRequests(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	api := &faultyAPI{fault: func(method, path, _ string) fault {
		if method == http.MethodPost && path == "/group" {
			return fault{instead: interrupt}
		}
		return fault{}
	}}
	importExport(t, ctx, api).expect(t, 1, "stopped after creating 1 groups and 0 entities", "context canceled", "NOT TRIED",
		"4 groups, 10 entities 0 10 0 10")
	importExport(t, t.Context(), api).expect(t, 0, "A (unchanged)", "B (created)", "4 groups, 10 entities 0 10 0 10")
}

func TestImportNeedsAValidKey(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&faultyAPI{})
	defer server.Close()
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"netbox", export(t)}, loginAt(server.URL, "ip_other"), io.Discard, &stderr)
	outcome{code, "", stderr.String()}.expect(t, 1, "list IP groups: 401 Unauthorized")
}

// TestDryRunChangesNothing shows that a dry run only reads, and that its report is that of the run which follows.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	a := client.Ref{ID: 1, Name: "A"}
	api := &faultyAPI{
		groups: []client.Group{{ID: 1, Name: "A"}},
		entities: []client.Entity{
			{ID: 1, Group: a, FullIP: "10.0.0.3", Status: available},
			{ID: 2, Group: a, FullIP: "10.0.0.2", Status: reserved, Note: "kept"},
			{ID: 3, Group: a, FullIP: "10.0.0.0-10.0.0.1", Status: reserved},
		},
	}
	dry := importExport(t, t.Context(), api, "--dry-run", "-v")
	for _, request := range api.requests {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("got the request %s, want only GET", request)
		}
	}
	run := importExport(t, t.Context(), api, "-v")
	first, rest, _ := strings.Cut(dry.stdout, "\n")
	if !strings.HasPrefix(first, "Dry run: nothing was changed.") || rest != run.stdout {
		t.Errorf("got the report\n%s\nof a dry run, want\n%s", dry.stdout, run.stdout)
	}
	run.expect(t, 0, "4 groups, 10 entities 0 10 0 7 1 1 1")
}

// TestFlags shows which arguments are refused, and that the help has each flag.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"netbox"}, "got 0 files, but the command needs one"},
		{[]string{"netbox", "a", "b"}, "got 2 files, but the command needs one"},
		{[]string{"netbox", "a", "--colour"}, "-colour"},
		{[]string{"infoblox"}, "unknown command"},
		{[]string{"netbox", "a", "--available", "colour=red"}, "must be role=NAME, tag=NAME or prefix=ADDRESS/LENGTH"},
		{[]string{"netbox", "a", "--available", "prefix=10.0.0.0"}, "no '/'"},
		{[]string{"netbox", export(t), "--available", "role=custmer"}, "--available role=custmer matches no prefix of the file"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), test.args, loginAt("http://192.0.2.1", testKey), &stdout, &stderr)
		if code != 1 || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("import %q: got %d, %q, want 1 and %q", test.args, code, stderr.String(), test.want)
		}
	}
	var help bytes.Buffer
	for _, args := range [][]string{{}, {"--help"}, {"netbox", "--help"}, {"phpipam", "--help"}, {"csv", "-h"}} {
		if code := run(t.Context(), args, loginAt("http://192.0.2.1", testKey), &help, io.Discard); code != 0 {
			t.Errorf("import %q: got %d, want 0", args, code)
		}
	}
	for _, name := range []string{"--clients", "--available", "--dry-run", "--verbose", "-v", "FILE"} {
		if !strings.Contains(help.String(), name) {
			t.Errorf("got help without %s, want it there:\n%s", name, &help)
		}
	}
}
