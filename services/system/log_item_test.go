package system_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
)

type logItemView struct {
	ID      int64
	Desc    string
	Type    string
	IP      string
	User    *struct{ Name, URL string }
	Targets []struct {
		ID                  int64
		Name, Singular, URL string
	}
	Data struct {
		Description, Message string
		Changes              map[string]map[string]any
	}
}

func TestLogItem(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.write(
		"network",
		newEdit(3, `{"name": "site 3", "billing_id": "A", "entities": {"count": 1}, "old": true, "none": null, "list": [1, 2]}`,
			`{"name": "site 3", "billing_id": "B", "entities": {"count": 2}, "new": {"deep": "x"}, "list": [2, 1]}`),
		events.Event{
			Type:    "pxe.dhcp.created",
			Kind:    "pxe.dhcp",
			Action:  "created",
			Targets: []pg.Target{{Type: "pxe/dhcp", Noun: "DHCP server", ID: 4, Name: "fra1"}},
			After:   json.RawMessage(`{"http": {"port": 80, "api_key": {"secret": true}}}`),
		},
		events.Event{
			Type:    "pxe.dhcp.edited",
			Kind:    "pxe.dhcp",
			Action:  "edited",
			Targets: []pg.Target{{Type: "pxe/dhcp", Noun: "DHCP server", ID: 4, Name: "fra1"}},
			Before: json.RawMessage(
				`{"http": {"port": 80, "api_key": {"secret": true}}}`,
			),
			After: json.RawMessage(`{"http": {"port": 80, "api_key": {"secret": true}}}`),
		},
		events.Event{
			Type:    "admin.permission.edited",
			Kind:    "admin",
			Part:    "permission",
			Action:  "edited",
			Targets: []pg.Target{{Type: "admin", Noun: "admin", ID: 2, Name: "anna"}},
			Before:  json.RawMessage(`{}`),
		},
		events.Event{
			Type:   "entity.allocated",
			Kind:   "entity",
			Action: "allocated",
			Targets: []pg.Target{
				{Type: "entity", Noun: "IP entity", ID: 1, Name: "192.0.2.1"},
				{Type: "entity", Noun: "IP entity", ID: 2, Name: "192.0.2.2"},
			},
			After: json.RawMessage(`{"count": 2}`),
		},
		events.Event{
			Type:    "request.refused",
			Kind:    "request",
			Action:  "refused",
			Targets: []pg.Target{},
			Actor:   actorAnna,
			After:   json.RawMessage(`{"method": "POST", "route": "/group", "detail": "The key lacks network.groups write."}`),
		},
		events.Event{Type: "log.cut", Kind: "log", Action: "cut"},
	)
	first := s.Do("GET", "/log/1", nil).Want(200)
	got := testkit.Decode[logItemView](first)
	if got.Desc != "IP group site 3 was edited." || got.Data.Description != got.Desc || got.IP != "192.0.2.7" || got.User.Name != "anna" ||
		got.User.URL != "/admin/2" ||
		got.Targets[0].Singular != "IP group" ||
		got.Targets[0].URL != "/group/3" ||
		got.Targets[0].Name != "site 3" {
		t.Errorf("got %s, want the user /admin/2 and the target site 3", first.Text)
	}
	want := map[string]map[string]any{
		"billing_id": {
			"before": "A",
			"after":  "B",
		},
		"entities.count": {"before": 1.0, "after": 2.0},
		"old":            {"before": true},
		"new.deep":       {"after": "x"},
		"list":           {"before": []any{1.0, 2.0}, "after": []any{2.0, 1.0}},
	}
	if !reflect.DeepEqual(got.Data.Changes, want) {
		t.Errorf("got changes %v, want %v", got.Data.Changes, want)
	}
	if message := "IP group site 3 was edited by anna from 192.0.2.7: billing_id was A, is B; entities.count was 1, is 2; list was [1,2], " +
		"is [2,1]; new.deep is x; old was true."; got.Data.Message != message {
		t.Errorf("got %s, want %s", got.Data.Message, message)
	}
	for id, want := range map[int]string{
		2: `DHCP server fra1 was created. map[http.api_key:map[after:[secret]] http.port:map[after:80]]`,
		3: `DHCP server fra1 was edited. map[http.api_key:map[after:[secret] before:[secret]]]`,
		4: `The permissions of admin anna were edited. map[]`,
		5: `IP entity 192.0.2.1 and 1 more were allocated. map[count:map[after:2]]`,
		6: `POST /group was refused. map[detail:map[after:The key lacks network.groups write.] method:map[after:POST] route:map[after:/group]]`,
		7: `Old items of the log were deleted. map[]`,
	} {
		item := testkit.Decode[logItemView](s.Do("GET", fmt.Sprint("/log/", id), nil).Want(200))
		if got := fmt.Sprint(item.Desc, " ", item.Data.Changes); got != want {
			t.Errorf("%d: got %s, want %s", id, got, want)
		}
	}
	s.Do("GET", "/log/8", nil).Want(404)
	s.Do("GET", "/log", nil, "Accept", "text/csv").Want(200)
}

