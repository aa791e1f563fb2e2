package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/ironplane/ironplane/pkg/openapi"
)

// contract is the API document of a server. Every answer in every test is held against it.
type contract struct {
	router  routers.Router
	schemas openapi3.Schemas
}

func contractOf(t testing.TB, url string) *contract {
	t.Helper()
	response, err := http.Get(url + openapi.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := contractIn(text)
	if err != nil {
		t.Fatalf("the API document: %v: %.200s", err, text)
	}
	return c
}

// checkBulk checks the answer to a CSV body, which is another one than that to a JSON body.
func (c *contract) checkBulk(route *routers.Route, body []byte) error {
	answer, _ := route.Operation.RequestBody.Value.Content["text/csv"].Extensions["x-answer"].(map[string]any)
	name, _ := strings.CutPrefix(fmt.Sprint(answer["$ref"]), "#/components/schemas/")
	var made any
	if err := json.Unmarshal(body, &made); err != nil {
		return err
	}
	return c.schemas[name].Value.VisitJSON(made)
}

// checkSeveral checks the answer to an operation on several items, which is an array of what it answers of one.
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

// contracts are those that tests have come upon, by their text. To read one takes longer than many a test.
var contracts = struct {
	sync.Mutex
	byText map[string]*contract
}{byText: map[string]*contract{}}

func contractIn(text []byte) (*contract, error) {
	contracts.Lock()
	defer contracts.Unlock()
	if c := contracts.byText[string(text)]; c != nil {
		return c, nil
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	for _, s := range document.Components.Schemas {
		if len(s.Value.Properties) > 0 { // callers must bear new members; tests must not
			none := false
			s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &none}
		}
	}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		return nil, err
	}
	contracts.byText[string(text)] = &contract{router, document.Components.Schemas}
	return contracts.byText[string(text)], nil
}

// check tells what an answer has that the document does not say. Paths that the document does not have answer 404,
// and other methods 405.
func (c *contract) check(r *http.Request, response *http.Response, body []byte) error {
	route, parameters, err := c.router.FindRoute(r)
	if err != nil {
		if undocumented := response.StatusCode; undocumented != 404 && undocumented != 405 && !strings.HasPrefix(r.URL.Path, "/-/") {
			return fmt.Errorf("%s %s is not in the document and answered %d", r.Method, r.URL.Path, undocumented)
		}
		return nil
	}
	if route.Operation.Responses.Status(response.StatusCode) == nil {
		return fmt.Errorf("%s %s answered %d, which the document does not name", r.Method, r.URL.Path, response.StatusCode)
	}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/csv") {
		return nil // a text is all that the document says of it
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/csv") && response.StatusCode == http.StatusOK {
		return c.checkBulk(route, body)
	}
	if _, several := route.Operation.Extensions["x-several"]; several && bytes.HasPrefix(body, []byte("[")) {
		return c.checkSeveral(r, response, body)
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route},
		Status:                 response.StatusCode,
		Header:                 response.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	})
}
