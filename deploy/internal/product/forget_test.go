package product

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// kept are the tables that a restored schema keeps as they are in the backup.
var kept = strings.Fields(`
	change change_reader consumer history idempotency_stripe job_runner key_check lock maintenance message_taken migrating ref sequencer
	migration migration_checksum migration_river migration_shared river_leader river_migration river_notification river_queue
	known_grant
	admin api_key authenticator openid_provider openid_subject setting_copy signed_in_from verify_method
	client client_reach client_recount client_server_count email_use sub_link super_link suspension
	allocating field field_value folding forward_gateway forward_gateway_group forward_type integration_count ip_assignment ip_entity ip_free ip_free_chunk
	ip_free_count ip_free_delta ip_group ip_group_count ip_group_delta ip_group_server_count ip_group_server_delta ip_held_count ip_held_delta ip_owner_of_before port_speed
	boot_script dhcp_server driver file_server install_mac install_report install_request iso iso_edition preseed profile profile_driver profile_seed profile_shell_after profile_shell_during shell_script site_agent stored_file stored_piece stored_prefix
	acme_account email_message email_template integration license log log_checkpoint log_countersigned log_head log_target package part part_type setting setting_group ssl theme todo webhook webhook_delivery webhook_event`)

// Temporary data must not return with a backup. So a restore deletes each table's rows, or the table is listed in kept.
func TestRestoreKnowsAllTables(t *testing.T) {
	t.Parallel()
	var deleted []string
	for _, statement := range deleteTemporary {
		for _, named := range regexp.MustCompile(`(?:DELETE FROM|UPDATE) (\w+)`).FindAllStringSubmatch(statement, -1) {
			deleted = append(deleted, named[1])
		}
	}
	services := make([]testkit.Service, len(Services))
	for n, s := range Services {
		services[n] = testkit.Service{Name: s.Name, Migrations: s.Migrations}
	}
	existing := map[string]bool{}
	for name, url := range testkit.Databases(t, services...) {
		conn, err := pgx.Connect(t.Context(), url.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		rows, err := conn.Query(
			t.Context(),
			"SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition",
			name,
		)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			existing[table] = true
			if !slices.Contains(deleted, table) && !slices.Contains(kept, table) {
				t.Errorf("got the table %s of %s, want it known to a restore. Where its rows expire or are on their way, add a statement to "+
					"deleteTemporary in history.go; else add the table to kept in forget_test.go.", table, name)
			}
		}
	}
	for _, table := range slices.Concat(deleted, kept) {
		if !existing[table] {
			t.Errorf("got no table %s, want each table in deleteTemporary and kept to exist", table)
		}
	}
}
