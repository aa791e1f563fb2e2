package product_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Some operations of clients reveal whether an address has an account. They are limited for each hour. The limit counts a
// client together with the clients that it created, at every instance, and failed operations, too.
func TestEmailLookupsAreLimited(t *testing.T) {
	t.Parallel()
	instances := producttest.StartInstances(t, 3)
	c := instances[0]
	ids, as := newClients(t, c, "reseller", "known", "other", "independent")
	limit := 20
	choose(t, c, settings.ClientEmails.Slug, limit)
	for _, at := range instances {
		testkit.Eventually(t, "each process has applied the limit", func() bool {
			response := at.WithKey(as["other"].Key).Do("POST", "/client", order("x"))
			return response.Status == 429 && response.Header.Get("RateLimit-Policy") == `"emails";q=20;w=3600`
		})
	}

	// Operations of clients that the reseller created, directly or indirectly, count for the reseller, also after their links end.
	reseller := as["reseller"]
	created := reseller.Do("POST", "/client", order("made@example.com")).Want(200).ID()
	child := c.WithKey(keyOf(t, c, path("/client/%d", created)))
	below := child.Do("POST", "/client", order("below@example.com")).Want(200).ID()
	grandchild := c.WithKey(keyOf(t, c, path("/client/%d", below)))
	link := testkit.Decode[[]struct{ ID int64 }](child.Do("GET", path("/client/%d/parent", created), nil).Want(200))[0].ID
	child.Do("DELETE", fmt.Sprint(path("/client/%d/parent/", created), link), nil).Want(200)
	own, other := path("/client/%d", ids["reseller"]), path("/client/%d", ids["known"])

	// Addresses that the caller already knows do not count, nor do operations of admins.
	reseller.Do("PATCH", own, reseller.Do("GET", own, nil).Want(200).Text).Want(200)
	child.Do("PATCH", path("/client/%d", below), `{"first": "Bea", "email": "BELOW@example.com"}`).Want(200)
	c.Do("PATCH", other, `{"email": "known@example.org"}`).Want(200)

	var counted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 3 * limit {
		all.Go(func() {
			caller := []*testkit.Client{reseller, child, grandchild}[i%3]
			at := instances[i%len(instances)].WithKey(caller.Key)
			var response *testkit.Response
			switch i / 3 % 5 {
			case 0:
				response = at.Do("POST", "/client", order("known@example.org"))
			case 1:
				response = at.Do("POST", "/client", `{"email": "known@example.org"}`)
			case 2:
				response = at.Do("PATCH", other, fmt.Sprintf(`{"email": "guess-%d@example.org"}`, i))
			case 3:
				response = at.Do("POST", path("/client/%d/email", below), `{"type": "client-account-created"}`)
			default:
				response = at.Do("PATCH", own, fmt.Sprintf(`{"email": "guess-%d@example.org"}`, i))
			}
			if response.Status != 429 {
				counted.Add(1)
				return
			}
			refused.Add(1)
			wait, err := strconv.Atoi(response.Header.Get("Retry-After"))
			if err != nil || wait < 3500 || wait > 3600 || response.Header.Get("RateLimit") != fmt.Sprintf(`"emails";r=0;t=%d`, wait) ||
				response.Header.Get("RateLimit-Policy") != `"emails";q=20;w=3600` {
				t.Errorf("got %v, want Retry-After of 3500 to 3600 seconds and the RateLimit of 20 emails an hour", response.Header)
			}
		})
	}
	all.Wait()
	if n := counted.Load(); n != int64(limit-2) || refused.Load() != int64(2*limit+2) {
		t.Errorf("got %d allowed after the first 2 and %d refused, want %d and %d", n, refused.Load(), limit-2, 2*limit+2)
	}
	grandchild.Do("PATCH", path("/client/%d", below), `{"first": "Bob"}`).Want(200)
	as["independent"].Do("POST", "/client", order("made@example.com")).Want(200) // this client has no creator, so it has its own limit
	choose(t, c, settings.ClientEmails.Slug, limit+1)
	testkit.Eventually(t, "the higher limit is applied", func() bool {
		return reseller.Do("POST", "/client", order("made@example.com")).Status == 200
	})
	reseller.Do("POST", "/client", order("made@example.com")).Want(429)
}
