package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ironplane "github.com/ironplane/ironplane/pkg/client"
)

const testKey = "ip_secret"

// faultyAPI is an API that stores everything and checks nothing. It simulates errors of the protocol. TestImportIntoTheProduct
// shows what the real API accepts.
type faultyAPI struct {
	mu        sync.Mutex
	groups    []ironplane.IPGroup
	entities  []ironplane.IPEntity
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
		return append([]ironplane.IPGroup{}, f.groups...)
	case "GET /entity":
		return append([]ironplane.IPEntity{}, f.entities...)
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
		var b ironplane.CreateIPGroupBody
		json.Unmarshal(body, &b)
		g := ironplane.IPGroup{ID: int64(len(f.groups) + 1), Name: b.Name}
		f.groups = append(f.groups, g)
		return g
	}
	var b ironplane.CreateIPEntityBody
	json.Unmarshal(body, &b)
	group := f.groups[b.Group.ID-1]
	e := ironplane.IPEntity{Nickname: b.Nickname, VLAN: b.VLAN, Group: ironplane.Ref{ID: group.ID, Name: group.Name}}
	if b.V4 != nil {
		e.FullIP, e.Gateway, e.SubnetMask = *b.V4.Full, b.V4.Gateway, b.V4.SubnetMask
	}
	if b.V6 != nil {
		e.V6Address, e.V6Gateway = b.V6.Address, b.V6.Gateway
	}
	f.entities = append(f.entities, e)
	return e
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

// export returns the name of an export file with 4 groups and 8 entities.
func export(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "netbox.json")
	records := []string{
		recordJSON(
			modelSite,
			1,
			`"name": "A"`,
		),
		recordJSON(modelSite, 2, `"name": "B"`),
		recordJSON(modelVRF, 1, `"name": "Red"`),
		recordJSON(modelVLAN, 1, `"vid": 100`),
		recordJSON(modelPrefix, 1, `"prefix": "10.0.0.0/24", "site": 1, "vlan": 1`),
		recordJSON(modelPrefix, 2, `"prefix": "10.0.0.0/24", "vrf": 1`),
		recordJSON(modelPrefix, 3, `"prefix": "2001:db8::/64", "site": 2`),
		recordJSON(modelRange, 1, `"start_address": "10.0.0.10/24", "end_address": "10.0.0.19/24", "description": "pool"`),
		recordJSON(modelAddress, 1, `"address": "10.0.0.1/24", "role": "vrrp"`),
		recordJSON(modelAddress, 2, `"address": "10.0.0.2/24", "dns_name": "two.example", "tenant": 1`),
		recordJSON(modelAddress, 3, `"address": "10.0.0.3/24"`),
		recordJSON(modelAddress, 4, `"address": "198.51.100.4/32"`),
		recordJSON(modelAddress, 5, `"address": "198.51.100.5/24"`),
		recordJSON(modelAddress, 6, `"address": "10.0.0.15/24"`),
		recordJSON(modelTenant, 1, `"name": "T"`),
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

func importExport(t *testing.T, ctx context.Context, api *faultyAPI, more ...string) outcome {
	t.Helper()
	server := httptest.NewServer(api)
	defer server.Close()
	var stdout, stderr bytes.Buffer
	args := append([]string{"netbox", export(t), "--url", server.URL}, more...)
	getenv := func(name string) string { return map[string]string{"IRONPLANE_KEY": testKey}[name] }
	code := run(ctx, args, getenv, &stdout, &stderr)
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
		"A (created)", "B (created)", "NetBox: VRF Red (created)", "NetBox: no site (created)",
		"4 groups, 8 entities 0 8 0 0 0 0",
		"Created: A: 10.0.0.10-10.0.0.19 mask 255.255.255.0 gateway 10.0.0.1 vlan 100",
		"Skipped: 3", "ipam.ipaddress 6, 10.0.0.15 (10.0.0.10-10.0.0.19, ipam.iprange 1)", "tenancy.tenant 1, T",
	)
	expect(t, "groups", api.posts("/group"), []string{
		`{"name":"A"}`, `{"name":"B"}`, `{"name":"NetBox: VRF Red"}`, `{"name":"NetBox: no site"}`,
	})
	bodies := api.posts("/entity")
	slices.Sort(bodies)
	expect(t, "entities", bodies, []string{
		`{"group":{"id":1},"nickname":"pool","v4":{"full":"10.0.0.10-10.0.0.19","gateway":"10.0.0.1","subnet_mask":"255.255.255.0"},"vlan":100}`,
		`{"group":{"id":1},"nickname":"two.example","v4":{"full":"10.0.0.2","gateway":"10.0.0.1","subnet_mask":"255.255.255.0"},"vlan":100}`,
		`{"group":{"id":1},"v4":{"full":"10.0.0.1","subnet_mask":"255.255.255.0"},"vlan":100}`,
		`{"group":{"id":1},"v4":{"full":"10.0.0.3","gateway":"10.0.0.1","subnet_mask":"255.255.255.0"},"vlan":100}`,
		`{"group":{"id":2},"v6":{"address":"2001:db8::/64"}}`,
		`{"group":{"id":3},"v4":{"full":"10.0.0.0/24"}}`,
		`{"group":{"id":4},"v4":{"full":"198.51.100.4"}}`,
		`{"group":{"id":4},"v4":{"full":"198.51.100.5","subnet_mask":"255.255.255.0"}}`,
	})

	importExport(t, t.Context(), api).expect(t, 0, "A (unchanged)", "4 groups, 8 entities 0 0 8 0 0 0")
	if n := len(api.posts("/group")) + len(api.posts("/entity")); n != 12 {
		t.Errorf("got %d posts in both runs, want the 12 of the first", n)
	}
}

