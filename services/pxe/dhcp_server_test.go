package pxe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
)

func TestDHCPServer(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)

	created := testkit.Decode[pxe.DHCPServer](
		c.Do("POST", "/pxe/dhcp", `{"name": "fra1", "http": {"host": "dhcp.fra1.example.net", "port": 8443, "use_https": true, "api_key": "hunter2"}}`).
			Want(200),
	)
	if created.Name != "fra1" || created.HTTP.Host != "dhcp.fra1.example.net" || *created.HTTP.Port != 8443 || !created.HTTP.UseHTTPS {
		t.Fatalf("got %+v, want fra1 at dhcp.fra1.example.net:8443 with HTTPS", created)
	}
	flat := c.Do("POST", "/pxe/dhcp", `{"name": "ber1", "host": "2001:db8::7", "port": 80, "use_https": false, "api_key": "hunter2"}`).
		Want(200).
		Text
	if want := `{"id":2,"name":"ber1","http":{"host":"2001:db8::7","port":80,"use_https":false}}` + "\n"; flat != want {
		t.Errorf("got %s, want %s", flat, want)
	}
	c.Do("POST", "/pxe/dhcp", `{"name": "bare", "host": "10.0.0.7"}`).Want(200)

	c.Do("POST", "/pxe/dhcp", `{}`).WantErrors("/http/host", "required", "/name", "required")
	c.Do("POST", "/pxe/dhcp", `{"name": "fra1", "host": "x"}`).WantErrors("/name", "taken")
	c.Do("POST", "/pxe/dhcp", `{"name": "x", "host": "x", "http": {"host": "y"}}`).WantErrors("/http/host", "disagrees")
	for _, host := range []string{"http://x", "x:80", "x y", "-x", "x..y", "fe80::1%eth0", "[::1]"} {
		c.Do("POST", "/pxe/dhcp", map[string]any{"name": "x", "host": host}).WantErrors("/host", "invalid")
	}
	c.Do("POST", "/pxe/dhcp", `{"name": "x", "http": {"host": "x", "port": 65536, "api_key": "a\nb"}, "use_https": 2}`).
		WantErrors("/http/api_key", "invalid", "/http/port", "out_of_range", "/use_https", "type")

	// A stored key is not sent to another address.
	for _, elsewhere := range []string{`{"host": "evil.example.net"}`, `{"http": {"port": null}}`, `{"port": 8444}`, `{"use_https": false}`, `{"host": "evil.example.net", "api_key": ""}`} {
		c.Do("PATCH", "/pxe/dhcp/1", elsewhere).WantErrors("/http/api_key", "required")
	}
	c.Do("PATCH", "/pxe/dhcp/3", `{"host": "10.0.0.8", "port": 80}`).Want(200) // a server without a key
	c.Do("PATCH", "/pxe/dhcp/3", `{"host": "10.0.0.7", "port": null}`).Want(200)
	c.Do("PATCH", "/pxe/dhcp/2", `{"port": 81, "api_key": null}`).Want(200)
	edited := testkit.Decode[pxe.DHCPServer](c.Do("PATCH", "/pxe/dhcp/1", `{"http": {"port": null, "api_key": "hunter3"}}`).Want(200))
	if edited.HTTP.Port != nil || edited.HTTP.Host != "dhcp.fra1.example.net" || !edited.HTTP.UseHTTPS {
		t.Errorf("got %+v, want dhcp.fra1.example.net with HTTPS and no port", edited)
	}
	for query, want := range map[string]string{
		"?q=FRA1.ex": "fra1", "?q=be": "ber1", "?name=bare": "bare", "?host=10.0.0.7": "bare", "?sort=-name&per_page=1": "fra1",
	} {
		if found := testkit.Decode[[]pxe.DHCPServer](c.Do("GET", "/pxe/dhcp"+query, nil).Want(200)); len(found) != 1 || found[0].Name != want {
			t.Errorf("%s: got %+v, want %s", query, found, want)
		}
	}
}

