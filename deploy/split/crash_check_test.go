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

// checkCrash compares the data after the crashes with the responses to the callers.
func checkCrash(t *testing.T, f *fleet, c *testkit.Client, book *ledger) {
	t.Helper()
	databases := map[string]*pg.DB{}
	for _, name := range product.Names() {
		databases[name] = openDatabase(t, f, name).DB
	}
	renameReferenced(book)
	drain(t, databases)
	book.post.check(databases)
	drain(t, databases) // the results of mails are changes, too
	log := readLog(t, databases[system.Name])
	checkLogged(t, log, book)
	checkChains(t, dropLost(t, log, databases), c)
	checkVerifies(t, f)
	checkReferences(t, databases)
	checkCounts(t, databases[network.Name], c)
	clientstest.CheckReach(t, databases[clients.Name])
}

// drain waits until the log has all changes, and network has all changes of the services it refers to.
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
		var unnumbered, last, inLog int64
		testkit.Eventually(t, "the log has all changes of "+source, func() bool {
			unnumbered, last = state(source, "SELECT count(*) FROM change WHERE seq IS NULL"), state(source, "SELECT last FROM sequencer")
			inLog = state(system.Name, "SELECT max(seq) FROM log WHERE source = $1", source)
			return unnumbered == 0 && inLog == last
		}, func() string {
			return fmt.Sprintf("got %d changes without a number and %d logged last, want 0 and %d", unnumbered, inLog, last)
		})
	}
	for _, source := range []string{clients.Name, pxe.Name} {
		testkit.Eventually(t, "network has all changes of "+source, func() bool {
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

// dropLost returns the log without the changes that were lost with a schema. It tests that the log has each other
// change once.
func dropLost(t *testing.T, log []logged, databases map[string]*pg.DB) (kept []logged) {
	t.Helper()
	type change struct {
		source string
		seq    int64
	}
	stored, lost := map[change]int{}, map[string]int{}
	for source, db := range databases {
		rows, err := db.Query(t.Context(), "SELECT seq FROM change")
		if err != nil {
			t.Fatal(err)
		}
		var seq int64
		if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error {
			stored[change{source, seq}]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	restored := map[string]bool{}
	for _, item := range log {
		key := change{item.source, item.seq}
		switch n, known := stored[key]; {
		case item.kind == "event.restored":
			restored[item.source] = true
		case !known:
			lost[item.source]++
		case n != 1:
			t.Errorf("change %d of %s: got several log items, want one", item.seq, item.source)
		default:
			stored[key] = 0
			kept = append(kept, item)
		}
	}
	for key, n := range stored {
		if n > 0 {
			t.Errorf("change %d of %s: got no log item, want one", key.seq, key.source)
		}
	}
	for source, n := range lost {
		if !restored[source] {
			t.Errorf("got %d log items of changes that %s does not have, want none, as it was not restored", n, source)
		}
	}
	t.Logf("only the log has these numbers of changes: %v", lost)
	return kept
}

// checkLogged tests that the log has each confirmed change once, and no other change of a caller.
func checkLogged(t *testing.T, log []logged, book *ledger) {
	t.Helper()
	deletesClient := map[string]bool{} // by request
	for _, change := range book.changes {
		for _, request := range change.requests {
			deletesClient[request] = strings.HasPrefix(change.name, "DELETE /client/")
		}
	}
	found := map[string][]string{} // the kinds of items, by request
	for _, item := range log {
		follows := item.source == network.Name && (item.kind == "group.edited" && cleared(item) ||
			item.kind == "entity.released" && deletesClient[item.request]) || strings.HasPrefix(item.kind, "email.message.")
		if !follows { // these items follow from other requests, or from requests with an item of their own
			found[item.request] = append(found[item.request], item.kind)
		}
	}
	for _, change := range book.changes {
		var kinds []string
		if slices.ContainsFunc(change.requests, func(request string) bool { return book.unlogged[request] }) {
			change.min = 0
		}
		for _, request := range change.requests {
			kinds = append(kinds, found[request]...)
			if len(found[request]) > 1 {
				t.Errorf("%s as %s: got the log items %q, want at most 1", change.name, request, found[request])
			}
			delete(found, request)
		}
		if n := len(kinds); n < change.min || n > change.max {
			t.Errorf("%s, sent as %v: got the log items %q, want %d to %d", change.name, change.requests, kinds, change.min, change.max)
		}
	}
	for request, kinds := range found {
		if strings.HasPrefix(request, "crash-") {
			t.Errorf("%s: got the log items %q, want none, as this request changed nothing", request, kinds)
		}
	}
}

// cleared reports whether an item says that a group lost its DHCP server, because the server was deleted.
func cleared(item logged) bool {
	_, renamed := item.changes["name"] // every request renames the group, except a repetition that changes nothing
	named := item.changes[pxeField+".id"]
	return !renamed && named.Before != nil && named.After == nil
}

// checkChains tests the items of each object in their order. The old values of an item are the new values of the
// item before, and the last new values are what the API shows.
func checkChains(t *testing.T, log []logged, c *testkit.Client) {
	t.Helper()
	items := map[string]map[string]any{}
	for _, item := range log {
		for _, target := range item.targets {
			if bodies[target.Type] == nil || strings.HasPrefix(item.kind, "group.entities") || strings.HasPrefix(item.kind, "email.") ||
				strings.HasPrefix(item.kind, "client.sub.") ||
				item.kind == "client.emailed" {
				continue
			}
			at := fmt.Sprintf("/%s/%d", target.Type, target.ID)
			members, exists := items[at]
			if created := strings.HasSuffix(item.kind, ".created"); created == exists {
				t.Errorf("log item %d, %s: %s is there before it: got %t, want %t", item.id, item.kind, at, exists, !created)
			}
			if !exists {
				members = map[string]any{}
				items[at] = members
			}
			for member, change := range item.changes {
				if member == pxeField+".name" || change.Before == "[secret]" || change.After == "[secret]" {
					continue
				}
				if !reflect.DeepEqual(members[member], change.Before) {
					t.Errorf(
						"log item %d, %s of %s: got %s with the old value %v, want %v, which the item before left",
						item.id,
						item.kind,
						at,
						member,
						change.Before,
						members[member],
					)
				}
				members[member] = change.After
			}
			if strings.HasSuffix(item.kind, ".deleted") {
				items[at] = map[string]any{}
			}
		}
	}
	compared := 0
	for at, members := range items {
		response := c.Do("GET", at, nil)
		if len(members) == 0 {
			response.Want(404)
			continue
		}
		if name := testkit.Decode[struct{ Name string }](response.Want(200)).Name; name != members["name"] {
			t.Errorf("%s: got the name %q, want %q as in the log", at, name, members["name"])
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
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil || !strings.Contains(output.String(), "is logged exactly once") {
		t.Errorf("verify: got %v and %s, want every change logged exactly once", err, output.String())
	}
}

// renameReferenced creates a DHCP server and a client that network refers to, and renames both. So checkReferences always
// has something to compare.
func renameReferenced(book *ledger) {
	create := func(collection string, body map[string]any) string {
		return fmt.Sprintf("/%s/%d", collection, book.change("POST", "/"+collection, body).Want(200).ID())
	}
	server := create("pxe/dhcp", bodies["pxe/dhcp"](book, "before"))
	client := create("client", bodies["client"](book, "before"))
	id := func(path string) json.Number { return json.Number(path[strings.LastIndex(path, "/")+1:]) }
	group := create("group", map[string]any{"name": "with references", pxeField: id(server)})
	book.change("POST", group+"/entity/bulk", map[string]any{"prefix": "10.0.0.0/30", "all": true}).Want(200)
	book.change("POST", group+"/allocate", map[string]any{"owner": map[string]any{"id": id(client)}}).Want(200)
	book.change("PATCH", server, bodies["pxe/dhcp"](book, "after")).Want(200)
	book.change("PATCH", client, bodies["client"](book, "after")).Want(200)
}

// checkReferences compares the names that network stores of DHCP servers and clients with those that pxe and clients have.
func checkReferences(t *testing.T, databases map[string]*pg.DB) {
	t.Helper()
	type item struct {
		ID   int64
		Name string
	}
	read := func(service, sql string) []item {
		t.Helper()
		rows, err := databases[service].Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	names := map[string]map[int64]string{}
	for service, sql := range map[string]string{
		pxe.Name: "SELECT id, name FROM dhcp_server", clients.Name: "SELECT id, name FROM client",
	} {
		names[service] = map[int64]string{}
		for _, existing := range read(service, sql) {
			names[service][existing.ID] = existing.Name
		}
	}
	for service, sql := range map[string]string{
		pxe.Name:     "SELECT pxe_dhcp_server_id, pxe_dhcp_server_name FROM ip_group_view WHERE pxe_dhcp_server_id IS NOT NULL",
		clients.Name: "SELECT owner_id, owner_name FROM ip_assignment WHERE owner_id IS NOT NULL AND NOT owner_missing",
	} {
		references := read(network.Name, sql)
		if len(references) == 0 {
			t.Errorf("got no reference to an item of %s, want at least one", service)
		}
		for _, reference := range references {
			if want := names[service][reference.ID]; reference.Name != want || want == "" {
				t.Errorf("network's name of item %d of %s: got %q, want %q", reference.ID, service, reference.Name, want)
			}
		}
	}
	var restored bool
	if err := databases[network.Name].QueryRow(t.Context(), "SELECT count(*) > 1 FROM history").Scan(&restored); err != nil {
		t.Fatal(err)
	}
	for _, missing := range read(network.Name, "SELECT owner_id, owner_name FROM ip_assignment WHERE owner_missing") {
		_, exists := names[clients.Name][missing.ID]
		if exists || !restored { // a restored assignment may belong to a client that has been deleted since
			t.Errorf("client %d (%s): got a missing owner, want one only after a restore, and only if deleted", missing.ID, missing.Name)
		}
	}
}

// checkCounts compares the stored counts of groups with fresh counts.
func checkCounts(t *testing.T, db *pg.DB, c *testkit.Client) {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		SELECT v.id, coalesce(c.entities, 0), coalesce(c.servers, 0), coalesce(f.free, 0), coalesce(h.reserved + h.quarantined, 0)
		FROM ip_group v LEFT JOIN ip_group_counted c ON c.group_id = v.id LEFT JOIN ip_free_counted f ON f.group_id = v.id
		LEFT JOIN ip_held_counted h ON h.group_id = v.id`)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	var id, entities, servers, free, held int64
	_, err = pgx.ForEachRow(rows, []any{&id, &entities, &servers, &free, &held}, func() error {
		at := fmt.Sprintf("/group/%d", id)
		group := testkit.Decode[network.IPGroup](c.Do("GET", at, nil).Want(200))
		full := testkit.Decode[network.Utilization](c.Do("GET", at+"/utilization", nil).Want(200))
		if group.EntitiesCount != entities || group.Servers.Count != servers || full.Free != free ||
			full.Reserved+full.Quarantined != held || full.Used != entities-free-held {
			t.Errorf("%s: got %+v and %+v, want %d entities, %d servers, %d free, and %d reserved or quarantined",
				at, group, full, entities, servers, free, held)
		}
		compared += int(entities)
		return nil
	})
	if err != nil || compared == 0 {
		t.Errorf("got %d entities compared (%v), want at least one", compared, err)
	}
}
