package clients_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

// view returns a client as an admin sees it.
func (s *testService) view(id int64) clients.ViewedClient {
	s.t.Helper()
	return testkit.Decode[clients.ViewedClient](s.Do("GET", path("/client/%d", id), nil).Want(200))
}

// isActive reports whether gateways accept the client's keys.
func (s *testService) isActive(id int64) bool {
	s.t.Helper()
	var owner keycache.Owner
	if err := s.Peers(principal.Gateway).Ask(s.t.Context(), clients.Name, path("/internal/owner/client/%d", id), &owner); err != nil {
		s.t.Fatal(err)
	}
	return owner.Active
}

// An admin, the client's integration and each reseller above it suspend a client separately, and lift only their own suspension.
func TestSuspendedBy(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	s.System.SetIntegration(1, "shop")
	id, at := s.createClient("sub@example.com", "billing", map[string]any{"id": 7, "integration": map[string]any{"id": 1}})
	top, _ := s.createClient("top@example.com")
	middle, _ := s.createClient("middle@example.com")
	s.Do("POST", path("/client/%d/sub", top), map[string]any{"client_id": middle}).Want(200)
	s.Do("POST", path("/client/%d/sub", middle), map[string]any{"client_id": id}).Want(200)
	callers := map[string]*testkit.Client{
		"admin": s.Client, "integration": s.asIntegration(1), "top": s.asClient(top), "middle": s.asClient(middle),
	}
	for name, caller := range callers {
		caller.Do("POST", at+"/unsuspend", nil).Want(200)
		caller.Do("POST", at+"/suspend", nil).Want(200)
		caller.Do("POST", at+"/suspend", nil).Want(200)
		for other := range callers {
			if other != name {
				callers[other].Do("POST", at+"/unsuspend", nil).Want(403)
				if other == "admin" || other == "integration" {
					callers[other].Do("PATCH", at, `{"disabled": false}`).Want(403)
				}
			}
		}
		if is := s.view(id); !is.Disabled || !is.Suspended || len(is.SuspendedBy) != 1 || s.isActive(id) {
			t.Errorf("suspended by %s: got %+v, want one suspension", name, is)
		}
		caller.Do("POST", at+"/unsuspend", nil).Want(200)
		if is := s.view(id); is.Disabled || is.Suspended || len(is.SuspendedBy) != 0 || !s.isActive(id) {
			t.Errorf("lifted by %s: got %+v, want no suspension", name, is)
		}
	}
	for _, caller := range callers {
		caller.Do("POST", at+"/suspend", nil).Want(200)
	}
	for i, step := range []struct{ lifts, want string }{
		{"top", "admin integration reseller"}, {"middle", "admin integration"}, {"admin", "integration"}, {"integration", ""},
	} {
		callers[step.lifts].Do("POST", at+"/unsuspend", nil).Want(200)
		if got := strings.Join(s.view(id).SuspendedBy, " "); got != step.want || s.isActive(id) != (step.want == "") {
			t.Errorf("step %d: got suspended_by %q, want %q", i, got, step.want)
		}
	}
	s.asClient(id).Do("POST", at+"/suspend", nil).Want(403)
	s.asClient(id).Do("POST", path("/client/%d/suspend", top), nil).Want(404)
	s.asIntegration(2).Do("POST", at+"/suspend", nil).Want(403)
}

// The member disabled does the same for admins and integrations. What was read can be sent back, and changes nothing.
func TestDisabledMember(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	s.System.SetIntegration(1, "shop")
	id, at := s.createClient("sub@example.com", "billing", map[string]any{"id": 7, "integration": map[string]any{"id": 1}}, "disabled", true)
	shop := s.asIntegration(1)
	shop.Do("PATCH", at, `{"disabled": true, "first": "Bo"}`).Want(200)
	if got := s.view(id); !slices.Equal(got.SuspendedBy, []string{"admin"}) {
		t.Errorf("got suspended_by %v, want the admin alone", got.SuspendedBy)
	}
	s.Do("PATCH", at, `{"disabled": false}`).Want(200)
	shop.Do("PATCH", at, `{"disabled": true}`).Want(200)
	_, suspended := s.records("client", "suspended")
	if len(suspended) != 1 || fmt.Sprint(suspended[0]["suspended_by"]) != "[integration]" || fmt.Sprint(suspended[0]["affected"]) != "1" {
		t.Errorf("got the records %v, want one by the integration", suspended)
	}
	s.Do("PATCH", at, `{"billing": {"id": null, "integration": null}}`).Want(200)
	if got := s.view(id); !slices.Equal(got.SuspendedBy, []string{"admin"}) {
		t.Errorf("without its integration: got suspended_by %v, want the admin, who can lift it", got.SuspendedBy)
	}
}