// The same change is never logged twice.
func TestNoChangeIsLoggedTwice(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.write("network", newEdit(1, `{}`, `{}`))
	err := s.db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		duplicate := newEdit(1, `{}`, `{}`)
		duplicate.Seq, duplicate.At = 1, time.Now()
		return s.log.Write(t.Context(), tx, "network", []events.Event{duplicate})
	})
	if err == nil || !strings.Contains(err.Error(), "got change 1 of network, but the log ends at its change 1") {
		t.Errorf("got %v, want an error that change 1 is already logged", err)
	}
	if items := s.queryIDs("SELECT id FROM log"); len(items) != 1 {
		t.Errorf("got the items %v, want one", items)
	}
}

func TestLogFilters(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	begin := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i := range 40 {
		e := newEdit(int64(i%4+1), `{}`, `{}`)
		e.At = begin.Add(time.Duration(i) * time.Minute)
		if i%2 == 1 {
			e.Type, e.Actor = "group.deleted", nil
		}
		if i == 20 { // it is logged late, because its service was stopped
			e.At = begin.Add(5*time.Minute + time.Second)
			e.Targets = append(
				e.Targets,
				pg.Target{Type: "admin", Noun: "admin", ID: 1, Name: "Bernd"},
				pg.Target{Type: "admin", Noun: "admin", ID: 1, Name: "Bernd"},
				pg.Target{Type: "pxe/dhcp", Noun: "DHCP server", ID: 3, Name: "fra1"},
				pg.Target{Type: "group", Noun: "IP group", ID: 7, Name: "Another"},
			)
		}
		s.write([]string{"network", "pxe"}[i%2], e)
	}
	list := func(query url.Values) (ids []int64) {
		t.Helper()
		for _, item := range testkit.Decode[[]logItemView](s.Do("GET", "/log?"+query.Encode(), nil).Want(200)) {
			ids = append(ids, item.ID)
		}
		return ids
	}
	all := list(nil)
	if len(all) != 40 || all[0] != 40 || all[39] != 1 || slices.Index(all, 21) != slices.Index(all, 6)-1 {
		t.Errorf("got %v, want 40 to 1", all)
	}
	if ids := list(url.Values{"sort": {"id"}}); !slices.IsSorted(ids) || len(ids) != 40 {
		t.Errorf("got %v, want 40 items by id", ids)
	}
	at := func(minutes int) []string {
		return []string{begin.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339)}
	}
	group := func(id string) url.Values { return url.Values{"target_type": {"group"}, "target_id": {id}} }
	for _, test := range []struct {
		query url.Values
		want  func(i int, late bool) bool // of the number, and whether it is the late item
	}{
		{url.Values{"user": {"/admin/2"}}, func(i int, _ bool) bool { return i%2 == 0 }},
		{url.Values{"type": {"group.deleted"}}, func(i int, _ bool) bool { return i%2 == 1 }},
		{group("2"), func(i int, _ bool) bool { return i%4 == 1 }},
		{group("9"), func(int, bool) bool { return false }},
		{url.Values{"target_type": {"admin"}, "target_id": {"1"}}, func(_ int, late bool) bool { return late }},
		{url.Values{"target_type": {"group"}}, func(int, bool) bool { return true }}, // the late item has two of them
		{url.Values{"target_type": {"admin"}}, func(_ int, late bool) bool { return late }},
		{url.Values{"target_type": {"pxe.dhcp"}, "target_id": {""}}, func(_ int, late bool) bool { return late }},
		{url.Values{"target_type": {"nothing"}}, func(int, bool) bool { return false }},
		{
			url.Values{"target_type": {"group"}, "user": {"/admin/2"}, "since": at(10)},
			func(i int, late bool) bool { return i%2 == 0 && i >= 10 && !late },
		},
		{url.Values{"target_type": {"group"}, "q": {"SITE 2 was delet"}}, func(i int, _ bool) bool { return i%4 == 1 }},
		{url.Values{"target_type": {"nothing"}, "q": {"site"}}, func(int, bool) bool { return false }},
		{url.Values{"since": at(10)}, func(i int, late bool) bool { return i >= 10 && !late }},
		{url.Values{"since": {strconv.FormatInt(begin.Add(10*time.Minute).Unix(), 10)}}, func(i int, late bool) bool { return i >= 10 && !late }},
		{
			url.Values{"since": {begin.Add(10 * time.Minute).UTC().Format("20060102T1504")}},
			func(i int, late bool) bool { return i >= 10 && !late },
		},
		{url.Values{"until": at(10)}, func(i int, late bool) bool { return i < 10 || late }},
		{url.Values{"since": at(10), "until": at(20)}, func(i int, late bool) bool { return i >= 10 && i < 20 && !late }},
		{url.Values{"user": {"/admin/2"}, "type": {"group.deleted"}}, func(int, bool) bool { return false }},
		{url.Values{"target_type": {"group"}, "target_id": {"1"}, "user": {"/admin/2"}, "type": {"group.edited"}, "until": at(12)},
			func(i int, late bool) bool { return i%4 == 0 && (i < 12 || late) }},
		{url.Values{"q": {"SITE 2 was delet"}}, func(i int, _ bool) bool { return i%4 == 1 }},
		{url.Values{"q": {"nna"}}, func(i int, _ bool) bool { return i%2 == 0 }},
		{url.Values{"q": {"192.0.2.7"}}, func(int, bool) bool { return true }},
		{url.Values{"q": {"bern"}}, func(_ int, late bool) bool { return late }}, // a second target
		{url.Values{"q": {"an"}}, func(i int, _ bool) bool { return i%2 == 0 }},
		{url.Values{"q": {"te"}}, func(int, bool) bool { return false }},
		{url.Values{"q": {"s_te"}}, func(int, bool) bool { return false }},
		{url.Values{"q": {"site"}, "target_type": {"group"}, "target_id": {"1"}, "until": at(12), "sort": {"-created_at"}},
			func(i int, late bool) bool { return i%4 == 0 && (i < 12 || late) }},
		{url.Values{"q": {"anna"}, "type": {"group.deleted"}}, func(int, bool) bool { return false }},
	} {
		var want []int64
		for _, id := range all {
			if test.want(int(id-1), id == 21) {
				want = append(want, id)
			}
		}
		if got := list(test.query); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", test.query.Encode(), got, want)
		}
		if got := s.listByPages(test.query); !slices.Equal(got, want) {
			t.Errorf("%s in pages: got %v, want %v", test.query.Encode(), got, want)
		}
		if count := s.Do("GET", "/log?count=true&"+test.query.Encode(), nil).
			Want(200).
			Header.Get(
			"X-Total-Count",
		); count != fmt.Sprint(
			len(want),
		) {
			t.Errorf("%s: got the count %s, want %d", test.query.Encode(), count, len(want))
		}
	}
	s.Do("GET", "/log?target_id=7", nil).WantDetail(problem.BadRequest, "The query is invalid: target_id requires target_type.")
	s.Do("GET", "/log?since=yesterday", nil).WantDetail(problem.BadRequest,
		"The query is invalid: since must be a date and time of ISO 8601 such as 2026-11-20T10:00:00Z or 2026-11-20, or seconds since 1970.")
	s.Do("GET", "/log?colour=red", nil).Want(400)
}

// listByPages follows the links to the next pages.
func (s *fixture) listByPages(query url.Values) (ids []int64) {
	s.t.Helper()
	at := "/log?per_page=3&" + query.Encode()
	for at != "" {
		answer := s.Do("GET", at, nil).Want(200)
		for _, item := range testkit.Decode[[]logItemView](answer) {
			ids = append(ids, item.ID)
		}
		at = nextLink(answer.Header.Get("Link"))
	}
	return ids
}

var nextPattern = regexp.MustCompile(`<([^>]*)>; rel="next"`)

func nextLink(link string) string {
	if found := nextPattern.FindStringSubmatch(link); found != nil {
		return found[1]
	}
	return ""
}
