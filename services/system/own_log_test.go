package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// reaching answers for the clients service: above reaches below whole, and no client reaches another one.
type reaching struct {
	neverUsed
	above, below int64
}

func (r reaching) Ask(_ context.Context, _, path string, into any) error {
	if found, ok := into.(*credentials.Reach); ok {
		found.Whole = path == fmt.Sprintf("%s?above=%d&client=%d", credentials.ReachPath, r.above, r.below)
	}
	return nil
}

// asClient returns a client of the API with the key of client id, which reaches no other one.
func (s *fixture) asClient(id int64) *testkit.Client { return s.asReseller(id, 0) }

// asReseller returns a client of the API with the key of client id, which reaches below whole.
func (s *fixture) asReseller(id, below int64) *testkit.Client {
	s.t.Helper()
	peers := reaching{above: id, below: below}
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	handler := rest.NewHandler(system.Name, s.db, log, system.New(service.Deps{DB: s.db, Box: s.box, Peers: peers}).Routes())
	return testkit.NewClient(s.t, testkit.As(handler, &principal.Principal{KeyID: id, Owner: principal.Owner{Type: principal.Client, ID: id}}))
}

// clientEvent returns a change of clients, by the owner of an API path with this name.
func clientEvent(action, actor, name string, targets ...pg.Target) events.Event {
	return events.Event{
		Type:    "client." + action,
		Kind:    "client",
		Action:  pg.Action(action),
		Targets: targets,
		Before:  json.RawMessage(`{"first": "Ann"}`),
		After:   json.RawMessage(`{"first": "Anna"}`),
		Actor:   &events.Actor{URL: actor, Name: name, Key: 9},
		IP:      netip.MustParseAddr("192.0.2.7"),
	}
}

