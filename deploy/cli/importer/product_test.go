package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// dumpFile is a NetBox export to import beside the made one, such as that of NetBox' public demo.
var dumpFile = flag.String("netbox", "", "a NetBox export `file` whose prefixes with the roles 4 and 5 become stock")

// asProgram in the environment lets the test binary run as the import command.
const asProgram = "IRONPLANE_TEST_IMPORT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], loginAt(os.Getenv("IRONPLANE_URL"), os.Getenv("IRONPLANE_KEY")), os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	testkit.Main(m)
}

// importFile runs the program with a file into the product.
func importFile(t testing.TB, c *testkit.Client, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, loginAt(c.URL, c.Key), &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func listEntities(t *testing.T, c *testkit.Client) []client.Entity {
	t.Helper()
	return testkit.Decode[[]client.Entity](c.Do("GET", "/entity", nil).Want(200))
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestImportIntoTheProduct imports an export into the product. The API accepts what is planned, and entities that overlap with
// existing ones are left out. A second run changes nothing.
func TestImportIntoTheProduct(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	c.Do("POST", "/group", `{"name": "elsewhere"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "full_ip": "198.51.100.0/29", "status": "reserved"}`).Want(200)
	file, owners := export(t), writeFile(t, "clients.csv", "email,first,last,tenant\nben@example.com,Ben,Miller,T\n")

	dry := importFile(t, c, "netbox", file, "--clients", owners, "--dry-run")
	into := importFile(t, c, "netbox", file, "--clients", owners)
	if _, report, _ := strings.Cut(dry.stdout, "\n"); report != into.stdout {
		t.Errorf("got the report\n%s\nof a dry run, want\n%s", dry.stdout, into.stdout)
	}
	into.expect(t, 0, "CREATED REFUSED", "4 groups, 10 entities 1 9 0 8 2", "Clients created: 1",
		"ipam.ipaddress 4, NetBox: no site: 198.51.100.4 (overlaps with IP entity 1 (198.51.100.0/29), which is reserved)")
	created := listEntities(t, c)
	for _, e := range created {
		if owned := e.Owner != nil && e.Owner.ID == 1 && e.Owner.Name == "Ben Miller"; owned != (e.FullIP == "10.0.0.2") {
			t.Errorf("%s: got owner %+v, want Ben Miller to own 10.0.0.2 only", e.FullIP, e.Owner)
		}
		if want := map[bool]string{true: assigned, false: reserved}[e.Owner != nil]; e.Status != want {
			t.Errorf("%s: got status %s, want %s", e.FullIP, e.Status, want)
		}
	}
	if len(created) != 9 {
		t.Fatalf("got %d entities, want 9: %s", len(created), testkit.JSON(created))
	}
	importFile(t, c, "netbox", file, "--clients", owners).expect(t, 0, "UNCHANGED REFUSED", "4 groups, 10 entities 1 9 0 8 2")
	expect(t, "entities after the second run", []string{testkit.JSON(listEntities(t, c))}, []string{testkit.JSON(created)})
}

// netBoxDump returns an export with the shapes of NetBox' public demo: sites with containers and small prefixes of a tenant,
// VRFs with addresses, one prefix with addresses and ranges in use, and devices without addresses. Beside these it has what
// the demo lacks: all statuses, addresses of tenants and devices, and pools.
func netBoxDump() string {
	var records []string
	pks := map[string]int{}
	add := func(model, fields string, args ...any) int {
		pks[model]++
		records = append(records, recordJSON(model, pks[model], fmt.Sprintf(fields, args...)))
		return pks[model]
	}
	for n := range 5 {
		add("ipam.role", `"name": "role %d", "slug": "role-%d"`, n+1, n+1)
	}
	owner, customer := add("tenancy.tenant", `"name": "Dunder"`), add("tenancy.tenant", `"name": "Initech"`)
	add("ipam.prefix", `"prefix": "10.112.128.0/17", "status": "container", "tenant": %d`, owner)
	for n := range 3 {
		site := add("dcim.site", `"name": "DM-%d", "slug": "dm-%d"`, n, n)
		add("ipam.prefix", `"prefix": "10.112.%d.0/22", "status": "container", "site": %d, "tenant": %d`, 128+4*n, site, owner)
		for role, prefix := range []string{"10.112.%d.128/28", "10.112.%d.64/26", "10.112.%d.144/28", "10.112.%d.0/28"} {
			vlan := add("ipam.vlan", `"vid": %d, "name": "Data", "site": %d`, 100+role, site)
			add("ipam.prefix", `"prefix": "`+prefix+`", "status": "active", "role": %d, "site": %d, "tenant": %d, "vlan": %d`,
				128+4*n, role+1, site, owner, vlan)
		}
		add("dcim.device", `"name": "dmi-rtr%d", "site": %d`, n, site)
	}
	for n := range 2 {
		vrf := add("ipam.vrf", `"name": "Alpha %d"`, n)
		add("ipam.prefix", `"prefix": "172.%d.0.0/16", "status": "container", "vrf": %d`, 16+n, vrf)
		add("ipam.prefix", `"prefix": "172.%d.0.0/24", "status": "active", "vrf": %d`, 16+n, vrf)
		add("ipam.prefix", `"prefix": "172.%d.1.0/24", "status": "active", "vrf": %d`, 16+n, vrf)
		for host := range 30 {
			add("ipam.ipaddress", `"address": "172.%d.0.%d/24", "status": "active", "vrf": %d`, 16+n, host+1, vrf)
		}
	}
	add("ipam.prefix", `"prefix": "192.168.0.0/22", "status": "active", "role": 5`)
	for host := range 30 {
		status := "active"
		if host < 5 {
			status = "reserved"
		}
		add("ipam.ipaddress", `"address": "192.168.0.%d/22", "status": "%s"`, host+1, status)
	}
	for n := range 4 {
		add("ipam.iprange", `"start_address": "192.168.1.%d/22", "end_address": "192.168.1.%d/22", "status": "reserved"`, 50*n, 50*n+49)
	}
	add("ipam.prefix", `"prefix": "203.0.113.0/26", "status": "active", "is_pool": true`)
	add("ipam.prefix", `"prefix": "203.0.113.32/28", "status": "deprecated"`)
	add("ipam.ipaddress", `"address": "203.0.113.1/26", "status": "active", "role": "vrrp"`)
	for n, status := range []string{"active", "dhcp", "slaac", "deprecated", "reserved", "own"} {
		add("ipam.ipaddress", `"address": "203.0.113.%d/26", "status": "%s", "tenant": %d, "dns_name": "fra1-web%d"`, 2+n, status, customer, n)
	}
	pks["dcim.device"]++
	records = append(
		records,
		recordJSON("dcim.device", pks["dcim.device"], fmt.Sprintf(`"name": "fra1-s3", "primary_ip4": %d`, pks["ipam.ipaddress"])),
	)
	add("ipam.prefix", `"prefix": "2001:db8:1::/64", "status": "active", "role": 4`)
	add("ipam.ipaddress", `"address": "2001:db8:1::1/64", "status": "active"`)
	add("ipam.prefix", `"prefix": "2001:db8:2::/64", "status": "active", "role": 4`)
	return "[" + strings.Join(records, ",") + "]"
}

// inUse is what a dump has in use, read without the program's own parser. Private space of a VRF is other space than what is
// allocated here, as long as the dumps have no stock in VRFs.
type inUse struct {
	spans    []string // first and last address
	prefixes []usedPrefix
	tenants  []string
}

type usedPrefix struct {
	prefix  netip.Prefix
	isStock bool
}

func readInUse(t *testing.T, dump string) (used inUse) {
	t.Helper()
	var records []struct {
		Model  string
		Fields struct {
			Name, Address, Prefix, Status string
			StartAddress                  string `json:"start_address"`
			EndAddress                    string `json:"end_address"`
			Role                          any
			IsPool                        bool `json:"is_pool"`
			VRF                           int
		}
	}
	if err := json.Unmarshal([]byte(dump), &records); err != nil {
		t.Fatal(err)
	}
	host := func(text string) string { return netip.MustParsePrefix(text).Addr().String() }
	for _, r := range records {
		f := r.Fields
		switch r.Model {
		case "ipam.ipaddress":
			used.spans = append(used.spans, host(f.Address)+" "+host(f.Address))
		case "ipam.iprange":
			used.spans = append(used.spans, host(f.StartAddress)+" "+host(f.EndAddress))
		case "ipam.prefix":
			isStock := f.Status == "active" && (f.IsPool || f.Role == 4.0 || f.Role == 5.0)
			if f.Status != "container" && (f.VRF == 0 || isStock) {
				used.prefixes = append(used.prefixes, usedPrefix{netip.MustParsePrefix(f.Prefix), isStock})
			}
		case "tenancy.tenant":
			used.tenants = append(used.tenants, f.Name)
		}
	}
	return used
}

// has returns why an address or prefix must not be allocated, or the empty text.
func (u inUse) has(e client.Entity) string {
	allocated, err := netip.ParsePrefix(e.FullIP)
	if err != nil {
		a := netip.MustParseAddr(e.FullIP)
		allocated = netip.PrefixFrom(a, a.BitLen())
	}
	for _, span := range u.spans {
		first, last, _ := strings.Cut(span, " ")
		from, to := netip.MustParseAddr(first), netip.MustParseAddr(last)
		if allocated.Contains(from) || allocated.Contains(to) || from.Compare(allocated.Addr()) <= 0 && allocated.Addr().Compare(to) <= 0 {
			return span
		}
	}
	smallest := usedPrefix{}
	for _, p := range u.prefixes {
		if p.prefix.Overlaps(allocated) && (!smallest.prefix.IsValid() || p.prefix.Bits() > smallest.prefix.Bits()) {
			smallest = p
		}
	}
	if !smallest.isStock {
		return smallest.prefix.String()
	}
	return ""
}

// allocateAll allocates until every group is exhausted, and returns what was allocated.
func allocateAll(t *testing.T, c *testkit.Client, owner int64) (all []client.Entity) {
	t.Helper()
	for _, group := range testkit.Decode[[]client.Group](c.Do("GET", "/group", nil).Want(200)) {
		for _, family := range []string{"v4", "v6"} {
			for count := 1024; count > 0; {
				body := fmt.Sprintf(`{"count": %d, "family": %q, "owner": {"id": %d}}`, count, family, owner)
				answer := c.Do("POST", fmt.Sprintf("/group/%d/allocate", group.ID), body)
				if answer.Status == http.StatusUnprocessableEntity {
					count /= 2
					continue
				}
				all = append(all, testkit.Decode[[]client.Entity](answer.Want(200))...)
			}
		}
	}
	return all
}

// TestImportedSpaceInUseIsNeverAllocated imports a dump, with or without a second run that has --clients, and allocates until
// nothing is left. All that is allocated is free in the dump, and all that is free in stock is allocated.
func TestImportedSpaceInUseIsNeverAllocated(t *testing.T) {
	t.Parallel()
	dumps := map[string]string{"made": netBoxDump()}
	// 14 in each /28, 792 of the /22, 47 of the pool with its network and broadcast addresses, and a /64
	free := map[string]int{"made": 3*14 + 1022 - 230 + 64 - 7 - 16 + 1, "given": 13*14 + 1022 - 230}
	if *dumpFile != "" {
		text, err := os.ReadFile(*dumpFile)
		if err != nil {
			t.Fatal(err)
		}
		dumps["given"] = string(text)
	}
	for name, dump := range dumps {
		for _, withClients := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clients %t", name, withClients), func(t *testing.T) {
				t.Parallel()
				_, c := producttest.Start(t)
				c.Do("POST", "/client", `{"email": "buyer@example.com", "first": "A", "last": "Buyer"}`).Want(200)
				file, used := writeFile(t, "netbox.json", dump), readInUse(t, dump)
				args := []string{"netbox", file, "--available", "role=4", "--available", "role=5"}
				importFile(t, c, args...).expect(t, 0, "Other records:")
				want := free[name]
				if withClients {
					want -= assignTenants(t, c, used, args)
				}
				for _, e := range listEntities(t, c) {
					if e.Status != available {
						continue
					}
					if reason := used.has(e); reason != "" {
						t.Errorf("%s: got an available entity, want it in use: %s", e.FullIP, reason)
					}
				}
				all := allocateAll(t, c, 1)
				for _, e := range all {
					if reason := used.has(e); reason != "" {
						t.Errorf("%s: got it allocated, want it in use: %s", e.FullIP, reason)
					}
				}
				if len(all) != want {
					t.Errorf("got %d entities allocated, want %d", len(all), want)
				}
			})
		}
	}
}

