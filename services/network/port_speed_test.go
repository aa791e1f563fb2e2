package network_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestPortSpeed(t *testing.T) {
	t.Parallel()
	c := newClient(t)

	created := testkit.Decode[network.PortSpeed](
		c.Do("POST", "/port-speed", `{"name": "1 Gbit/s", "billing_id": "GE", "speed": 1000}`).
			Want(200),
	)
	if created.Name != "1 Gbit/s" || *created.BillingID != "GE" || created.Speed != 1000 || created.SwitchPortCount {
		t.Fatalf("got %+v, want 1 Gbit/s with the billing id GE and the speed 1000", created)
	}
	c.Do("POST", "/port-speed", `{"name": " ", "speed": 0, "billing_id": [7]}`).
		WantErrors("/billing_id", "type", "/name", "required", "/speed", "out_of_range")
	c.Do("POST", "/port-speed", `{"name": "x", "speed": 1, "colour": "red"}`).WantErrors("/colour", "unknown")
	c.Do("POST", "/port-speed", `{}`).WantErrors("/name", "required", "/speed", "required")
	c.Do("POST", "/port-speed", `{"name": "x", "speed": 1.5}`).WantErrors("/speed", "type")
	c.Do("POST", "/port-speed", `{"name": "x", "speed": 99999999999999999999}`).WantErrors("/speed", "out_of_range")

	c.Do("PATCH", "/port-speed/1", `{"speed": 10}`).WantErrors("/billing_id", "required", "/name", "required")
	edited := testkit.Decode[network.PortSpeed](
		c.Do("PATCH", "/port-speed/1", `{"name": "10 Gbit/s", "speed": 10000, "billing_id": null}`).Want(200),
	)
	if edited.Name != "10 Gbit/s" || edited.BillingID != nil || edited.Speed != 10000 {
		t.Fatalf("got %+v, want 10 Gbit/s with the speed 10000 and without a billing id", edited)
	}
	if viewed := testkit.Decode[network.PortSpeed](c.Do("GET", "/port-speed/1", nil).Want(200)); viewed != edited {
		t.Fatalf("got %+v, want %+v", viewed, edited)
	}
	if all := testkit.Decode[[]network.PortSpeed](c.Do("GET", "/port-speed", nil).Want(200)); len(all) != 1 || all[0] != edited {
		t.Fatalf("got the list %+v, want only %+v", all, edited)
	}

	if got := c.Do("DELETE", "/port-speed/1", nil).Want(200).Text; got != `{"message":"Port speed 1 deleted."}`+"\n" {
		t.Fatalf("got %s, want that port speed 1 is deleted", got)
	}
	c.Do("DELETE", "/port-speed/1", nil).WantDetail(problem.NotFound, "There is no such item.")
	c.Do("PATCH", "/port-speed/1", `{}`).WantDetail(problem.NotFound, "There is no such item.")
	if empty := c.Do("GET", "/port-speed", nil).Want(200).Text; empty != "[]\n" {
		t.Fatalf("got the list %s, want an empty one", empty)
	}
}

func TestPortSpeedsAreUnique(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/port-speed", `{"name": "1 Gbit/s", "billing_id": "GE", "speed": 1000}`).Want(200)
	c.Do("POST", "/port-speed", `{"name": "1 Gbit/s", "speed": 1000}`).WantErrors("/name", "taken")
	c.Do("POST", "/port-speed", `{"name": "another", "billing_id": "GE", "speed": 1000}`).WantErrors("/billing_id", "taken")
	c.Do("POST", "/port-speed", `{"name": "a", "speed": 1}`).Want(200)
	b := c.Do("POST", "/port-speed", `{"name": "b", "speed": 1}`).Want(200).ID() // without a billing id, any number
	c.Do("PATCH", fmt.Sprint("/port-speed/", b), `{"name": "a", "billing_id": null, "speed": 1}`).WantErrors("/name", "taken")
}

// The migration makes the names and billing ids of old port speeds unique by adding their ids.
func TestPortSpeedsOfBefore(t *testing.T) {
	t.Parallel()
	migration, err := os.ReadFile("migrations/0016_unique_port_speeds.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := newDatabase(t)
	testkit.Execute(t, db, `ALTER TABLE port_speed DROP CONSTRAINT port_speed__name, DROP CONSTRAINT port_speed__billing_id;
		INSERT INTO port_speed (name, billing_id, speed) VALUES ('a', 'A', 1), ('a', NULL, 2), ('a', 'A', 3), ('a (2)', NULL, 4), ('b', 'B', 5);
		`+string(migration), pgx.QueryExecModeSimpleProtocol)
	var all string
	if err := db.QueryRow(t.Context(), "SELECT string_agg(concat_ws('|', name, billing_id), ', ' ORDER BY id) FROM port_speed").
		Scan(&all); err != nil {
		t.Fatal(err)
	}
	if want := "a|A, a (2), a (3)|A (3), a (2) (4), b|B"; all != want {
		t.Errorf("got %s, want %s", all, want)
	}
}
