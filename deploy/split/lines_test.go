package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// line is one line of the log.
type line struct {
	Msg, Service, Outage, Route, Error string
	RequestID                          string `json:"request_id"`
}

// lines returns the lines that the processes have logged as JSON.
func (r *running) lines() (all []line) {
	r.t.Helper()
	for text := range strings.Lines(r.screen.String()) {
		if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "\n") { // other output, or a line that is still being written
			continue
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			r.t.Errorf("got the line %s (%v), want JSON", text, err)
		}
		all = append(all, l)
	}
	return all
}

// testLines tests that failures are logged with the id of the request that caused them, in every service: a failed
// job, and a change that another service cannot apply. A request between services has an id that both log.
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
	awaitLine := func(label string, is func(line) bool) (found line) {
		t.Helper()
		r.eventually(label+" is logged", func() bool {
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
	awaitLine("the failed job", func(l line) bool {
		return l.Msg == "a job failed" && l.Service == "system" && l.RequestID == "mail-1"
	})

	execute("ALTER TABLE system.log ADD CONSTRAINT no CHECK (request_id <> 'change-1')")
	c.Do("POST", "/port-speed", `{"name": "slow", "speed": 10}`, "X-Request-Id", "change-1").Want(200)
	awaitLine("the change that cannot be applied", func(l line) bool {
		return l.Msg == "apply-changes-network" && l.Service == "system" && l.RequestID == "change-1"
	})
	execute("ALTER TABLE system.log DROP CONSTRAINT no")

	execute("ALTER TABLE clients.message RENAME TO message_away")
	failed := awaitLine("the failed request", func(l line) bool {
		return l.Msg == "request failed" && l.Service == "clients" && l.Route == "/internal/messages" && l.RequestID != ""
	})
	awaitLine("the caller's error", func(l line) bool {
		return l.Msg == "receive-messages-clients" && l.RequestID == failed.RequestID
	})
	execute("ALTER TABLE clients.message_away RENAME TO message")
}

// testWholeLines tests that each line names its service, and each line of a request its id and route.
func testWholeLines(t *testing.T, r *running) {
	requests := 0
	for _, l := range r.lines() {
		if strings.HasPrefix(l.Msg, "request") {
			requests++
		}
		if l.Service == "" || strings.HasPrefix(l.Msg, "request") && (l.RequestID == "" || l.Route == "") {
			t.Errorf("got the line %+v, want a service, and the id and the route of a request", l)
		}
	}
	if requests == 0 {
		t.Error("got no line of a request, want at least one")
	}
}