// assignTenants imports again, with a client for each tenant, and returns how many available entities were assigned.
func assignTenants(t *testing.T, c *testkit.Client, used inUse, args []string) (assignedStock int) {
	t.Helper()
	rows := []string{"tenant,email,first,last"}
	for n, tenant := range used.tenants {
		rows = append(rows, fmt.Sprintf("%q,tenant%d@example.com,Tenant,%d", tenant, n, n))
	}
	before := map[int64]client.Entity{}
	for _, e := range listEntities(t, c) {
		before[e.ID] = e
	}
	importFile(t, c, append(args, "--clients", writeFile(t, "clients.csv", strings.Join(rows, "\n")))...).expect(t, 0, "CHANGED")
	reservedSpace := 0
	for _, e := range listEntities(t, c) {
		switch was := before[e.ID]; {
		case was.ID == 0:
			t.Errorf("%s: got a new entity in the second run, want none", e.FullIP)
		case e.Status == was.Status:
		case e.Status == assigned && was.Status == available:
			assignedStock++
		case e.Status == assigned && was.Status == reserved && e.Note == "":
			reservedSpace++
		default:
			t.Errorf("%s: got status %s after %s, want it assigned", e.FullIP, e.Status, was.Status)
		}
	}
	if reservedSpace == 0 {
		t.Error("got no reserved entity assigned by the second run, want those of tenants")
	}
	return assignedStock
}