// An API key is sealed for its row, and no response and no record contains it.
func TestDHCPServerAPIKey(t *testing.T) {
	t.Parallel()
	c, db, box := newClient(t)
	sealed := func(id int64) (stored []byte) {
		t.Helper()
		if err := db.QueryRow(t.Context(), "SELECT http_api_key FROM dhcp_server WHERE id = $1", id).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		return stored
	}
	open := func(id int64, stored []byte) string {
		t.Helper()
		value, err := box.Open(seal.Location{Table: "dhcp_server", Column: "http_api_key", ID: id}, stored)
		if err != nil {
			t.Error(err)
		}
		return value.Reveal()
	}
	edit := func(body string) {
		t.Helper()
		if response := c.Do("PATCH", "/pxe/dhcp/1", body).Want(200); strings.Contains(response.Text, "api_key") {
			t.Errorf("got %s, want an answer without api_key", response.Text)
		}
	}
	recorded := func(before, after bool) {
		t.Helper()
		var was, is bool
		err := db.QueryRow(t.Context(), `SELECT coalesce(before @> '{"http": {"api_key": {"secret": true}}}', false), coalesce(after @> '{"http": {"api_key": {"secret": true}}}', false)
			FROM change ORDER BY id DESC LIMIT 1`).
			Scan(&was, &is)
		if err != nil || was != before || is != after {
			t.Errorf("got a record with the key before: %v, after: %v (%v), want before: %v, after: %v", was, is, err, before, after)
		}
	}

	c.Do("POST", "/pxe/dhcp", `{"name": "one", "host": "x", "api_key": "first secret"}`).Want(200)
	recorded(false, true)
	c.Do("POST", "/pxe/dhcp", "name,http.host,http.api_key\ntwo,y,second secret\n", "Content-Type", "text/csv").Want(200)
	if got := open(1, sealed(1)); got != "first secret" {
		t.Errorf("got the API key %q, want first secret", got)
	}
	if got := open(2, sealed(2)); got != "second secret" {
		t.Errorf("got the API key %q, want second secret", got)
	}
	for _, unchanged := range []string{`{"name": "uno"}`, `{"api_key": ""}`, `{"http": {"api_key": "", "port": null, "host": "x"}}`} {
		before := string(sealed(1))
		edit(unchanged)
		recorded(false, false)
		if string(sealed(1)) != before {
			t.Errorf("%s: got another stored API key, want it unchanged", unchanged)
		}
	}
	edit(`{"http": {"api_key": "third secret"}}`)
	recorded(true, true)
	if got := open(1, sealed(1)); got != "third secret" {
		t.Errorf("got the API key %q, want third secret", got)
	}
	if _, err := box.Open(seal.Location{Table: "dhcp_server", Column: "http_api_key", ID: 2}, sealed(1)); err == nil {
		t.Error("got an API key that opens in another row, want an error")
	}
	edit(`{"api_key": null}`)
	recorded(true, false)
	if sealed(1) != nil {
		t.Error("got a stored API key after null, want none")
	}
	edit(`{"api_key": "fourth secret"}`)
	recorded(false, true)
	c.Do("PATCH", "/pxe/dhcp/1", `{"api_key": [4]}`).WantErrors("/api_key", "type")
	c.Do("DELETE", "/pxe/dhcp/1", nil).Want(200)

	if all := dump(
		t,
		db,
	); !strings.Contains(all, "uno") || strings.Contains(all, " secret\"") ||
		strings.Contains(all, fmt.Sprintf("%x", " secret")) {
		t.Errorf("got the database text %s, want it with uno and without secrets", all)
	}
}

// dump returns all rows of some tables as text.
func dump(t *testing.T, db *pg.DB) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"dhcp_server", "change", "idempotency"} {
		var text string
		if err := db.QueryRow(t.Context(), fmt.Sprintf("SELECT coalesce(string_agg(to_jsonb(r)::text, E'\\n'), '') FROM %s r", table)).
			Scan(&text); err != nil {
			t.Fatal(err)
		}
		all.WriteString(text)
	}
	return all.String()
}
