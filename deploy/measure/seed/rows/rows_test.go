package rows_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/measure/seed/rows"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func databases(t *testing.T) map[string]secret.String {
	var services []testkit.Service
	for _, d := range []service.Definition{clients.Definition, identity.Definition, network.Definition, pxe.Definition} {
		services = append(services, testkit.Service{Name: d.Name, Migrations: d.Migrations})
	}
	return testkit.Databases(t, services...)
}

// TestFill shows that Fill leaves the schema as it was, and that the same seed gives the same rows.
func TestFill(t *testing.T) {
	t.Parallel()
	one, two := databases(t), databases(t)
	conn := connect(t, one[network.Name])
	before := text(t, conn, schema)
	o := rows.Options{Entities: 3000, Seed: 7, MasterKey: seal.NewMasterKey(), Progress: t.Output()}
	for _, urls := range []map[string]secret.String{one, two} {
		if err := rows.Fill(t.Context(), urls, o); err != nil {
			t.Fatal(err)
		}
	}
	if after := text(t, conn, schema); after != before {
		t.Errorf("got the schema\n%s\nwant\n%s", after, before)
	}
	for service, tables := range map[string][]string{
		clients.Name:  {"client", "client_server_count"},
		network.Name:  {"ip_group", "ip_entity", "ip_assignment", "ip_free", "ip_group_count", "ip_group_server_count", "port_speed"},
		identity.Name: {"admin", "api_key"},
		pxe.Name:      {"dhcp_server"},
	} {
		for _, table := range tables {
			all := "SELECT coalesce(string_agg(row::text, E'\\n' ORDER BY row::text), '') " +
				"FROM (SELECT to_jsonb(r) - '{created_at,http_api_key}'::text[] AS row FROM " + table + " r) rows" // encrypted values differ
			if a, b := text(t, connect(t, one[service]), all), text(t, connect(t, two[service]), all); a != b || a == "" {
				t.Errorf("%s: got no rows or different ones, want the same in both", table)
			}
		}
	}
	const owned = "FROM ip_assignment WHERE server_id IS NOT NULL GROUP BY owner_id) counts"
	if counted, actual := text(
		t,
		connect(t, one[clients.Name]),
		"SELECT string_agg(id || ': ' || servers, ', ' ORDER BY id) FROM client_server_count WHERE servers > 0",
	),
		text(
			t,
			conn,
			"SELECT string_agg(id || ': ' || servers, ', ' ORDER BY id) FROM (SELECT owner_id AS id, count(DISTINCT server_id) AS servers "+owned,
		); counted != actual {
		t.Errorf("got clients with the servers %s, want %s", counted, actual)
	}
	if n := text(t, conn, "SELECT count(*)::text FROM ip_entity_view"); n != "3000" {
		t.Errorf("got %s entities, want 3000", n)
	}
	if matches := text(
		t,
		conn,
		"SELECT (NOT EXISTS (TABLE ip_free EXCEPT TABLE ip_unassigned) AND NOT EXISTS (TABLE ip_unassigned EXCEPT TABLE ip_free))::text",
	); matches != "true" {
		t.Error("got free addresses that differ from the unassigned ones, want the same")
	}
	if matches := text(t, conn, counts); matches != "true" {
		t.Error("got counts that differ from the rows, want the same")
	}
	if kinds := text(t, conn, kinds); kinds != "true" {
		t.Error("got a kind of entity without rows, want all kinds")
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO ip_group (name, reserved) VALUES ('next', false)"); err != nil {
		t.Errorf("got %v for the next group, want the id after the last", err)
	}
	if err := rows.Fill(t.Context(), one, o); err == nil {
		t.Error("got a full database seeded again, want an error")
	}
}

// schema reads the description of all tables from the catalog.
const schema = `
	SELECT string_agg(line, E'\n' ORDER BY line) FROM (
		SELECT indexdef AS line FROM pg_indexes WHERE schemaname = current_schema()
		UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, contype, convalidated, condeferrable, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = current_schema()::regnamespace
		UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgfoid::regproc, tgtype, tgenabled) FROM pg_trigger
		UNION ALL SELECT concat_ws(' ', attrelid::regclass, attnum, attname, atttypid::regtype, attnotnull, attidentity, attgenerated, attstattarget) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'v')) lines`

const counts = `
	SELECT (NOT EXISTS (SELECT id, entities_count, servers_count FROM ip_group_view WHERE entities_count > 0 EXCEPT TABLE ip_group_counted)
		AND NOT EXISTS (TABLE ip_group_server_count EXCEPT TABLE ip_group_server_counted)
		AND NOT EXISTS (TABLE ip_free_counted EXCEPT TABLE ip_free_count) AND NOT EXISTS (TABLE ip_free_chunked EXCEPT TABLE ip_free_chunk)
		AND EXISTS (TABLE ip_free_chunk))::text`

const kinds = `
	SELECT (bool_or(v4_scope = 0) AND bool_or(v4_scope > 0) AND bool_or(v6_scope = 0) AND bool_or(v6_scope > 0)
		AND bool_or(v4_bits > 0) AND bool_or(v4_last > v4_first AND v4_bits IS NULL) AND bool_or(v4_last = v4_first)
		AND bool_or(v6_bits > 0) AND bool_or(v6_last = v6_first) AND bool_or(v4_span IS NOT NULL AND v6_span IS NOT NULL)
		AND bool_or(nickname IS NOT NULL) AND bool_or(billing_id IS NOT NULL) AND bool_or(vlan IS NOT NULL) AND bool_or(vlan IS NULL))::text
	FROM ip_entity`

func connect(t *testing.T, url secret.String) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func text(t *testing.T, conn *pgx.Conn, query string) (text string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}
