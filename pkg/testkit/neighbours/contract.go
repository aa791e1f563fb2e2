package neighbours

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// asker sends the requests of neighbours to a service or its double.
type asker struct {
	t       *testing.T
	service string
	handler http.Handler
}

func (a asker) try(as, path string, into any) error {
	return peers.New(as, map[string]http.Handler{a.service: a.handler}).Ask(context.Background(), a.service, path, into)
}

func (a asker) ask(as, path string, into any) {
	a.t.Helper()
	if err := a.try(as, path, into); err != nil {
		a.t.Fatalf("%s asks for %s: %v", as, path, err)
	}
}

func (a asker) wantRefused(as, path string) {
	a.t.Helper()
	var answer any
	if err := a.try(as, path, &answer); err == nil || !strings.Contains(err.Error(), "403") {
		a.t.Errorf("%s asks for %s: got %v, want it refused with 403", as, path, err)
	}
}

func wantAnswer[T any](a asker, as, path string, want T) {
	a.t.Helper()
	var got T
	a.ask(as, path, &got)
	if !reflect.DeepEqual(got, want) {
		a.t.Errorf("%s asks for %s: got %s, want %s", as, path, testkit.JSON(got), testkit.JSON(want))
	}
}

func (a asker) eventually(condition string, holds func() bool) {
	a.t.Helper()
	testkit.Eventually(a.t, condition, holds)
}

func refPath(kind string, id int64) string { return "/internal/ref/" + kind + "/" + decimal(id) }

func (a asker) wantRef(as, kind string, id int64, name string) {
	a.t.Helper()
	var got item
	if a.ask(as, refPath(kind, id), &got); !got.Exists || got.Name != name || got.Version < 1 {
		a.t.Errorf("%s asks for %s: got %+v, want it to exist with the name %q and a version", as, itemKey(kind, id), got, name)
	}
}

func (a asker) wantNoRef(as, kind string, id int64) {
	a.t.Helper()
	var got item
	if a.ask(as, refPath(kind, id), &got); got.Exists {
		a.t.Errorf("%s asks for %s: got %+v, want none", as, itemKey(kind, id), got)
	}
}

// wantChange waits until a reader sees a change of an item.
func (a asker) wantChange(reader, kind string, action pg.Action, targetType string, id int64) {
	a.t.Helper()
	a.eventually(reader+" hears of "+kind+" "+string(action), func() bool {
		var got page
		a.ask(reader, "/internal/events?after=0&kind="+kind, &got)
		for _, e := range got.Events {
			if e.Kind == kind && e.Action == action && len(e.Targets) > 0 && e.Targets[0].Type == targetType && e.Targets[0].ID == id {
				return e.Seq <= got.Last && got.History != ""
			}
		}
		return false
	})
}

func closePath(kind string, id int64) string {
	return "/internal/close/" + kind + "?items=" + url.QueryEscape(testkit.JSON([]map[string]int64{{"ID": id, "Token": 1}}))
}

// wantUsed expects that an item cannot be deleted because of this usage. wantUnused expects that it can.
func (a asker) wantUsed(owner, kind string, id int64, usage string) {
	a.t.Helper()
	wantAnswer(a, owner, closePath(kind, id), user{ID: id, Usage: usage})
}

func (a asker) wantUnused(owner, kind string, id int64) {
	a.t.Helper()
	wantAnswer(a, owner, closePath(kind, id), user{})
}

// wantDetached expects that an item has no references to remove.
func (a asker) wantDetached(owner, kind string, id int64) {
	a.t.Helper()
	for _, detach := range []string{"later", "now"} {
		wantAnswer(a, owner, closePath(kind, id)+"&detach="+detach, user{})
	}
}

// none is an id that no item has.
const none = 1 << 40

func decimal(id int64) string { return strconv.FormatInt(id, 10) }