// TestImportedStatus shows the notes of what is in use, and whose it is once tenants are clients.
func TestImportedStatus(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	file := writeFile(t, "netbox.json", netBoxDump())
	importFile(t, c, "netbox", file, "-v").expect(t, 0, "dcim.device 4, fra1-s3 (203.0.113.7)", "dcim.device 1, dmi-rtr0",
		"ipam.vlan 1, 100 Data (1 entities)", "ipam.vrf 1, Alpha 0 (NetBox: VRF Alpha 0)")
	notes := map[string]string{}
	for _, e := range listEntities(t, c) {
		notes[e.FullIP] = e.Status + " " + e.Note
	}
	for ip, want := range map[string]string{
		"203.0.113.0":              "available ",
		"203.0.113.2":              "reserved NetBox: active, dns fra1-web0, tenant Initech",
		"203.0.113.3":              "reserved NetBox: dhcp, dns fra1-web1, tenant Initech",
		"203.0.113.7":              "reserved NetBox: own, dns fra1-web5, device fra1-s3, tenant Initech",
		"203.0.113.32/28":          "reserved NetBox: deprecated",
		"192.168.0.1":              "reserved NetBox: reserved",
		"192.168.1.0-192.168.1.49": "reserved NetBox: reserved",
		"10.112.128.0/28":          "reserved NetBox: active, role role 4, tenant Dunder",
		"172.16.1.0/24":            "reserved NetBox: active",
		"2001:db8:2::/64":          "reserved NetBox: active, role role 4",
	} {
		if notes[ip] != want {
			t.Errorf("%s: got %q, want %q", ip, notes[ip], want)
		}
	}
	kept := testkit.Decode[[]client.Entity](c.Do("GET", "/entity?q=203.0.113.3", nil).Want(200))[0]
	c.Do("PATCH", fmt.Sprintf("/entity/%d", kept.ID), `{"note": "for ACME until May"}`).Want(200)

	owners := writeFile(t, "clients.csv", "tenant,email,first,last\nInitech,bill@example.com,Bill,Lumbergh\n")
	importFile(t, c, "netbox", file, "--clients", owners, "-v").expect(t, 0, "CHANGED UNCHANGED DIFFERENT",
		"Changed: NetBox: no site: 203.0.113.2 assigned", "status was reserved, and is now assigned", "203.0.113.3 assigned",
		"owner is reserved, but planned is bill@example.com")
	for _, e := range testkit.Decode[[]client.Entity](c.Do("GET", "/entity?q=203.0.113.0/29", nil).Want(200)) {
		want := map[string]string{"203.0.113.0": available, "203.0.113.1": reserved, "203.0.113.3": reserved}[e.FullIP]
		if want == "" {
			want = assigned
		}
		if e.Status != want {
			t.Errorf("%s: got status %s after the second run, want %s", e.FullIP, e.Status, want)
		}
	}
}

