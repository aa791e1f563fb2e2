package product_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// An encoded slash separates no elements of a path, in no service and not in the gateway's own paths. Other encodings of a path mean
// the path.
func TestEncodedPaths(t *testing.T) { shared(t, testEncodedPaths) }

func testEncodedPaths(t *testing.T, _ *product.Product, c *testkit.Client) {
	id := c.Do("POST", "/client", order("encoded@example.com")).Want(200).ID()
	key := c.Do("POST", "/auth/key", `{"name": "encoded"}`).Want(200).ID()
	ids := strings.NewReplacer("CLIENT", fmt.Sprint(id), "KEY", fmt.Sprint(key))
	for path, want := range map[string]int{
		"/client/CLIENT/sub":              200,
		"/%63lient/CLIENT/s%75b":          200,
		"/client/CLIENT%2fsub":            404,
		"/client/CLIENT%2Fsub":            404,
		"/client%2fCLIENT":                404,
		"/client%2fCLIENT/sub":            404,
		"/%2fclient/CLIENT":               404,
		"/client/CLIENT%2f":               404,
		"/client/CLIENT%252fsub":          404,
		"/client/CLIENT%5csub":            404,
		"/client/CLIENT%00":               404,
		"/client/%2e%2e/client/CLIENT":    404,
		"/client/..%2fclient/CLIENT":      404,
		"/client/x/../CLIENT":             404,
		"//client/CLIENT":                 404,
		"/client//CLIENT":                 404,
		"/client/./CLIENT":                404,
		"/auth/key/KEY":                   200,
		"/auth/key%2fKEY":                 404,
		"/auth%2fkey/KEY":                 404,
		"/auth%2fkey%2fcurrent":           404,
		"/auth/key%2fcurrent":             404,
		"/setting-group%2f1":              404,
		"/group/1%2fentity":               404,
		"/pxe%2fprofile":                  404,
		"/package/1/asset/a%2fb.js":       404,
		"/package/1/asset/..%2f..%2fx":    404,
		"/-/health":                       200,
		"/-%2fhealth":                     404,
		"/-/docs%2fswagger-ui.css":        404,
		"/-/docs/..%2f..%2fetc%2fpasswd":  404,
		"/-/docs/%2e%2e/%2e%2e/go.mod":    404,
		"/.well-known%2facme-challenge/x": 404,
	} {
		path = ids.Replace(path)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+path, http.NoBody)
		testkit.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+c.Key)
		response, err := http.DefaultTransport.RoundTrip(r) // as it is, without redirects
		testkit.Must(t, err)
		text, err := io.ReadAll(response.Body)
		testkit.Must(t, err)
		testkit.Must(t, response.Body.Close())
		if response.StatusCode != want {
			t.Errorf("%s: got %d %s, want %d", path, response.StatusCode, text, want)
		}
	}
	c.Do("DELETE", path("/client/%d%%2fsub", id), nil).Want(404)
	c.Do("GET", path("/client/%d", id), nil).Want(200)
}