func TestImportLeavesDifferentItemsAlone(t *testing.T) {
	t.Parallel()
	elsewhere, a := ironplane.Ref{ID: 1, Name: "elsewhere"}, ironplane.Ref{ID: 2, Name: "A"}
	api := &faultyAPI{
		groups: []ironplane.IPGroup{{ID: 1, Name: "elsewhere"}, {ID: 2, Name: "A"}},
		entities: []ironplane.IPEntity{
			{Group: elsewhere, FullIP: "198.51.100.4"},                  // public: the same address
			{Group: elsewhere, FullIP: "10.0.0.3", VLAN: new(int32(7))}, // private: another one
			{Group: a, FullIP: "10.0.0.2", Nickname: new("renamed")},
			{Group: a, Nickname: new("not an address")},
		},
	}
	importExport(t, t.Context(), api, "--verbose").expect(t, 0, "4 groups, 8 entities 0 6 0 2 0 0",
		"198.51.100.4 (ipam.ipaddress 4): group is elsewhere, but planned is NetBox: no site",
		"nickname is renamed, but planned is two.example, vlan is none, but planned is 100, gateway is none, but planned is 10.0.0.1, "+
			"subnet_mask is none",
	)
}

func TestImportSkipsRefusedItems(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{fault: func(method, path, body string) fault {
		switch {
		case method == http.MethodPost && strings.Contains(body, `"10.0.0.2"`):
			return fault{
				status: 422,
				body:   `{"title":"Unprocessable Entity","errors":[{"pointer":"/v4/address","code":"overlap","message":"overlaps entity 5"}]}`,
			}
		case path == "/group" && strings.Contains(body, "Red"):
			return fault{status: 422, body: `{"title":"Unprocessable Entity","detail":"No such colour."}`}
		}
		return fault{}
	}}
	importExport(t, t.Context(), api).expect(t, 0, "4 groups, 8 entities 0 6 0 0 2 0",
		"1 refused by the API with the code overlap ipam.ipaddress 2, A: 10.0.0.2 (/v4/address overlaps entity 5)",
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
	importExport(t, t.Context(), api).expect(t, 0, "4 groups, 8 entities 0 8 0 0 0 0")
	if len(api.entities) != 8 || len(api.groups) != 4 {
		t.Errorf("got %d groups and %d entities, want 4 and 8", len(api.groups), len(api.entities))
	}
}

func TestImportStopsAtAServerError(t *testing.T) {
	t.Parallel()
	broken := true
	api := &faultyAPI{fault: func(method, _, body string) fault {
		if broken && method == http.MethodPost && strings.Contains(body, `"10.0.0.2"`) {
			return fault{status: 500, body: `{"title":"Internal Server Error","detail":"Logged.","request_id":"r-1"}`}
		}
		return fault{}
	}}
	first := importExport(t, t.Context(), api)
	first.expect(t, 1, "import: stopped after creating 4 groups", "10.0.0.2 in group A", "500 Internal Server Error: Logged. (request r-1)",
		"Unknown whether it was created: A: 10.0.0.2")
	broken = false
	importExport(t, t.Context(), api).expect(t, 0)
	if len(api.entities) != 8 {
		t.Errorf("got %d entities after the second run, want 8", len(api.entities))
	}
}

func TestImportChecksItemsAfterALostResponse(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{fault: func(method, _, body string) fault {
		return fault{cut: method == http.MethodPost && strings.Contains(body, `"2001:db8::/64"`)}
	}}
	first := importExport(t, t.Context(), api)
	first.expect(t, 1, "stopped after creating 4 groups")
	if strings.Contains(first.stdout, "Unknown whether") {
		t.Errorf("got entities with an unknown outcome, want none:\n%s%s", first.stdout, first.stderr)
	}
	importExport(t, t.Context(), api).expect(t, 0)
	if len(api.entities) != 8 {
		t.Errorf("got %d entities after the second run, want 8", len(api.entities))
	}
}

func TestImportEndsBetweenRequests(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	api := &faultyAPI{fault: func(method, path, _ string) fault {
		if method == http.MethodPost && path == "/entity" {
			return fault{instead: interrupt}
		}
		return fault{}
	}}
	first := importExport(t, ctx, api)
	first.expect(t, 1, "stopped after creating 4 groups", "context canceled")
	stand := len(api.entities)
	if stand == 0 || stand > workers {
		t.Errorf("got %d entities, want 1 to %d", stand, workers)
	}
	first.expect(t, 1, fmt.Sprintf("4 groups, 8 entities %d %d 0 0 0 0", 8-stand, stand))
	importExport(t, t.Context(), api).expect(t, 0, fmt.Sprintf("4 groups, 8 entities 0 %d %d 0 0 0", 8-stand, stand))
}

func TestImportNeedsAValidKey(t *testing.T) {
	t.Parallel()
	importExport(t, t.Context(), &faultyAPI{}, "--key", "ip_other").expect(t, 1, "list IP groups: 401 Unauthorized")
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(testKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	importExport(t, t.Context(), &faultyAPI{}, "--key-file", keyFile).expect(t, 0)
	importExport(t, t.Context(), &faultyAPI{}, "--key-file", keyFile, "--key", testKey).expect(t, 1, "key-file")
	importExport(t, t.Context(), &faultyAPI{}, "--key-file", keyFile+"s").expect(t, 1, "no such file")

	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"netbox", export(t)}, func(string) string { return "" }, io.Discard, &stderr); code != 1 {
		t.Errorf("got exit code %d without a key, want 1", code)
	}
	outcome{1, "", stderr.String()}.expect(t, 1, "no API key")
}

