package product_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestEveryMisspelledMember sends the example of every operation with a misspelled member in each of its objects. It is refused
// with the member's place and the right name. An item as it is shown has no other unknown member.
func TestEveryMisspelledMember(t *testing.T) {
	t.Parallel()
	w := sharedWalk(t)
	tried, shown := 0, 0
	for _, o := range w.operations {
		if len(o.Example) == 0 || o.Name == "confirmVerifyCode" { // a code is compared first: see TestTwoFactor
			continue
		}
		tried++
		t.Run(o.Method+" "+o.Path, func(t *testing.T) {
			w := *w
			w.t, w.c = t, w.c.WithT(t)
			example := decodeObject(t, o.Example)
			for _, object := range objectsIn(example, "") {
				name := slices.Sorted(maps.Keys(object.members))[0]
				misspelled := name + name[len(name)-1:]
				object.members[misspelled] = true
				w.wantUnknown(o, example, object.pointer+"/"+schema.Escape(misspelled), name)
				delete(object.members, misspelled)
			}
			w.wantUnknown(o, map[string]any{"_method": "DELETE", "api_user": 1}, "/_method", "", "/api_user", "")
			if o.Effect.ViewPath == "" {
				return
			}
			shown++
			item := single(w.c.Do(http.MethodGet, w.item(o.Effect.ViewPath), nil).Want(200))
			item["~ no such member"] = 1
			w.wantUnknown(o, item, "/~0 no such member", "")
		})
	}
	if tried < 60 || shown < 40 {
		t.Errorf("got %d operations tried, %d with what they show, want at least 60 and 40", tried, shown)
	}
}

// wantUnknown expects an operation to refuse exactly these members as unknown. Each is a pointer and the nearest known name, which
// may be empty.
func (w *walk) wantUnknown(o rest.Operation, body map[string]any, members ...string) {
	w.t.Helper()
	refused := testkit.Decode[problem.Problem](w.c.Do(o.Method, w.item(o.Path), body).Want(422))
	got := map[string]string{}
	for _, e := range refused.Errors {
		if e.Code == "unknown" {
			got[e.Pointer] = e.Message
		}
	}
	if len(got) != len(members)/2 {
		w.t.Errorf("%s: got %v, want %v unknown", testkit.JSON(body), refused.Errors, members)
	}
	for at := range slices.Chunk(members, 2) {
		if !strings.HasPrefix(got[at[0]], "is unknown; ") || at[1] != "" && !strings.HasSuffix(got[at[0]], " is "+at[1]) {
			w.t.Errorf("%s: got %q at %s, want the nearest known member %q", testkit.JSON(body), got[at[0]], at[0], at[1])
		}
	}
}

// bodyObject is an object in a body, and its place there.
type bodyObject struct {
	pointer string
	members map[string]any
}

// objectsIn returns an object and the objects in it, except references, free maps and empty ones.
func objectsIn(object map[string]any, pointer string) (all []bodyObject) {
	if _, isRef := object["id"]; isRef && len(object) == 1 || len(object) == 0 {
		return nil
	}
	all = append(all, bodyObject{pointer, object})
	for name, value := range object {
		if inner, ok := value.(map[string]any); ok && name != "variables" {
			all = append(all, objectsIn(inner, pointer+"/"+schema.Escape(name))...)
		}
	}
	return all
}

func decodeObject(t *testing.T, text json.RawMessage) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
