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

// What a client can find out about addresses by, it does so often an hour, with all that it created, at whatever instance,
// and whatever comes of it.
func TestClientsAreNoOracle(t *testing.T) {
	t.Parallel()
	instances := producttest.Instances(t, 3)
	c := instances[0]
	ids, as := newClients(t, c, "reseller", "known", "other", "stranger")
	limit := 20
	choose(t, c, settings.ClientEmails.Slug, limit)
	for _, at := range instances {
		testkit.Eventually(t, "each process has heard of the limit", func() bool {
			answer := at.WithKey(as["other"].Key).Do("POST", "/client", order("x"))
			return answer.Status == 429 && answer.Header.Get("RateLimit-Policy") == `"emails";q=20;w=3600`
		})
	}

	// An account that it creates, and one that this one creates, count with it: also when nothing links them any more.
	reseller := as["reseller"]
	made := reseller.Do("POST", "/client", order("made@example.com")).Want(200).ID()
	its := c.WithKey(keyOf(t, c, path("/client/%d", made)))
	below := its.Do("POST", "/client", order("below@example.com")).Want(200).ID()
	lowest := c.WithKey(keyOf(t, c, path("/client/%d", below)))
	link := testkit.Decode[[]struct{ ID int64 }](its.Do("GET", path("/client/%d/parent", made), nil).Want(200))[0].ID
	its.Do("DELETE", fmt.Sprint(path("/client/%d/parent/", made), link), nil).Want(200)
	own, theirs := path("/client/%d", ids["reseller"]), path("/client/%d", ids["known"])

	// What it can read counts for nothing when it is sent back, nor what an admin does.
	reseller.Do("PATCH", own, reseller.Do("GET", own, nil).Want(200).Text).Want(200)
	its.Do("PATCH", path("/client/%d", below), `{"first": "Bea", "email": "BELOW@example.com"}`).Want(200)
	c.Do("PATCH", theirs, `{"email": "known@example.org"}`).Want(200)

	var counted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 3 * limit {
		all.Go(func() {
			caller := []*testkit.Client{reseller, its, lowest}[i%3]
			at := instances[i%len(instances)].WithKey(caller.Key)
			var answer *testkit.Response
			switch i / 3 % 5 {
			case 0:
				answer = at.Do("POST", "/client", order("known@example.org"))
			case 1:
				answer = at.Do("POST", "/client", `{"email": "known@example.org"}`)
			case 2:
				answer = at.Do("PATCH", theirs, fmt.Sprintf(`{"email": "guess-%d@example.org"}`, i))
			case 3:
				answer = at.Do("POST", path("/client/%d/email", below), `{"type": "client-account-created"}`)
			default:
				answer = at.Do("PATCH", own, fmt.Sprintf(`{"email": "guess-%d@example.org"}`, i))
			}
			if answer.Status != 429 {
				counted.Add(1)
				return
			}
			refused.Add(1)
			wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
			if err != nil || wait < 3500 || wait > 3600 || answer.Header.Get("RateLimit") != fmt.Sprintf(`"emails";r=0;t=%d`, wait) ||
				answer.Header.Get("RateLimit-Policy") != `"emails";q=20;w=3600` {
				t.Errorf("got %v, want Retry-After of 3500 to 3600 seconds and the RateLimit of 20 emails an hour", answer.Header)
			}
		})
	}
	all.Wait()
	if n := counted.Load(); n != int64(limit-2) || refused.Load() != int64(2*limit+2) {
		t.Errorf("got %d let through after the first 2 and %d refused, want %d and %d", n, refused.Load(), limit-2, 2*limit+2)
	}
	lowest.Do("PATCH", path("/client/%d", below), `{"first": "Bob"}`).Want(200)
	as["stranger"].Do("POST", "/client", order("made@example.com")).Want(200) // whom nobody has created
	choose(t, c, settings.ClientEmails.Slug, limit+1)
	testkit.Eventually(t, "the limit is a higher one", func() bool {
		return reseller.Do("POST", "/client", order("made@example.com")).Status == 200
	})
	reseller.Do("POST", "/client", order("made@example.com")).Want(429)
}
