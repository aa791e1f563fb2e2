package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/ironplane/ironplane/pkg/rest/openapi"
)

// contract is the API document of a server. Tests check every response against it.
type contract struct {
	router   routers.Router
	mu       sync.Mutex
	compiler *jsonschema.Compiler // of the whole document; keeps compiled schemas
}

// documentURL is the name of the document for the compiler.
const documentURL = "https://document/"

func fetchContract(t testing.TB, server string) *contract {
	t.Helper()
	response, err := http.Get(server + openapi.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseContract(text)
	if err != nil {
		t.Fatalf("the API document: %v: %.200s", err, text)
	}
	return c
}

// conforms checks a body against the schema at the end of a path in the document.
func (c *contract) conforms(body []byte, steps ...string) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	pointer := "#"
	for _, step := range steps {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	c.mu.Lock()
	schema, err := c.compiler.Compile(documentURL + pointer)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// checkSeveral checks the response to an operation on several items: an array of responses for one item.
func (c *contract) checkSeveral(r *http.Request, response *http.Response, body []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(body, &items); err != nil {
		return err
	}
	for _, item := range items {
		if err := c.check(r, response, item); err != nil {
			return err
		}
	}
	return nil
}

// contracts has the documents by their text, because parsing one takes longer than many tests.
var contracts = struct {
	sync.Mutex
	byText map[string]*contract
}{byText: map[string]*contract{}}

func parseContract(text []byte) (*contract, error) {
	contracts.Lock()
	defer contracts.Unlock()
	if c := contracts.byText[string(text)]; c != nil {
		return c, nil
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		return nil, err
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for name, s := range document.Components.Schemas {
		if len(s.Value.Properties) > 0 { // callers must tolerate unknown members; tests must not
			objectAt(tree, "components", "schemas", name)["additionalProperties"] = false
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, tree); err != nil {
		return nil, err
	}
	contracts.byText[string(text)] = &contract{router: router, compiler: compiler}
	return contracts.byText[string(text)], nil
}

// objectAt returns the object at the end of a path of names.
func objectAt(tree any, names ...string) map[string]any {
	for _, name := range names {
		tree = tree.(map[string]any)[name]
	}
	return tree.(map[string]any)
}

// check returns an error if the response is not in the document. Unknown paths must respond with 404, unknown methods with 405.
func (c *contract) check(r *http.Request, response *http.Response, body []byte) error {
	route, _, err := c.router.FindRoute(r)
	if err != nil {
		if undocumented := response.StatusCode; undocumented != 404 && undocumented != 405 && !strings.HasPrefix(r.URL.Path, "/-/") {
			return fmt.Errorf("%s %s is not in the document and answered %d", r.Method, r.URL.Path, undocumented)
		}
		return nil
	}
	documented := route.Operation.Responses.Status(response.StatusCode)
	if documented == nil {
		return fmt.Errorf("%s %s answered %d, which the document does not name", r.Method, r.URL.Path, response.StatusCode)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/csv") && response.StatusCode == http.StatusOK {
		answer, _ := route.Operation.RequestBody.Value.Content["text/csv"].Extensions["x-answer"].(map[string]any)
		return c.conforms(body, strings.Split(strings.TrimPrefix(fmt.Sprint(answer["$ref"]), "#/"), "/")...)
	}
	if _, several := route.Operation.Extensions["x-several"]; several && bytes.HasPrefix(body, []byte("[")) {
		return c.checkSeveral(r, response, body)
	}
	if len(documented.Value.Content) == 0 {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if documented.Value.Content[kind] == nil {
		return fmt.Errorf("%s %s answered %d with %q, which the document does not name", r.Method, r.URL.Path, response.StatusCode, kind)
	}
	if kind != "application/json" && kind != "application/problem+json" {
		return nil // the document has no schema for other types
	}
	if name, shared := strings.CutPrefix(documented.Ref, "#/components/responses/"); shared {
		return c.conforms(body, "components", "responses", name, "content", kind, "schema")
	}
	return c.conforms(
		body,
		"paths",
		route.Path,
		strings.ToLower(r.Method),
		"responses",
		strconv.Itoa(response.StatusCode),
		"content",
		kind,
		"schema",
	)
}
