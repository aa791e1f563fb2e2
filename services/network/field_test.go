package network_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestFields(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	created := c.Do("POST", "/field", `{"name": "Rack unit", "slug": "unit", "target_type": "entity", "type": "integer", "default": "0", "desc": "Where", "placeholder": "12"}`).
		Want(200)
	if want := `{"id":1,"name":"Rack unit","slug":"unit","desc":"Where","placeholder":"12","default":"0","target_type":"entity","type":"integer","clear_on_release":true}` + "\n"; created.Text != want {
		t.Fatalf("got %s, want %s", created.Text, want)
	}
	c.Do("POST", "/field", `{"name": "Note", "slug": "unit", "target_type": "group"}`).Want(200) // a text
	c.Do("POST", "/field", `{"name": "Again", "slug": "unit", "target_type": "entity"}`).WantErrors("/slug", "taken")
	c.Do("POST", "/field", `{}`).WantErrors("/name", "required", "/slug", "required", "/target_type", "required")
	c.Do("POST", "/field", `{"name": "x", "slug": "A b", "target_type": "switch", "type": "colour"}`).
		WantErrors("/slug", "invalid", "/target_type", "invalid", "/type", "invalid")
	c.Do("POST", "/field", `{"name": "x", "slug": "x", "target_type": "group", "type": "select"}`).WantErrors("/options", "required")
	c.Do("POST", "/field", `{"name": "x", "slug": "x", "target_type": "group", "options": "a|b"}`).WantErrors("/options", "conflict")
	c.Do("POST", "/field", `{"name": "x", "slug": "x", "target_type": "group", "type": "select", "options": "a||b"}`).
		WantErrors("/options", "invalid")
	for kind, values := range map[string][2]string{
		"integer": {"-12", "012"}, "checkbox": {"true", "yes"}, "date": {"2026-02-28", "2026-02-30"}, "select": {"a b", "c"},
		"text": {"anything", ""},
	} {
		options := ""
		if kind == "select" {
			options = `, "options": "a b|b"`
		}
		field := `{"name": "x", "slug": "of-` + kind + `", "target_type": "server", "type": "` + kind + `"` + options
		if values[1] != "" {
			c.Do("POST", "/field", field+`, "default": "`+values[1]+`"}`).WantErrors("/default", "invalid")
		}
		c.Do("POST", "/field", field+`, "default": "`+values[0]+`"}`).Want(200)
	}
	if got := names(c.Do("GET", "/field?target_type=entity", nil)); strings.Join(got, ",") != "Rack unit" {
		t.Errorf("got the fields %v, want Rack unit", got)
	}
}