// TestReservedPrefixBecomesStock shows the way from a prefix that the first run reserved as a whole to its single addresses.
func TestReservedPrefixBecomesStock(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	file := writeFile(t, "netbox.json", "["+recordJSON("ipam.prefix", 1, `"prefix": "203.0.113.0/29", "status": "active"`)+"]")
	importFile(t, c, "netbox", file).expect(t, 0, "1 groups, 1 entities 0 1 0 1")
	args := []string{"netbox", file, "--available", "prefix=203.0.113.0/29"}
	importFile(t, c, args...).expect(t, 0, "1 groups, 6 entities 0 0 6 6",
		"overlaps with IP entity 1 (203.0.113.0/29), which is reserved by an earlier import: delete it, and run the import again")
	c.Do("DELETE", "/entity/1", nil).Want(200)
	importFile(t, c, args...).expect(t, 0, "CREATED", "1 groups, 6 entities 0 0 6 6")
	if all := listEntities(t, c); len(all) != 6 || all[0].FullIP != "203.0.113.1" || all[5].Status != available {
		t.Errorf("got %s, want 203.0.113.1 to 203.0.113.6 available", testkit.JSON(all))
	}
}

// TestKilledImportIsFinished kills the program after each of its requests that change something, and runs it to the end. The
// entities are those of a run that was never killed.
func TestKilledImportIsFinished(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "netbox.json", netBoxDump())
	owners := writeFile(t, "clients.csv", "tenant,email,first,last\nInitech,bill@example.com,Bill,Lumbergh\n")
	texts := func(c *testkit.Client) (all []string) {
		for _, e := range listEntities(t, c) {
			e.ID = 0
			all = append(all, fmt.Sprintf("%s %s %s %s", e.Group.Name, e.FullIP, e.Status, e.Note))
		}
		slices.Sort(all)
		return all
	}
	_, whole := producttest.Start(t)
	importFile(t, whole, "netbox", file).expect(t, 0)
	importFile(t, whole, "netbox", file, "--clients", owners).expect(t, 0)
	want := texts(whole)

	_, c := producttest.Start(t)
	for _, args := range [][]string{{"netbox", file}, {"netbox", file, "--clients", owners}} {
		for kills := 0; !killImport(t, c, args); kills++ {
			if kills == 100 {
				t.Fatal("got an import that never ends, want each run to finish a request")
			}
		}
	}
	expect(t, "entities", texts(c), want)
}

// killImport runs the program, and kills it before it gets the answer to the first request that changes something. It reports
// whether the program ended without such a request.
func killImport(t *testing.T, c *testkit.Client, args []string) bool {
	t.Helper()
	api, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), os.Args[0], args...)
	var killed atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(api)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			proxy.ServeHTTP(w, r)
			return
		}
		if killed.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		if err := program.Process.Kill(); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	program.Env = append(os.Environ(), asProgram+"=1", "IRONPLANE_KEY="+c.Key, "IRONPLANE_URL="+server.URL)
	output, err := program.CombinedOutput()
	if err != nil && !killed.Load() {
		t.Fatalf("got %v, want the program to end: %s", err, output)
	}
	return !killed.Load()
}
