package product_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestGoClient calls every operation by the generated client, with the document's examples. The client's types must hold all
// that is sent and received.
func TestGoClient(t *testing.T) {
	t.Parallel()
	p, c := producttest.Start(t)
	w := &logWalk{walk: newWalk(t, p, c), changes: map[string]change{}}
	caller := &goCaller{walk: w.walk, api: reflect.ValueOf(producttest.API(t, c)), document: openAPI(t, c)}
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
			// Skip operations that need more than the items: a challenge of an authority, a sign-in at a provider, and uploads by tus.
			if o.Effect.Logs == "" && o.Name != "getACMEChallenge" && o.Name != "finishOpenIDLogin" && !strings.HasSuffix(o.Name, "DriverUpload") {
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
	api      reflect.Value // of an *ironplane.ClientWithResponses
	document *openapi3.T
	calls    int
}

// do calls an operation on the created items.
func (g *goCaller) do(o rest.Operation) *testkit.Response {
	g.t.Helper()
	g.calls++
	described := g.document.Paths.Value(o.Path).GetOperation(o.Method)
	method := g.api.MethodByName(strings.ToUpper(described.OperationID[:1]) + described.OperationID[1:] + "WithResponse")
	if !method.IsValid() {
		g.t.Fatalf("got no method %s, want one", described.OperationID)
	}
	results := method.Call(g.arguments(o, described, method.Type()))
	if err, _ := results[1].Interface().(error); err != nil {
		g.t.Fatalf("%s: %v", described.OperationID, err)
	}
	response := results[0].Elem()
	answer := g.c.NewResponse(response.FieldByName("HTTPResponse").Interface().(*http.Response), response.FieldByName("Body").Bytes())
	if typed := response.FieldByName(
		"JSON200",
	); answer.Status == http.StatusOK && typed.IsValid() &&
		answer.Header.Get("Content-Type") == "application/json" {
		if read := testkit.JSON(typed.Interface()); !reflect.DeepEqual(anything(g.t, read), anything(g.t, answer.Text)) {
			g.t.Errorf("%s: got %s, want the answer %s", described.OperationID, read, answer.Text)
		}
	}
	if creates(o) && answer.Status == http.StatusOK {
		g.created(g.item(o.Path), answer.ID())
	}
	return answer
}

func (g *goCaller) arguments(o rest.Operation, described *openapi3.Operation, method reflect.Type) []reflect.Value {
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
		if wanted.Kind() == reflect.Pointer { // to what goes into the query and the header
			parameters := reflect.New(wanted.Elem())
			if _, codes, ok := strings.Cut(queryOf[o.Path], "?force="); ok && parameters.Elem().FieldByName("Force").IsValid() {
				parameters.Elem().FieldByName("Force").Set(reflect.ValueOf(&codes))
			}
			arguments = append(arguments, parameters)
			continue
		}
		body := described.RequestBody.Value.Content["application/json"]
		if err := body.Schema.Value.VisitJSON(body.Example); err != nil {
			g.t.Errorf("the example of %s: got %v, want one that its schema allows", described.OperationID, err)
		}
		typed := reflect.New(wanted)
		example := testkit.JSON(body.Example)
		if err := json.Unmarshal([]byte(example), typed.Interface()); err != nil {
			g.t.Fatalf("%s: got %v, want the example %s read", described.OperationID, err, example)
		}
		if sent := testkit.JSON(typed.Interface()); !reflect.DeepEqual(anything(g.t, sent), anything(g.t, example)) {
			g.t.Errorf("%s: got the body %s, want %s", described.OperationID, sent, example)
		}
		arguments = append(arguments, typed.Elem())
	}
	return arguments
}

func anything(t testing.TB, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