func TestFieldValues(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.0.1"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "10.0.0.2"}`).Want(200)
	c.Do("POST", "/field", `{"name": "Rack unit", "slug": "unit", "target_type": "entity", "type": "integer", "default": "0"}`).Want(200)
	c.Do("POST", "/field", `{"name": "Door", "slug": "door", "target_type": "entity"}`).Want(200)
	c.Do("POST", "/field", `{"name": "Site", "slug": "site", "target_type": "group"}`).Want(200)
	c.Do("POST", "/field", `{"name": "Tier", "slug": "tier", "target_type": "client", "type": "select", "options": "gold|iron"}`).Want(200)

	if got := c.Do("POST", "/field/1/value", `{"target_id": 1, "value": "12"}`).
		Want(200); got.Text != `{"id":1,"field_id":1,"target_id":1,"value":"12"}`+"\n" ||
		got.Header.Get("ETag") != `"1"` {
		t.Fatalf(`got %s with the ETag %s, want the value 12 of entity 1 with the ETag "1"`, got.Text, got.Header.Get("ETag"))
	}
	c.Do("POST", "/field/1/value", `{"target_id": 1, "value": "13"}`).WantErrors("/target_id", "taken")
	c.Do("POST", "/field/1/value", `{"target_id": 9, "value": "13"}`).WantErrors("/target_id", "not_found")
	c.Do("POST", "/field/3/value", `{"target_id": 9, "value": "13"}`).WantErrors("/target_id", "not_found")
	c.Do("POST", "/field/1/value", `{"target_id": 2, "value": "x"}`).WantErrors("/value", "invalid")
	c.Do("POST", "/field/9/value", `{"target_id": 2, "value": "x"}`).Want(404)
	c.Do("POST", "/field/4/value", `{"target_id": 17, "value": "tin"}`).WantErrors("/value", "invalid")
	tier := fmt.Sprint("/field/4/value/", c.Do("POST", "/field/4/value", `{"target_id": 17, "value": "iron"}`).Want(200).ID())
	c.Do("POST", "/field/3/value", `{"target_id": 1, "value": "hall 7"}`).Want(200)

	for path, want := range map[string]string{
		"/field/1/value?target_id=1": `{"id":1,"field_id":1,"target_id":1,"value":"12"}`,
		"/field/1/value?target_id=2": `{"field_id":1,"target_id":2,"value":"0"}`,
		"/field/1/value":             `{"field_id":1,"value":"0"}`,
		"/field/2/value":             `{"field_id":2}`,
		"/field/1/value/1":           `{"id":1,"field_id":1,"target_id":1,"value":"12"}`,
	} {
		if got := c.Do("GET", path, nil).Want(200).Text; got != want+"\n" {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	c.Do("GET", "/field/2/value/1", nil).Want(404)
	c.Do("GET", "/field/1/value?target_id=x", nil).Want(400)

	shown := func(path string) string {
		t.Helper()
		return testkit.JSON(testkit.Decode[network.IPEntity](c.Do("GET", path, nil).Want(200)).Fields)
	}
	if got := shown("/entity/1?include=fields"); got != `[{"id":1,"name":"Rack unit","slug":"unit","value":"12"}]` {
		t.Errorf("got the fields %s, want Rack unit with the value 12", got)
	}
	if got := shown("/group/1?include=fields"); got != `[{"id":3,"name":"Site","slug":"site","value":"hall 7"}]` {
		t.Errorf("got the fields %s, want Site with the value hall 7", got)
	}
	if got := shown("/entity/1"); got != "null" {
		t.Errorf("got the fields %s, want none without include=fields", got)
	}
	c.Do("GET", "/entity/1?include=fields,colour", nil).Want(400)

	c.Do("PATCH", "/field/1/value/1", `{"value": "13"}`, "If-Match", `"9"`).Want(412)
	c.Do("PATCH", "/field/1/value/1", `{"value": "x"}`).WantErrors("/value", "invalid")
	c.Do("PATCH", "/field/1/value/1", `{"value": ""}`).WantErrors("/value", "required")
	if got := c.Do("PATCH", "/field/1/value/1", `{"value": "13", "target_id": 2}`, "If-Match", `"1"`).
		Want(200); got.Text != `{"id":1,"field_id":1,"target_id":2,"value":"13"}`+"\n" ||
		got.Header.Get("ETag") != `"2"` {
		t.Errorf(`got %s with the ETag %s, want the value 13 of entity 2 with the ETag "2"`, got.Text, got.Header.Get("ETag"))
	}

	// An edit of a field must fit its values.
	c.Do("PATCH", "/field/1", `{"type": "date", "default": null}`).WantErrors("/type", "conflict")
	c.Do("PATCH", "/field/4", `{"options": "gold"}`).WantErrors("/type", "conflict")
	c.Do("PATCH", "/field/1", `{"target_type": "group"}`).WantErrors("/target_type", "conflict")
	c.Do("PATCH", "/field/1", `{"type": "text", "slug": "height"}`).Want(200)
	c.Do("PATCH", "/field/4", `{"options": "gold|iron|tin"}`).Want(200)

	// Values are deleted with their targets and fields.
	c.Do("DELETE", "/entity/2", nil).Want(200)
	c.Do("GET", "/field/1/value/1", nil).Want(404)
	c.Do("DELETE", tier, nil, "If-Match", `"7"`).Want(412)
	c.Do("DELETE", tier, nil).Want(200)
	c.Do("DELETE", "/field/3", nil).Want(200)
	if got := shown("/group/1?include=fields"); got != "[]" {
		t.Errorf("got the fields %s, want none", got)
	}
}

// Values need the permission of their target.
func TestFieldValueGuards(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	handler := rest.NewHandler(network.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), network.New(db, box, agreeing{}).Routes())
	client := func(grants principal.Grants) *testkit.Client {
		return testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(grants)))
	}
	all := client(principal.All)
	for n, target := range []struct {
		kind       string
		permission permission.Permission
	}{{"client", permission.UsersClients}, {"server", permission.ServerSettings}, {"group", permission.NetworkGroups}} {
		field := all.Do("POST", "/field", map[string]any{"name": "x", "slug": "x", "target_type": target.kind}).Want(200).ID()
		if target.kind == "group" {
			all.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
		}
		path := "/field/" + testkit.JSON(field) + "/value"
		reader, writer := client(
			principal.Grant(target.permission, permission.Read),
		), client(
			principal.Grant(target.permission, permission.Write),
		)
		others := client(
			principal.All &^ principal.Grant(target.permission, permission.Read) &^ principal.Grant(target.permission, permission.Write),
		)
		body := map[string]any{"target_id": 1, "value": "y"}
		reader.Do("POST", path, body).WantDetail(problem.Forbidden, "The key lacks write access to the field's target: "+
			"one of network.entities, network.groups, server.settings, users.clients.")
		others.Do("POST", path, body).Want(403)
		value := path + "/" + testkit.JSON(writer.Do("POST", path, body).Want(200).ID())
		for _, at := range []string{value, path, path + "?target_id=1"} {
			reader.Do("GET", at, nil).Want(200)
			writer.Do("GET", at, nil).WantDetail(problem.Forbidden, "The key lacks read access to the field's target: "+
				"one of network.entities, network.groups, server.settings, users.clients.")
			others.Do("GET", at, nil).Want(403)
		}
		reader.Do("PATCH", value, body).Want(403)
		reader.Do("DELETE", value, nil).Want(403)
		writer.Do("PATCH", value, body).Want(200)
		writer.Do("DELETE", value, nil).Want(200)
		if n == 0 {
			reader.Do("GET", "/field/1", nil).Want(200)
			reader.Do("DELETE", "/field/1", nil).Want(403)
		}
	}
}