// A client reads the log items about itself and those of its own requests. Of other callers it learns neither address nor changes, and of
// other clients nothing.
func TestClientLog(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	five := pg.Target{Type: "client", Noun: "client", ID: 5, Name: "Pan El"}
	six := pg.Target{Type: "client", Noun: "client", ID: 6, Name: "Secret Tenant"}
	mail := pg.Target{Type: "email/message", Noun: "mail", ID: 3, Name: "Welcome"}
	install := clientEvent("created", "/client/5", "Pan El", pg.Target{Type: "pxe/install", Noun: "install", ID: 2, Name: "web"}, five)
	install.Type, install.Kind = "pxe.install.created", "pxe.install"
	s.write("clients",
		clientEvent("edited", "/client/5", "Pan El", five),              // 1: its own
		clientEvent("edited", "/admin/2", "anna", five),                 // 2: somebody else's
		clientEvent("suspended", "/admin/2", "anna", six, five),         // 3: about two clients
		clientEvent("edited", "/admin/2", "anna", six),                  // 4: about another one
		clientEvent("edited", "/client/5", "Pan El, by anna", five),     // 5: an acting session's
		clientEvent("emailed", "/client/6", "Secret Tenant", mail, six), // 6: another one's
		install, // 7
		clientEvent("created", "/client/5", "Pan El", six), // 8: it made a client
	)
	own := s.asClient(5)
	ids := func(query string) string {
		t.Helper()
		all := []int64{}
		for _, item := range testkit.Decode[[]logItemView](own.Do("GET", "/log?sort=created_at"+query, nil).Want(200)) {
			all = append(all, item.ID)
		}
		return fmt.Sprint(all)
	}
	for query, want := range map[string]string{
		"":                                "[1 2 3 5 7 8]",
		"&type=client.edited":             "[1 2 5]",
		"&user=/client/5":                 "[1 5 7 8]",
		"&target_type=client&target_id=5": "[1 2 3 5 7]",
		"&target_type=client&target_id=6": "[]",
		"&target_type=pxe/install":        "[7]",
		"&target_type=email/message":      "[]",
		"&q=192.0.2.7":                    "[]",
		"&q=secret":                       "[]",
		"&q=suspended":                    "[3]",
		"&until=2020-01-01T00:00:00Z":     "[]",
		"&per_page=2&page=2":              "[3 5]",
	} {
		if got := ids(query); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	if got := own.Do("GET", "/log?count=true&per_page=1", nil).Want(200).Header.Get("X-Total-Count"); got != "6" {
		t.Errorf("got the count %s, want 6", got)
	}
	for _, format := range []string{"application/json", "text/csv"} {
		list := own.Do("GET", "/log", nil, "Accept", format).Want(200).Text
		if strings.Count(list, "192.0.2.7") != 3 || strings.Contains(list, "Tenant suspended") || strings.Contains(list, "Tenant and") {
			t.Errorf("got the list %s, want its own three addresses, and no other tenant than the one that it made", list)
		}
	}
	for id, want := range map[int]string{
		1: "192.0.2.7 [Pan El] Client Pan El was edited. true",
		2: " [Pan El] Client Pan El was edited. false",
		3: " [Pan El] Client Pan El was suspended. false",
		5: " [Pan El] Client Pan El was edited. false",
		7: "192.0.2.7 [web Pan El] Install web for client Pan El was created. false",
		8: "192.0.2.7 [Secret Tenant] Client Secret Tenant was created. true",
	} {
		item := testkit.Decode[logItemView](own.Do("GET", fmt.Sprint("/log/", id), nil).Want(200))
		names := []string{}
		for _, target := range item.Targets {
			names = append(names, target.Name)
		}
		if got := fmt.Sprint(item.IP, " ", names, " ", item.Desc, " ", len(item.Data.Changes) > 0); got != want {
			t.Errorf("item %d: got %q, want %q", id, got, want)
		}
		if shows := strings.Contains(item.Data.Message, "Anna"); shows != (len(item.Data.Changes) > 0) || item.Data.Description != item.Desc ||
			strings.Contains(item.Data.Message, "192.0.2.7") != (item.IP != "") {
			t.Errorf("item %d: got the message %q, want no more in it than in the item", id, item.Data.Message)
		}
	}
	for _, id := range []int{4, 6, 99} {
		own.Do("GET", fmt.Sprint("/log/", id), nil).Want(404)
	}
	if got := s.asClient(7).Do("GET", "/log", nil).Want(200).Text; got != "[]\n" {
		t.Errorf("got %s for a client without items, want an empty list", got)
	}
}

// A reseller reads the log items about a sub client that it reaches whole, and learns of nobody else by them.
func TestResellerLog(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	target := func(id int64, name string) pg.Target {
		return pg.Target{Type: "client", Noun: "client", ID: id, Name: name}
	}
	sub, foreign := target(6, "Sub"), target(7, "Foreign")
	s.write("clients",
		clientEvent("edited", "/client/6", "Sub", sub),                   // 1: its own
		clientEvent("suspended", "/admin/2", "anna", foreign, sub),       // 2: about two clients
		clientEvent("suspended", "/client/5", "Reseller", sub),           // 3: the reseller's
		clientEvent("edited", "/admin/2", "anna", foreign),               // 4: about another one
		clientEvent("created", "/client/6", "Sub", foreign),              // 5: the sub client's, about another one
		clientEvent("edited", "/admin/2", "anna", target(5, "Reseller")), // 6
	)
	reseller := s.asReseller(5, 6)
	for query, want := range map[string]string{
		"?sort=id&target_type=client&target_id=6": "1  [Sub] Client Sub was edited.; 2  [Sub] Client Sub was suspended.; " +
			"3 192.0.2.7 [Sub] Client Sub was suspended.; ",
		"?sort=id&target_type=client&target_id=7": "",
		"?sort=id": "3 192.0.2.7 [Sub] Client Sub was suspended.; 6  [Reseller] Client Reseller was edited.; ",
	} {
		got := ""
		for _, item := range testkit.Decode[[]logItemView](reseller.Do("GET", "/log"+query, nil).Want(200)) {
			names := []string{}
			for _, target := range item.Targets {
				names = append(names, target.Name)
			}
			got += fmt.Sprint(item.ID, " ", item.IP, " ", names, " ", item.Desc, "; ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for id, want := range map[int]int{1: 200, 2: 200, 3: 200, 4: 404, 5: 404, 6: 200} {
		text := reseller.Do("GET", fmt.Sprint("/log/", id), nil).Want(want).Text
		if strings.Contains(text, "Foreign") || strings.Contains(text, "Anna") != (id == 3) {
			t.Errorf("item %d: got %s, want no other client, and changes only of what it did itself", id, text)
		}
	}
	if got := s.asReseller(5, 8).Do("GET", "/log?target_type=client&target_id=6", nil).Want(200).Text; got != "[]\n" {
		t.Errorf("got %s for a client that does not reach the other one, want an empty list", got)
	}
}

// A client reads the mails to itself, without what the SMTP server said, and sends none again.
func TestClientMails(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for account, subject := range map[string]string{"/client/5": "Welcome, Pan", "/client/55": "Other", "/admin/5": "Admin"} {
		s.execute("INSERT INTO email_message (template, account, to_name, to_email, subject, secret, status, error, attempts) "+
			"VALUES ('welcome', $1, 'Ben', 'ben@example.com', $2, false, 'failed', 'relay.internal refused', 3)", account, subject)
	}
	own := s.asClient(5)
	list := own.Do("GET", "/email/message?count=true", nil).Want(200)
	mails := testkit.Decode[[]struct {
		ID      int64
		Subject string
	}](list)
	if len(mails) != 1 || mails[0].Subject != "Welcome, Pan" || list.Header.Get("X-Total-Count") != "1" ||
		strings.Contains(list.Text, "relay") {
		t.Fatalf("got %s, want its own mail without the error", list.Text)
	}
	for _, query := range []string{"?email=ben@example.com", "?status=failed", "?template=welcome"} {
		if got := own.Do("GET", "/email/message"+query, nil).Want(200).Text; strings.Count(got, `"id":`) != 1 {
			t.Errorf("%s: got %s, want one mail", query, got)
		}
	}
	at := fmt.Sprint("/email/message/", mails[0].ID)
	if got := own.Do("GET", at, nil).Want(200).Text; strings.Contains(got, "relay") || !strings.Contains(got, "Welcome, Pan") {
		t.Errorf("got %s, want the mail without the error", got)
	}
	own.Do("POST", at+"/send", nil).Want(403)
	for id := range int64(4) {
		if id++; id != mails[0].ID {
			own.Do("GET", fmt.Sprint("/email/message/", id), nil).Want(404)
		}
	}
}
