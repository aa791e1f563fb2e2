package clients_test

import (
	"encoding/json"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// Names are one line, and addresses are ones that mails are sent to. Mails, logs and invoices show them.
func TestNamesAndAddresses(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	order := func(member, text string) map[string]any {
		body := map[string]any{"email": "ben@example.com", "first": "Ben", "last": "Miller"}
		body[member] = text
		return body
	}
	for _, text := range []string{
		"Ben\nBcc: eve@example.com", "Ben\rM", "Ben\tM", "Ben\x1b[2J", "Ben\x7fx", "Ben\u0085x", "Ben\u009bx", "Ben\u2028x",
		"Ben\u2029x", "Ben\u202ex",
		"Ben\u202ax", "Ben\u2066x", "Ben\u2069x", "\nBen",
	} {
		for _, member := range []string{"first", "last"} {
			c.Do("POST", "/client", order(member, text)).WantErrors("/"+member, "invalid")
		}
	}
	for _, address := range []string{
		"a@[127.0.0.1]", "%00@x", "%00@example.com", "root@localhost", "ben@example.com\u202e", "ben@example.com\nx",
	} {
		c.Do("POST", "/client", order("email", address)).WantErrors("/email", "invalid")
	}
	got := testkit.Decode[clients.ViewedClient](c.Do("POST", "/client", order("first", "Zoë \u200fשרה\u200e O'Neil")).Want(200))
	if got.First != "Zoë \u200fשרה\u200e O'Neil" {
		t.Errorf("got the name %q, want it as it was sent", got.First)
	}
}

// An item from before these rules can be read and sent back, and edited elsewhere. What is new has to follow them.
func TestTextsFromBefore(t *testing.T) {
	t.Parallel()
	c := newTestService(t)
	at := path("/client/%d", c.Do("POST", "/client", `{"email": "ben@example.com", "first": "Ben", "last": "Miller"}`).Want(200).ID())
	testkit.Execute(t, c.DB, "UPDATE client SET first = E'Ben\\nX', email = 'ben@localhost'")
	c.Do("PATCH", at, `{"disabled": true}`).Want(200)
	var whole map[string]any
	if err := json.Unmarshal([]byte(c.Do("GET", at, nil).Want(200).Text), &whole); err != nil {
		t.Fatal(err)
	}
	whole["last"] = "Smith"
	got := testkit.Decode[clients.ViewedClient](c.Do("PATCH", at, whole).Want(200))
	if got.Last != "Smith" || got.First != "Ben\nX" || got.Email != "ben@localhost" || !got.Disabled {
		t.Errorf("got %+v, want the last name changed and the rest as before", got)
	}
	c.Do("PATCH", at, `{"first": "Ben\nY"}`).WantErrors("/first", "invalid")
	c.Do("PATCH", at, `{"email": "ben@otherhost"}`).WantErrors("/email", "invalid")
}
