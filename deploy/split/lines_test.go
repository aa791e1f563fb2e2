package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// line is one of a log.
type line struct {
	Msg, Service, Outage, Route, Error string
	RequestID                          string `json:"request_id"`
}

// lines are those that the processes have logged, as JSON.
func (r *running) lines() (all []line) {
	r.t.Helper()
	for text := range strings.Lines(r.screen.String()) {
		var l line
		if strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// What a request led to, and failed in another service, is logged under the request's id: a job, and a change that another
// service cannot apply. What a service does by itself has an id that the service has, too, which it asks.
func testLines(t *testing.T, r *running) {
	url, err := os.ReadFile(filepath.Join(r.data, "database-url"))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), string(url))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	execute := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, is func(line) bool) (found line) {
		t.Helper()
		r.eventually(what+" is logged", func() bool {
			for _, l := range r.lines() {
				if is(l) {
					found = l
					return true
				}
			}
			return false
		})
		return found
	}
	c := r.client.WithT(t)

	c.Do("POST", "/email/template", `{"name": "Welcome", "subject": "Hi", "body": "x"}`).Want(200)
	c.Do("POST", "/client", `{"first": "Ben", "last": "Miller", "email": "ben@example.org"}`).Want(200)
	c.Do("POST", "/client/1/email", `{"type": "welcome"}`, "X-Request-Id", "mail-1").Want(200)
	until("the job that failed", func(l line) bool {
		return l.Msg == "a job failed" && l.Service == "system" && l.RequestID == "mail-1"
	})

	execute("ALTER TABLE system.log ADD CONSTRAINT no CHECK (request_id <> 'change-1')")
	c.Do("POST", "/port-speed", `{"name": "slow", "speed": 10}`, "X-Request-Id", "change-1").Want(200)
	until("the change that cannot be applied", func(l line) bool {
		return l.Msg == "apply the changes of network" && l.Service == "system" && l.RequestID == "change-1"
	})
	execute("ALTER TABLE system.log DROP CONSTRAINT no")

	execute("ALTER TABLE clients.message RENAME TO message_away")
	asked := until("what was asked for", func(l line) bool {
		return l.Msg == "request failed" && l.Service == "clients" && l.Route == "/internal/messages" && l.RequestID != ""
	})
	until("who asked", func(l line) bool {
		return l.Msg == "take the messages of clients" && l.RequestID == asked.RequestID
	})
	execute("ALTER TABLE clients.message_away RENAME TO message")
}

// testWholeLines looks whether each line says what it should.
func testWholeLines(t *testing.T, r *running) {
	for _, l := range r.lines() {
		if l.Service == "" || strings.HasPrefix(l.Msg, "request") && (l.RequestID == "" || l.Route == "") {
			t.Errorf("got the line %+v, want a service, and the id and the route of a request", l)
		}
	}
}
