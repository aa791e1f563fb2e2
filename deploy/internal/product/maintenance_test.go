package product_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
)

// health is the answer of /-/health.
type health struct {
	Status, Detail, By string
	Since              time.Time
	Services           []string
}

// With a file, reads succeed, changes are refused, and the services' jobs wait.
func TestMaintenanceFile(t *testing.T) { both(t, testMaintenanceFile) }

func testMaintenanceFile(t *testing.T, p *product.Product, c *testkit.Client) {
	id := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	item := path("/group/%d", id)
	producttest.AwaitLog(t, p)
	if health := c.Do("GET", "/-/health", nil).Want(200); health.Text != `{"status":"ok"}`+"\n" {
		t.Errorf("got the health %s, want ok", health.Text)
	}

	if err := p.Maintenance.Begin("The database moves until 14:00."); err != nil {
		t.Fatal(err)
	}
	for _, change := range []*testkit.Response{
		c.Do("POST", "/group", `{"name": "Bonn"}`), c.Do("PATCH", item, `{"name": "Bonn"}`), c.Do("DELETE", item, nil),
		c.Do("POST", "/auth/key", `{"name": "another"}`), c.Do("DELETE", "/auth/key/1", nil), c.Do("GET", "/auth/sso", nil),
	} {
		change.WantDetail(problem.Unavailable,
			"The installation is in maintenance and accepts no changes. Reason: The database moves until 14:00.")
		if change.Header.Get("Retry-After") != "30" {
			t.Errorf("got Retry-After %q, want 30", change.Header.Get("Retry-After"))
		}
	}
	for _, read := range []string{item, "/group", "/log", "/auth/key/current", "/-/openapi.json"} {
		c.Do("GET", read, nil).Want(200)
	}
	health := testkit.Decode[health](c.Do("GET", "/-/health", nil).Want(200))
	if health.Status != "maintenance" || health.Detail != "The database moves until 14:00." || health.By != "file" ||
		time.Since(health.Since) > time.Hour {
		t.Errorf("got the health %+v, want maintenance by a file, with its detail", health)
	}

	// Changes that bypass the gateway are logged only after the maintenance.
	logged := func() (n int) {
		if err := p.Databases[system.Name].QueryRow(t.Context(), "SELECT count(*) FROM log WHERE type = 'auth.key.created'").
			Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(soon); ; {
		before := logged()
		if _, _, err := admin.CreateKey(t.Context(), p.Databases[identity.Name]); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(300 * time.Millisecond); logged() == before { // far longer than logging takes otherwise
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("got a log that still grows, want it unchanged during maintenance")
		}
	}

	if err := p.Maintenance.End(); err != nil {
		t.Fatal(err)
	}
	c.Do("PATCH", item, `{"name": "Bonn"}`).Want(200)
	producttest.AwaitLog(t, p)
	if log := c.Do("GET", "/log", nil).Want(200).Text; !strings.Contains(log, "Bonn") {
		t.Errorf("got the log %s, want Bonn in it", log)
	}
	if health := c.Do("GET", "/-/health", nil).Want(200); health.Text != `{"status":"ok"}`+"\n" {
		t.Errorf("got the health %s, want ok", health.Text)
	}
}

// maintain runs a command of maintenance on the databases of an installation, and returns what it prints.
func maintain(t *testing.T, admin secret.String, command, reason string) string {
	t.Helper()
	var screen strings.Builder
	commands := product.MaintenanceCommands(func() product.Maintenance {
		return product.Maintenance{
			Reason: reason,
			Screen: &screen,
			AsAdministrator: func(ctx context.Context, do func(context.Context, secret.String) error) error {
				return do(ctx, admin)
			},
		}
	})
	n := slices.IndexFunc(commands, func(c process.Command) bool { return c.Name == command })
	if err := commands[n].Run(t.Context()); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return screen.String()
}

// refused has a path of each service to which the switch test sends an invalid change. Outside maintenance that is a 422.
var refused = map[string]string{
	"clients": "/client", "identity": "/admin", "network": "/group", "pxe": "/pxe/profile", "system": "/part",
}

// One command lets each instance of each service refuse changes, and another one lets them accept changes again.
func TestMaintenanceSwitch(t *testing.T) {
	t.Parallel()
	poll := service.Tuning{PollInterval: time.Second} // nothing wakes the services when a command changes the database
	i := producttest.NewInstallation(t, testkit.Redis(t), service.Settings{Tuning: poll})
	admin := i.AdminURL(t)
	instances := []*product.Product{i.Open(t), i.Open(t)}
	first := producttest.FirstAdmin(t, instances[0])
	var clients []*testkit.Client
	for _, p := range instances {
		clients = append(clients, testkit.NewClient(t, p.Gateway).WithKey(first.Key))
	}
	await := func(clients []*testkit.Client, accepts bool) {
		t.Helper()
		for _, c := range clients {
			for name, path := range refused {
				testkit.Eventually(t, fmt.Sprintf("%s accepts changes: %t", name, accepts), func() bool {
					return (c.Do("POST", path, `{}`).Status != http.StatusServiceUnavailable) == accepts
				})
			}
		}
	}
	await(clients, true)
	if out := maintain(t, admin, "maintenance-status", ""); out != "Maintenance is off.\n" {
		t.Errorf("got %q, want it off", out)
	}
	maintain(t, admin, "maintenance-on", " Disks are replaced. \n")
	await(clients, false)
	for _, c := range clients {
		answer := c.Do("POST", "/group", `{"name": "Bonn"}`)
		answer.WantDetail(problem.Unavailable, "The installation is in maintenance and accepts no changes. Reason: Disks are replaced.")
		if got := answer.Header.Get("Retry-After"); got != "30" {
			t.Errorf("got Retry-After %q, want 30", got)
		}
		c.Do("GET", "/group", nil).Want(200)
		testkit.Eventually(t, "the health says maintenance", func() bool {
			is := testkit.Decode[health](c.Do("GET", "/-/health", nil).Want(200))
			return is.Status == "maintenance" && is.Detail == "Disks are replaced." && is.By == "switch" && len(is.Services) == 0 &&
				time.Since(is.Since) < time.Hour
		})
	}
	if out := maintain(t, admin, "maintenance-status", ""); !strings.Contains(out, "on since 2") ||
		!strings.Contains(out, `with the reason "Disks are replaced."`) || strings.Count(out, "\n") != 1 {
		t.Errorf("got %q, want it on, since when and why", out)
	}

	// An instance that starts during maintenance knows of it.
	started := testkit.NewClient(t, i.Open(t).Gateway).WithKey(first.Key)
	for _, path := range refused {
		started.Do("POST", path, `{}`).Want(http.StatusServiceUnavailable) // from its first request
	}
	maintain(t, admin, "maintenance-on", "It takes longer.")
	clients = append(clients, started)
	for _, c := range clients {
		testkit.Eventually(t, "the reason is the new one", func() bool {
			return strings.Contains(c.Do("POST", "/group", `{}`).Text, "It takes longer.")
		})
	}
	maintain(t, admin, "maintenance-off", "")
	await(clients, true)
	clients[1].Do("POST", "/group", `{"name": "Bonn"}`).Want(200)
	for _, c := range clients {
		testkit.Eventually(t, "the health is ok", func() bool {
			return c.Do("GET", "/-/health", nil).Text == `{"status":"ok"}`+"\n"
		})
	}

	producttest.AwaitLog(t, instances[0])
	var logged []string
	type item struct {
		ID   int64
		Type string
		Data struct{ Message string }
	}
	for _, found := range testkit.Decode[[]item](first.Do("GET", "/log?sort=id&per_page=100", nil).Want(200)) {
		if strings.HasPrefix(found.Type, "system.maintenance.") {
			viewed := testkit.Decode[item](first.Do("GET", fmt.Sprintf("/log/%d", found.ID), nil).Want(200))
			logged = append(logged, viewed.Type+": "+viewed.Data.Message)
		}
	}
	want := []string{
		"system.maintenance.began: Maintenance began: active was false, is true; reason is Disks are replaced..",
		"system.maintenance.edited: The reason of the maintenance was edited: reason was Disks are replaced., is It takes longer..",
		"system.maintenance.ended: Maintenance ended: active was true, is false; reason was It takes longer..",
	}
	if !slices.Equal(logged, want) {
		t.Errorf("got the log items %q, want %q", logged, want)
	}
}

// If services differ, /-/health names those in maintenance, and the command says so.
func TestMaintenanceOfSomeServices(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	testkit.Execute(t, i.product.Databases[network.Name],
		"INSERT INTO maintenance (active, since, reason) VALUES (true, now(), 'Only here.')")
	testkit.Eventually(t, "the health names the service", func() bool {
		is := testkit.Decode[health](i.admin.Do("GET", "/-/health", nil).Want(200))
		return is.Status == "maintenance" && slices.Equal(is.Services, []string{network.Name})
	})
	i.admin.Do("POST", "/group", `{"name": "Bonn"}`).Want(503)
	i.admin.Do("POST", "/part", `{}`).Want(422)
	out := maintain(t, testkit.AdminURL(t, i.urls[network.Name]), "maintenance-status", "")
	for _, want := range []string{"Maintenance of network is on since", "Maintenance of system is off", "The services differ"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %q in it", out, want)
		}
	}
}

// A restored schema has the switch of its backup. The command restored lets it follow the last command.
func TestRestoredMaintenance(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	dump := i.dumpBetween(network.Name, "before", "after")
	maintain(t, testkit.AdminURL(t, i.urls[network.Name]), "maintenance-on", "A disk is replaced.")
	i.stop()
	i.restore(network.Name, dump)
	i.reconcile()
	i.restart()
	i.admin.Do("POST", "/group", `{"name": "Bonn"}`).
		WantDetail(problem.Unavailable, "The installation is in maintenance and accepts no changes. Reason: A disk is replaced.")
}
