package product_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// reseals matches a line that Reseal prints of a service.
var reseals = regexp.MustCompile(`(?m)^(\w+): older keys were needed for (\d+) values, and are still needed for (\d+)\.$`)

// The master key can be changed while the product runs. After resealing, the old key is removed, all secrets can be read,
// and the log verifies.
func TestReseal(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	for n := range 3 {
		i.admin.Do(http.MethodPost, "/pxe/dhcp", fmt.Sprintf(`{"name": "dhcp %d", "http": {"host": "192.0.2.%d", "api_key": "dhcp key"}}`, n, n)).
			Want(200)
		i.admin.Do(http.MethodPost, "/forward/gateway", fmt.Sprintf(`{"name": "nat %d", "hostname": "192.0.2.%d", "api_key": "nat key", "port_limit": "1"}`, n, n)).
			Want(200)
	}
	outbox := i.outbox()
	i.sendSecret(outbox)
	producttest.AwaitLog(t, i.product)
	newest := seal.NewMasterKey()
	i.masterKey = secret.New(newest.Reveal() + "," + i.masterKey.Reveal())
	i.restart()

	var editing sync.WaitGroup
	editing.Go(func() {
		for n := range 20 {
			i.admin.Do(http.MethodPatch, "/pxe/dhcp/1", fmt.Sprintf(`{"http": {"api_key": "dhcp key %d"}}`, n)).Want(200)
		}
	})
	var output strings.Builder
	if err := product.Reseal(t.Context(), testkit.AdminURL(t, i.urls[network.Name]), i.masterKey, &output); err != nil {
		t.Fatal(err)
	}
	editing.Wait()
	resealed := map[string]int{}
	for _, line := range reseals.FindAllStringSubmatch(output.String(), -1) {
		if resealed[line[1]], _ = strconv.Atoi(line[2]); line[3] != "0" {
			t.Errorf("got %q, want 0 values that still need older keys", line[0])
		}
	}
	// The edits may reseal one of the three DHCP servers' keys first. The number of the system service's signatures varies.
	if resealed[clients.Name] != 1 || resealed[network.Name] != 3 || resealed[pxe.Name] < 2 || resealed[system.Name] < 1 {
		t.Errorf("got %v resealed values, want 1 of clients, 3 of network, at least 2 of pxe and 1 of system:\n%s", resealed, &output)
	}
	producttest.AwaitLog(t, i.product)
	i.masterKey = newest
	i.restart()
	i.verify()
	for location, values := range map[seal.Location]string{
		{Table: "dhcp_server", Column: "http_api_key", ID: 1}: "dhcp key 19", {Table: "dhcp_server", Column: "http_api_key", ID: 3}: "dhcp key",
		{Table: "forward_gateway", Column: "api_key", ID: 2}: "nat key",
	} {
		d := pxe.Definition
		if location.Table == "forward_gateway" {
			d = network.Definition
		}
		box, err := d.NewBox(i.masterKey)
		if err != nil {
			t.Fatal(err)
		}
		var sealed []byte
		query := "SELECT " + location.Column + " FROM " + location.Table + " WHERE id = $1"
		if err := i.product.Databases[d.Name].QueryRow(t.Context(), query, location.ID).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		if value, err := box.Open(location, sealed); err != nil || value.Reveal() != values {
			t.Errorf("%+v: got %q (%v), want %q", location, value.Reveal(), err, values)
		}
	}
	var n int64
	var sealed []byte
	if err := i.product.Databases[clients.Name].QueryRow(t.Context(), "SELECT n, sealed FROM message").Scan(&n, &sealed); err != nil {
		t.Fatal(err)
	}
	if value, err := i.outbox().Box.Open(
		seal.Location{Table: "message", Column: "sealed", ID: n},
		sealed,
	); err != nil ||
		value.Reveal() != "on its way" {
		t.Errorf("got the message %q (%v), want %q", value.Reveal(), err, "on its way")
	}
}

// outbox returns the outbox for messages of clients to the system service.
func (i *installation) outbox() *events.Outbox {
	i.Helper()
	key, err := seal.Derive(i.masterKey, clients.Name, clients.Definition.Purposes()...)
	if err != nil {
		i.Fatal(err)
	}
	var deps service.Deps
	if err := host.Unlock(clients.Definition, &deps, key); err != nil {
		i.Fatal(err)
	}
	return deps.Outboxes[system.Name]
}

// sendSecret sends a message with a secret that no service receives.
func (i *installation) sendSecret(outbox *events.Outbox) {
	i.Helper()
	err := i.product.Databases[clients.Name].InTx(i.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		return outbox.Send(i.Context(), tx, "of a newer version", nil, secret.New("on its way"))
	})
	if err != nil {
		i.Fatal(err)
	}
}

// Each column of bytes is declared as sealed, so that Reseal finds it, or is listed here with its reason.
func TestSealedColumnsAreDeclared(t *testing.T) {
	t.Parallel()
	p, _ := producttest.Start(t)
	other := []string{
		"idempotency.id",
		"idempotency.fingerprint",
		"idempotency.answer", // under keys of the callers' values
		"api_key.hash",
		"session_value.hash",
		"password_reset.hash",
		"sso_code.hash",
		"adoption.hash",
		"verify_code.challenge",
		"recovery_code.hash",
		"openid_login.hash",
		"openid_login.challenge",
		"migration_checksum.checksum",
		"river_job.unique_key",
		"stored_file.hash", // SHA-256
		"authenticator.handle",
		"authenticator.credential",
		"authenticator.public_key",
		"verify_code.signed", // of security keys: no secrets
		"key_check.sealed",   // of every service that seals
		"message.sealed",     // of every service that sends messages
		// Signed, which Resign knows.
		"log.mac",
		"log_head.mac",
		"log_head.signature",
		"log_head.checkpoint",
		"log_checkpoint.mac",
		"log_checkpoint.signature",
		"log_countersigned.digest",
		"log_countersigned.signature",
	}
	for _, d := range product.Services {
		rows, err := p.Databases[d.Name].Query(t.Context(), `
			SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND a.atttypid IN ('bytea'::regtype, 'bytea[]'::regtype) AND a.attnum > 0 AND NOT a.attisdropped`)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range found {
			if !slices.Contains(d.Sealed, column) && !slices.Contains(other, column) {
				t.Errorf("got the column %s.%s, want it in the definition's Sealed, or here with what it is", d.Name, column)
			}
		}
		for _, column := range d.Sealed {
			if !slices.Contains(found, column) {
				t.Errorf("got no column %s.%s, want each of the definition's Sealed to exist", d.Name, column)
			}
		}
	}
}
