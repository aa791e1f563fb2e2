package product_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/deploy/sdk/model"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestGoClient calls every operation by the Go client, with the document's examples. The client's types must hold all
// that is sent and received.
func TestGoClient(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := &logWalk{walk: newWalk(t, p, c), changes: map[string]change{}}
	caller := &goCaller{walk: w.walk, methods: map[string]*model.Method{}, document: openAPI(t, c)}
	caller.api = producttest.API(t, c, client.WithTransport(caller))
	document, err := model.Read("../../../docs/reference/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range document.Resources() {
		for _, m := range r.Methods {
			caller.methods[m.ID] = m
		}
	}
	viewed := false
	testkit.Eventually(
		t,
		"identity has applied the setting of the panel",
		func() bool { return c.Do("GET", "/auth/sso", nil).Status == http.StatusOK },
	)
	w.inOrder(func(changes []rest.Operation) {
		w.doAll(changes, caller.do)
		if viewed {
			return
		}
		viewed = true // all items exist, because creating comes first
		for _, o := range w.operations {
			// Skip operations that need more than the items: a challenge of an authority, a sign-in at a provider, and uploads by tus. Skip
			// the stream of events, which has no end.
			if o.Effect.Logs == "" && o.Name != "getACMEChallenge" && o.Name != "finishOpenIDLogin" && o.Name != "streamEvents" &&
				!strings.HasSuffix(o.Name, "DriverUpload") {
				caller.do(o).Want(http.StatusOK)
			}
		}
	})
	if caller.calls < 50 {
		t.Errorf("got %d calls, want at least 50", caller.calls)
	}
}

type goCaller struct {
	*walk
	api      *client.Client
	methods  map[string]*model.Method // by the operation's id
	document *openapi3.T
	last     *testkit.Response
	calls    int
}

// RoundTrip sends a request, and keeps the response.
func (g *goCaller) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := g.c.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(text))
	g.last = g.c.NewResponse(response, text)
	return response, err
}

// do calls an operation on the created items.
func (g *goCaller) do(o rest.Operation) *testkit.Response {
	g.t.Helper()
	g.calls++
	described := g.document.Paths.Value(o.Path).GetOperation(o.Method)
	m := g.methods[described.OperationID]
	name := m.Name
	if m.Paged {
		name = "Page"
	}
	method := reflect.ValueOf(g.api).Elem().FieldByName(m.Plural).MethodByName(name)
	if !method.IsValid() {
		g.t.Fatalf("%s: got no method %s.%s, want one", described.OperationID, m.Plural, name)
	}
	results := method.Call(g.arguments(o, described, m, method.Type()))
	err, _ := results[len(results)-1].Interface().(error)
	if _, isRefusal := errors.AsType[*client.Error](err); err != nil && !isRefusal {
		g.t.Fatalf("%s: %v", described.OperationID, err)
	}
	answer := g.last
	if m.Answer != nil && answer.Status == http.StatusOK {
		typed := results[0]
		if m.Paged {
			typed = typed.Elem().FieldByName("Items")
		}
		read := testkit.JSON(typed.Interface())
		if !reflect.DeepEqual(withoutZeros(anything(g.t, read)), withoutZeros(anything(g.t, answer.Text))) {
			g.t.Errorf("%s: got %s, want the answer %s", described.OperationID, read, answer.Text)
		}
	}
	if creates(o) && answer.Status == http.StatusOK {
		g.created(g.item(o.Path), answer.ID())
	}
	return answer
}

func (g *goCaller) arguments(o rest.Operation, described *openapi3.Operation, m *model.Method, method reflect.Type) []reflect.Value {
	g.t.Helper()
	arguments := []reflect.Value{reflect.ValueOf(g.t.Context())}
	path, item := strings.Split(o.Path, "/"), strings.Split(g.item(o.Path), "/")
	for i := range path {
		if parameter.MatchString(path[i]) {
			id := reflect.New(method.In(len(arguments)))
			if _, err := fmt.Sscan(item[i], id.Interface()); err != nil {
				g.t.Fatal(err)
			}
			arguments = append(arguments, id.Elem())
		}
	}
	for _, wanted := range slices.Collect(method.Ins())[len(arguments) : method.NumIn()-1] {
		typed := reflect.New(wanted)
		if m.Body != nil {
			g.fill(typed, described)
		}
		arguments = append(arguments, typed.Elem())
	}
	isForce := func(p model.Parameter) bool { return p.Name == "force" }
	if _, codes, ok := strings.Cut(queryOf[o.Path], "?force="); ok && slices.ContainsFunc(m.Query, isForce) {
		arguments = append(arguments, reflect.ValueOf(client.Query("force", codes)))
	}
	return arguments
}

// fill reads the operation's example into a body. The body must hold all of it.
func (g *goCaller) fill(typed reflect.Value, described *openapi3.Operation) {
	g.t.Helper()
	body := described.RequestBody.Value.Content["application/json"]
	if err := body.Schema.Value.VisitJSON(body.Example); err != nil {
		g.t.Errorf("the example of %s: got %v, want one that its schema allows", described.OperationID, err)
	}
	example := testkit.JSON(plain(g.t, body.Schema, body.Example))
	if err := json.Unmarshal([]byte(example), typed.Interface()); err != nil {
		g.t.Fatalf("%s: got %v, want the example %s read", described.OperationID, err, example)
	}
	if sent := testkit.JSON(typed.Interface()); !reflect.DeepEqual(anything(g.t, sent), anything(g.t, example)) {
		g.t.Errorf("%s: got the body %s, want %s", described.OperationID, sent, example)
	}
}

// plain returns an example the way that the Go client writes it: a reference is its id, and a time has both forms.
func plain(t testing.TB, schema *openapi3.SchemaRef, example any) any {
	t.Helper()
	for _, option := range schema.Value.AnyOf {
		if example != nil {
			example = plain(t, option, example)
		}
	}
	switch value := example.(type) {
	case map[string]any:
		switch schema.Ref[strings.LastIndex(schema.Ref, "/")+1:] {
		case "RefBody":
			return value["id"]
		case "TimestampBody":
			var at client.Timestamp
			if err := json.Unmarshal([]byte(testkit.JSON(value)), &at); err != nil {
				t.Fatal(err)
			}
			return anything(t, testkit.JSON(at))
		}
		for name, member := range value {
			if described := schema.Value.Properties[name]; described != nil {
				value[name] = plain(t, described, member)
			}
		}
	case []any:
		for i := range value {
			value[i] = plain(t, schema.Value.Items, value[i])
		}
	}
	return example
}

// withoutZeros leaves out what the Go client does not tell from a missing member: 0, false and an empty text.
func withoutZeros(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if member = withoutZeros(member); member == 0.0 || member == false || member == "" {
				delete(value, name)
			}
		}
	case []any:
		for i := range value {
			value[i] = withoutZeros(value[i])
		}
	}
	return value
}

func anything(t testing.TB, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