// The sub clients of a suspended client are suspended with it, at any depth. Nothing of that is stored.
func TestInheritedSuspension(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	ids, as := s.createClients("top", "middle", "leaf", "known", "grantee")
	sub := func(above, below string) string {
		link := s.Do("POST", path("/client/%d/sub", ids[above]), map[string]any{"client_id": ids[below]}).Want(200).ID()
		return path("/client/%d/sub/%d", ids[above], link)
	}
	upper, lower := sub("top", "middle"), sub("middle", "leaf")
	as["top"].Do("POST", "/client", orderBody("known@example.com")).Want(200)
	s.Do("POST", path("/client/%d/super", ids["top"]), map[string]any{"client_id": ids["grantee"]}).Want(200)
	want := func(label string, suspended ...string) {
		t.Helper()
		for name, id := range ids {
			is := s.view(id)
			if want := slices.Contains(suspended, name); is.Suspended != want || s.isActive(id) == want {
				t.Errorf("%s: got suspended %t for %s, want %t", label, is.Suspended, name, want)
			}
		}
	}
	s.Do("POST", path("/client/%d/suspend", ids["top"]), nil).Want(200)
	want("top is suspended", "top", "middle", "leaf")
	s.Do("POST", path("/client/%d/unsuspend", ids["leaf"]), nil).Want(409)
	s.Do("DELETE", lower, nil).Want(200)
	want("the lower link ended", "top", "middle")
	lower = sub("middle", "leaf")
	want("the lower link is back", "top", "middle", "leaf")
	s.Do("POST", path("/client/%d/unsuspend", ids["top"]), nil).Want(200)
	want("top is back")

	as["top"].Do("POST", path("/client/%d/suspend", ids["leaf"]), nil).Want(200)
	want("top suspended leaf", "leaf")
	as["grantee"].Do("POST", path("/client/%d/unsuspend", ids["leaf"]), nil).Want(403)
	as["grantee"].Do("POST", path("/client/%d/suspend", ids["middle"]), nil).Want(403)
	as["top"].Do("POST", path("/client/%d/suspend", ids["known"]), nil).Want(403)
	as["leaf"].Do("DELETE", lower, nil).Want(404)
	s.Do("DELETE", upper, nil).Want(200)
	want("top no longer reaches leaf")
	if before, after := s.records("client", "unsuspended"); len(after) != 2 || fmt.Sprint(before[0]["suspended_by"]) != "[reseller]" {
		t.Errorf("got the records %v, want that of the link's end first", after)
	}
}

// The previous release reads and writes only the column disabled.
func TestSuspensionBesidePreviousRelease(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id, at := s.createClient("ben@example.com")
	run := func(sql string) {
		t.Helper()
		err := s.DB.InTx(t.Context(), func(tx *pg.Tx) error {
			tx.Unrecorded("the previous release does this")
			_, err := tx.Exec(t.Context(), sql, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run("UPDATE client SET disabled = true, version = version + 1 WHERE id = $1")
	if is := s.view(id); !slices.Equal(is.SuspendedBy, []string{"admin"}) || s.isActive(id) {
		t.Errorf("got %+v, want a suspension that an admin can lift", is)
	}
	s.Do("POST", at+"/unsuspend", nil).Want(200)
	s.Do("POST", at+"/suspend", nil).Want(200)
	var disabled bool
	if err := s.DB.QueryRow(t.Context(), "SELECT disabled FROM client WHERE id = $1", id).Scan(&disabled); err != nil || !disabled {
		t.Errorf("got disabled %t and the error %v, want true", disabled, err)
	}
	run("UPDATE client SET disabled = false WHERE id = $1")
	if is := s.view(id); len(is.SuspendedBy) != 0 || !s.isActive(id) {
		t.Errorf("got %+v, want no suspension", is)
	}
}

// A billing system suspends those who have not paid, and hears what became of each billing id.
func TestSuspendOverdue(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	s.System.SetIntegration(1, "shop")
	shop := s.asIntegration(1)
	create := func(name string, billing int, ignored bool, more ...any) int64 {
		body := orderBody(name+"@example.com", append(more, "first", name, "last", "L")...)
		body["billing"] = map[string]any{"id": billing, "ignoreAutoSuspend": ignored}
		return shop.Do("POST", "/client", body).Want(200).ID()
	}
	late, spared, blocked := create("late", 1, false), create("spared", 2, true), create("blocked", 3, false)
	former := create("former", 4, false, "disabled", true)
	s.Do("POST", path("/client/%d/suspend", blocked), nil).Want(200)
	s.createClient("other@example.com", "billing", map[string]any{"id": 5})

	got := shop.Do("POST", "/client/suspend-overdue", `{"billing_ids": [1, 2, "3", 4, 5, 99, 1, 99]}`).Want(200).Text
	client := func(id int64, name string, billing int) string {
		return fmt.Sprintf(`{"id":%d,"name":"%s L","billing_id":%d}`, id, name, billing)
	}
	want := fmt.Sprintf(`{"suspended":[%s,%s],"already_suspended":[%s],"ignored":[%s],"unknown":[5,99]}`,
		client(late, "late", 1), client(blocked, "blocked", 3), client(former, "former", 4), client(spared, "spared", 2))
	if strings.TrimSpace(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for id, want := range map[int64]string{late: "integration", spared: "", blocked: "admin integration", former: "integration"} {
		if got := strings.Join(s.view(id).SuspendedBy, " "); got != want {
			t.Errorf("client %d: got suspended_by %q, want %q", id, got, want)
		}
	}
	s.asIntegration(2).Do("POST", "/client/suspend-overdue", `{"billing_ids": [1], "integration": 1}`).Want(403)
	s.Do("POST", "/client/suspend-overdue", `{"billing_ids": [1]}`).WantErrors("/integration", "required")
	s.Do("POST", "/client/suspend-overdue", `{"billing_ids": [2, 4], "integration": 1}`).Want(200)
	s.asClient(late).Do("POST", "/client/suspend-overdue", `{"billing_ids": [1]}`).Want(403)
}
