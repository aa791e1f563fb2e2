package product_test

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/guard"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/testkit"
)

// The merged document is valid and has each public operation of each service.
func TestDocument(t *testing.T) { producttest.Both(t, testDocument) }

func testDocument(t *testing.T, p *product.Product, c *testkit.Client) {
	document, err := openapi3.NewLoader().LoadFromData([]byte(c.With("").Do("GET", "/-/openapi.json", nil).Want(200).Text))
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for _, routes := range p.Routes {
		for _, o := range rest.Operations(routes) {
			if !guard.Internal(o.Guard) {
				operations++
				if document.Paths.Value(o.Path).GetOperation(o.Method) == nil {
					t.Errorf("%s %s is not in the document", o.Method, o.Path)
				}
			}
		}
	}
	for _, item := range document.Paths.Map() {
		operations -= len(item.Operations())
	}
	if operations != 0 {
		t.Errorf("the document has %d operations more than there are", -operations)
	}
	for _, path := range []string{"/-/docs", "/-/docs/", "/-/docs/swagger-ui-bundle.js", "/-/docs/swagger-ui.css"} {
		c.With("").Do("GET", path, nil).Want(200)
	}
	c.With("").Do("GET", "/-/docs/nothing", nil).Want(404)
	c.With("").Do("GET", "/-/health", nil).Want(200)
	c.With("").Do("GET", "/-/nothing", nil).Want(404)
	c.With("").Do("POST", "/-/health", `{}`).Want(405)
}
