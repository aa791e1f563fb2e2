package product_test

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/testkit"
)

// No text in the database has a NUL or is not UTF-8, so a parameter that is such a text is refused, and named.
func TestQueryIsText(t *testing.T) { producttest.Both(t, testQueryIsText) }

func testQueryIsText(t *testing.T, p *product.Product, c *testkit.Client) {
	document := testkit.Decode[struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}](c.With("").Do("GET", "/-/openapi.json", nil).Want(200))
	w := newWalk(t, p, c)
	w.createOneOfEach()
	tried := 0
	for path, operations := range document.Paths {
		for _, parameter := range operations["get"].Parameters {
			if parameter.In != "query" {
				continue
			}
			for _, value := range []string{"%00", "a%00b", "%ff"} {
				tried++
				answer := c.Do("GET", w.item(path)+"?"+parameter.Name+"="+value, nil).Want(400)
				if wrong := testkit.Decode[problem.Problem](answer).Errors; len(wrong) == 0 || !strings.HasPrefix(wrong[0].Pointer, "?") {
					t.Errorf("%s?%s=%s: %s", path, parameter.Name, value, answer.Text)
				}
			}
		}
	}
	c.Do("GET", "/log?target_id=7&target_type=%00", nil).Want(400)
	if tried < 100 {
		t.Errorf("%d tries", tried)
	}
}