func TestDryRunSendsNothing(t *testing.T) {
	t.Parallel()
	api := &faultyAPI{}
	importExport(t, t.Context(), api, "--dry-run", "-v").expect(t, 0,
		"GROUP RANGES ADDRESSES PREFIXES A 1 3 0 B 0 0 1 NetBox: VRF Red 0 0 1 NetBox: no site 0 2 0",
		"4 groups, 8 entities 1 5 2", "A: 10.0.0.2 mask 255.255.255.0 gateway 10.0.0.1 vlan 100 \"two.example\"", "Skipped: 3",
	)
	if len(api.requests) != 0 {
		t.Errorf("got requests %v, want none", api.requests)
	}
}

// TestFlags shows that flags may come before and after the file, and that the help has each of them.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-v", "--dry-run", "netbox.json", "--url", "http://192.0.2.1"},
		{"netbox.json", "--url=http://192.0.2.1", "--verbose", "-dry-run"},
	} {
		var got netBoxOptions
		want := netBoxOptions{file: "netbox.json", url: "http://192.0.2.1", dryRun: true, verbose: true}
		if err := got.parse(args); err != nil || got != want {
			t.Errorf("parse %q: got %+v, %v, want %+v", args, got, err, want)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"netbox"}, "got 0 files, but the command needs one"},
		{[]string{"netbox", "a", "b"}, "got 2 files, but the command needs one"},
		{[]string{"netbox", "a", "--key", "x", "--key-file", "y"}, "cannot be used together"},
		{[]string{"netbox", "a", "--colour"}, "-colour"},
		{[]string{"phpipam"}, "unknown command"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(
			t.Context(),
			test.args,
			func(string) string { return "" },
			&stdout,
			&stderr,
		); code != 1 ||
			!strings.Contains(stderr.String(), test.want) {
			t.Errorf("import %q: got %d, %q, want 1 and %q", test.args, code, stderr.String(), test.want)
		}
	}
	var help bytes.Buffer
	for _, args := range [][]string{{}, {"--help"}, {"netbox", "--help"}} {
		if code := run(t.Context(), args, func(string) string { return "" }, &help, io.Discard); code != 0 {
			t.Errorf("import %q: got %d, want 0", args, code)
		}
	}
	for _, name := range []string{"--url", "--key", "--key-file", "--clients", "--dry-run", "--verbose", "-v", "FILE"} {
		if !strings.Contains(help.String(), name) {
			t.Errorf("got help without %s, want it there:\n%s", name, &help)
		}
	}
}
