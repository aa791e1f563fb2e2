package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/clients/clientstest"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// checkCrash compares what is left with what was answered.
func checkCrash(t *testing.T, f *fleet, c *testkit.Client, book *ledger) {
	t.Helper()
	databases := map[string]*pg.DB{}
	for _, name := range product.Names() {
		databases[name] = openDatabase(t, f, name).DB
	}
	drain(t, databases)
	book.post.check(databases)
	drain(t, databases) // of what became of mails
	log := readLog(t, databases[system.Name])
	checkLogged(t, log, book)
	checkChains(t, withoutLost(t, log, databases), c)
	checkVerifies(t, f)
	checkReferences(t, databases)
	checkCounts(t, databases[network.Name], c)
	clientstest.CheckReach(t, databases[clients.Name])
}

// drain waits until everybody has heard of everything.
func drain(t *testing.T, databases map[string]*pg.DB) {
	t.Helper()
	state := func(service, sql string, args ...any) (n int64) {
		t.Helper()
		if err := databases[service].QueryRow(t.Context(), "SELECT coalesce(("+sql+"), 0)", args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for source := range databases {
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			unnumbered, last := state(source, "SELECT count(*) FROM change WHERE seq IS NULL"), state(source, "SELECT last FROM sequencer")
			logged := state(system.Name, "SELECT max(seq) FROM log WHERE source = $1", source)
			if unnumbered == 0 && logged == last {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: got %d changes without a number and %d logged last, want 0 and %d", source, unnumbered, logged, last)
			}
		}
	}
	for _, source := range []string{clients.Name, pxe.Name} {
		testkit.Eventually(t, "network has heard of all changes of "+source, func() bool {
			return state(network.Name, "SELECT min(seq) FROM consumer WHERE source = $1", source) >= state(source, "SELECT last FROM sequencer")
		})
	}
}

// logged is an item of the log.
type logged struct {
	id, seq               int64
	source, kind, request string
	targets               []pg.Target
	changes               map[string]struct{ Before, After any }
}

func readLog(t *testing.T, db *pg.DB) (log []logged) {
	t.Helper()
	rows, err := db.Query(t.Context(), "SELECT id, seq, source, type, coalesce(request_id, ''), targets, changes FROM log ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var item logged
		var targets, changes []byte
		if err := rows.Scan(&item.id, &item.seq, &item.source, &item.kind, &item.request, &targets, &changes); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(targets, &item.targets); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(changes, &item.changes); err != nil {
			t.Fatal(err)
		}
		log = append(log, item)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return log
}

// withoutLost is the log without the changes that were lost with a schema. All others are there once.
func withoutLost(t *testing.T, log []logged, databases map[string]*pg.DB) (kept []logged) {
	t.Helper()
	type change struct {
		source string
		seq    int64
	}
	there, lost := map[change]int{}, map[string]int{}
	for source, db := range databases {
		rows, err := db.Query(t.Context(), "SELECT seq FROM change")
		if err != nil {
			t.Fatal(err)
		}
		var seq int64
		if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error {
			there[change{source, seq}]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	restored := map[string]bool{}
	for _, item := range log {
		of := change{item.source, item.seq}
		switch n, is := there[of]; {
		case item.kind == "event.restored":
			restored[item.source] = true
		case !is:
			lost[item.source]++
		case n != 1:
			t.Errorf("change %d of %s: got several log items, want one", item.seq, item.source)
		default:
			there[of] = 0
			kept = append(kept, item)
		}
	}
	for of, n := range there {
		if n > 0 {
			t.Errorf("change %d of %s: got no log item, want one", of.seq, of.source)
		}
	}
	for source, n := range lost {
		if !restored[source] {
			t.Errorf("got %d log items of changes that %s does not have, want none, as it was not restored", n, source)
		}
	}
	t.Logf("%v changes are in the log alone", lost)
	return kept
}

// checkLogged looks for each change that was answered, once, and for nothing else.
func checkLogged(t *testing.T, log []logged, book *ledger) {
	t.Helper()
	found := map[string]int{}
	for _, item := range log {
		follows := item.source == network.Name && item.kind == "group.edited" && cleared(item) || strings.HasPrefix(item.kind, "email.message.")
		if !follows { // from another request, or from one that has an item of its own
			found[item.request]++
		}
	}
	for _, change := range book.changes {
		n := 0
		if slices.ContainsFunc(change.requests, func(request string) bool { return book.unheard[request] }) {
			change.least = 0
		}
		for _, request := range change.requests {
			n += found[request]
			if found[request] > 1 {
				t.Errorf("%s as %s: got %d log items, want at most 1", change.what, request, found[request])
			}
			delete(found, request)
		}
		if n < change.least || n > change.most {
			t.Errorf("%s, sent as %v: got %d log items, want %d to %d", change.what, change.requests, n, change.least, change.most)
		}
	}
	for request, n := range found {
		if strings.HasPrefix(request, "crash-") {
			t.Errorf("%s: got %d log items, want none, as this request changed nothing", request, n)
		}
	}
}

// cleared tells whether an item is of a group that lost its DHCP server because that is gone.
func cleared(item logged) bool {
	_, renamed := item.changes["name"] // as by each request, but for one that was sent again and changes nothing
	named := item.changes[pxeField+".id"]
	return !renamed && named.Before != nil && named.After == nil
}

// checkChains goes through each item's changes: what one found, the one before has left. What the last has left is
// there.
func checkChains(t *testing.T, log []logged, c *testkit.Client) {
	t.Helper()
	things := map[string]map[string]any{}
	for _, item := range log {
		for _, target := range item.targets {
			if bodies[target.Type] == nil || strings.HasPrefix(item.kind, "group.entities") || strings.HasPrefix(item.kind, "email.") ||
				strings.HasPrefix(item.kind, "client.sub.") ||
				item.kind == "client.emailed" {
				continue
			}
			at := fmt.Sprintf("/%s/%d", target.Type, target.ID)
			thing, there := things[at]
			if created := strings.HasSuffix(item.kind, ".created"); created == there {
				t.Errorf("log item %d, %s: %s is there before it: got %t, want %t", item.id, item.kind, at, there, !created)
			}
			if !there {
				thing = map[string]any{}
				things[at] = thing
			}
			for member, change := range item.changes {
				if member == pxeField+".name" || change.Before == "[secret]" || change.After == "[secret]" {
					continue
				}
				if !reflect.DeepEqual(thing[member], change.Before) {
					t.Errorf(
						"log item %d, %s of %s: got %s with the old value %v, want %v, which the item before left",
						item.id,
						item.kind,
						at,
						member,
						change.Before,
						thing[member],
					)
				}
				thing[member] = change.After
			}
			if strings.HasSuffix(item.kind, ".deleted") {
				things[at] = map[string]any{}
			}
		}
	}
	compared := 0
	for at, thing := range things {
		answer := c.Do("GET", at, nil)
		if len(thing) == 0 {
			answer.Want(404)
			continue
		}
		if name := testkit.Decode[struct{ Name string }](answer.Want(200)).Name; name != thing["name"] {
			t.Errorf("%s: got the name %q, want %q as in the log", at, name, thing["name"])
		}
		compared++
	}
	if compared == 0 {
		t.Error("got no item to compare, want at least one")
	}
}

func checkVerifies(t *testing.T, f *fleet) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, system.Name), "verify")
	cmd.Env = f.serviceEnvironment(system.Name)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil || !strings.Contains(said.String(), "is logged exactly once") {
		t.Errorf("verify: got %v and %s, want every change logged exactly once", err, said.String())
	}
}

// checkReferences compares what groups and entities name with what pxe and clients have.
func checkReferences(t *testing.T, databases map[string]*pg.DB) {
	t.Helper()
	names := func(service, sql string) map[int64]string {
		t.Helper()
		rows, err := databases[service].Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		found := map[int64]string{}
		for rows.Next() {
			var id int64
			var name string
			if err := rows.Scan(&id, &name); err != nil {
				t.Fatal(err)
			}
			found[id] = name
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, reference := range []struct{ service, items, used string }{
		{pxe.Name, "SELECT id, name FROM dhcp_server", "SELECT pxe_dhcp_server_id, pxe_dhcp_server_name FROM ip_group_view " +
			"WHERE pxe_dhcp_server_id IS NOT NULL"},
		{clients.Name, "SELECT id, name FROM client", "SELECT owner_id, min(owner_name) FROM ip_assignment GROUP BY owner_id HAVING " +
			"min(owner_name) = max(owner_name) AND NOT bool_or(owner_missing)"},
	} {
		there := names(reference.service, reference.items)
		for id, name := range names(network.Name, reference.used) {
			if there[id] != name {
				t.Errorf("network's name of %s %d: got %q, want %q", reference.service, id, name, there[id])
			}
		}
	}
	var restored bool
	if err := databases[network.Name].QueryRow(t.Context(), "SELECT count(*) > 1 FROM history").Scan(&restored); err != nil {
		t.Fatal(err)
	}
	there := names(clients.Name, "SELECT id, name FROM client")
	for id, name := range names(network.Name, "SELECT owner_id, owner_name FROM ip_assignment WHERE owner_missing") {
		if there[id] != "" || !restored { // what came back may be of a client that is gone since, and says so
			t.Errorf("client %d (%s): got an assignment that says it is missing, want that only if deleted, after a restore", id, name)
		}
	}
}

// checkCounts compares what is said of how full groups are with what is counted anew.
func checkCounts(t *testing.T, db *pg.DB, c *testkit.Client) {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		SELECT v.id, coalesce(c.entities, 0), coalesce(c.servers, 0), coalesce(f.free, 0)
		FROM ip_group v LEFT JOIN ip_group_counted c ON c.group_id = v.id LEFT JOIN ip_free_counted f ON f.group_id = v.id`)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	var id, entities, servers, free int64
	_, err = pgx.ForEachRow(rows, []any{&id, &entities, &servers, &free}, func() error {
		at := fmt.Sprintf("/group/%d", id)
		group := testkit.Decode[network.IPGroup](c.Do("GET", at, nil).Want(200))
		full := testkit.Decode[network.Utilization](c.Do("GET", at+"/utilization", nil).Want(200))
		if group.EntitiesCount != entities || group.Servers.Count != servers || full.Free != free || full.Used != entities-free {
			t.Errorf("%s: got %+v and %+v, want %d entities, %d servers and %d free", at, group, full, entities, servers, free)
		}
		compared += int(entities)
		return nil
	})
	if err != nil || compared == 0 {
		t.Errorf("got %d entities compared (%v), want at least one", compared, err)
	}
}
