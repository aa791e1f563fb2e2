package product_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// Every operation that edits or deletes an item checks If-Match, and every response with an item has its ETag.
func TestEveryVersion(t *testing.T) { producttest.InOneProcess(t, testEveryVersion) }

func testEveryVersion(t *testing.T, p *product.Product, c *testkit.Client) {
	w := newWalk(t, p, c)
	w.createOneOfEach()
	tried := 0
	for _, o := range w.operations {
		if !edits(o) && o.Method != http.MethodDelete || hasOwnTests(o) || o.Effect.Logs == "" { // no item has changed
			continue
		}
		tried++
		path := w.item(o.Path)
		for _, stale := range []string{`"0"`, `"99", "0"`, `W/"1"`, `1`, `x`, `""`} {
			c.Do(o.Method, path, o.Example, "If-Match", stale).Want(412)
		}
		if o.Method == http.MethodDelete {
			continue // the last admin and the key of this test are still needed
		}
		seen := c.Do("GET", path, nil).Want(200).Header.Get("ETag")
		edited := c.Do(o.Method, path, o.Example, "If-Match", `"0", `+seen).Want(200).Header.Get("ETag")
		if now := c.Do("GET", path, nil).Want(200).Header.Get("ETag"); seen == "" || edited == seen || now != edited {
			t.Errorf("%s %s: got the ETag %s, then %s, then %s, want a new one after the edit, which stays", o.Method, path, seen, edited, now)
		}
		c.Do(o.Method, path, o.Example, "If-Match", seen).Want(412)
		c.Do(o.Method, path, o.Example, "If-Match", "*").Want(200)
	}
	if tried < 10 {
		t.Errorf("got %d operations tried, want at least 10", tried)
	}
}

// Of several editors that have read the same version, one succeeds. The others read again and retry, and no edit is lost.
func TestNoLostUpdate(t *testing.T) { shared(t, testNoLostUpdate) }

func testNoLostUpdate(t *testing.T, _ *product.Product, c *testkit.Client) {
	c.Do("POST", "/port-speed", `{"name": "", "speed": 1}`).Want(422)
	at := path("/port-speed/%d", c.Do("POST", "/port-speed", `{"name": "count", "speed": 1}`).Want(200).ID())
	const editors, each = 8, 10
	var refused atomic.Int64
	var all sync.WaitGroup
	for range editors {
		all.Go(func() {
			for done := 0; done < each; {
				seen := c.Do("GET", at, nil)
				speed := testkit.Decode[network.PortSpeed](seen).Speed
				answer := c.Do(
					"PATCH",
					at,
					map[string]any{"name": "count", "billing_id": nil, "speed": speed + 1},
					"If-Match",
					seen.Header.Get("ETag"),
				)
				switch answer.Status {
				case 200:
					done++
				case 412:
					refused.Add(1)
				default:
					t.Errorf("got %d %s, want 200 or 412", answer.Status, answer.Text)
					return
				}
			}
		})
	}
	all.Wait()
	if got := testkit.Decode[network.PortSpeed](c.Do("GET", at, nil)).Speed; got != 1+editors*each {
		t.Errorf("got %d, want %d; %d were refused", got, 1+editors*each, refused.Load())
	}
	if etag := c.Do("GET", at, nil).Header.Get("ETag"); etag != fmt.Sprintf(`"%d"`, 1+editors*each) {
		t.Errorf(`got the ETag %s, want "%d"`, etag, 1+editors*each)
	}
}
