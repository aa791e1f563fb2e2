package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/gateway/limits"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// issueOther makes a key of admin 2.
func (o *owner) issueOther(id int64) string {
	key := o.issue(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admins["2"] = keycache.Owner{Active: true, Name: "bert", Grants: principal.All}
	o.keys[hashOf(key)] = keycache.Key{ID: id, Owner: principal.Owner{Type: principal.Admin, ID: 2}}
	return key
}

// fill claims all of a share. It returns what frees it.
func fill(t *testing.T, budget *limits.Budget, share limits.Share) (free func()) {
	t.Helper()
	c := budget.Claim(share)
	if _, err := c.Try(share.Max); err != nil {
		t.Fatal(err)
	}
	return c.Free
}

func (d *door) post(key, address string, body io.Reader) int {
	r := httptest.NewRequestWithContext(d.t.Context(), "POST", "/port-speed", body)
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	d.gateway.ServeHTTP(w, r)
	return w.Code
}

// What bodies take is bounded in all, and for each owner, key and address. Whose share is full is refused alone, and what
// takes no room never is.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	d := newDoor(t, unlimited)
	d.gateway.upstreams["network"] = newBusy(reads)
	d.gateway.bodies.Timeout = time.Millisecond
	mine, second, other := d.identity.issue(1), d.identity.issue(2), d.identity.issueOther(3)
	anna := principal.Owner{Type: principal.Admin, ID: 1}
	here, elsewhere := somebody, "192.0.2.8:1000"
	network := bodyShares(&principal.Call{IP: d.gateway.callerOf(&http.Request{RemoteAddr: here})})[0]
	type ask struct{ key, address string }
	for _, c := range []struct {
		full limits.Share
		want map[ask]int
	}{
		{
			limits.Share{Of: keyID(1), Max: keyBodyBudget}, map[ask]int{{mine, here}: 429, {second, here}: 200, {other, here}: 200, {"", here}: 200},
		},
		{limits.Share{Of: anna, Max: ownerBodyBudget}, map[ask]int{{mine, here}: 429, {second, here}: 429, {other, here}: 200, {"", here}: 200}},
		{network, map[ask]int{{mine, here}: 200, {"", here}: 429, {"", elsewhere}: 200}},
		{limits.Share{Of: anonymousCallers{}, Max: anonymousBodyBudget}, map[ask]int{{mine, here}: 200, {"", here}: 503, {"", elsewhere}: 503}},
		{limits.Share{Of: everybody{}, Max: bodyBudget}, map[ask]int{{mine, here}: 503, {"", here}: 503}},
	} {
		free := fill(t, d.gateway.bodies, c.full)
		for asked, want := range c.want {
			for name, body := range map[string]io.Reader{
				"of known length": bytes.NewReader(make([]byte, 5000)), "in chunks": io.MultiReader(bytes.NewReader(make([]byte, 5000))),
			} {
				t.Run(fmt.Sprintf("%T is full/%d/%s", c.full.Of, want, name), func(t *testing.T) {
					if got := d.post(asked.key, asked.address, body); got != want {
						t.Errorf("got %d, want %d", got, want)
					}
				})
			}
			if got := d.post(asked.key, asked.address, strings.NewReader("{}")); got != 200 {
				t.Errorf("got %d for a short body, want 200", got)
			}
		}
		free()
	}
	for _, size := range []int{largestAnonymous, largestAnonymous + 1, largestKept, largestKept + 1} {
		for _, key := range []string{mine, ""} {
			if got := d.post(key, here, bytes.NewReader(make([]byte, size))); got != 200 {
				t.Errorf("got %d for %d bytes, want 200", got, size)
			}
		}
	}
	if !d.gateway.bodies.IsFree() {
		t.Error("got bytes that stay claimed, want all freed")
	}
}

// Who sends halves of bodies, by all his keys or from many addresses without one, leaves room for a whole body of somebody else.
func TestHalvesTakeNoBudgetOfOthers(t *testing.T) {
	t.Parallel()
	d := newDoor(t, unlimited)
	d.gateway.upstreams["network"] = reader{}
	d.gateway.bodies.Timeout = time.Millisecond
	other := d.identity.issueOther(1000)
	over := make(chan struct{})
	var halves sync.WaitGroup
	defer halves.Wait()
	defer close(over)
	half := func(key, address string, length int) (answered int) {
		waited, refused := make(chan struct{}), make(chan int, 1)
		halves.Go(func() {
			stops := sync.OnceFunc(func() { close(waited) })
			begun := io.MultiReader(bytes.NewReader(make([]byte, length/2)), readerFunc(func([]byte) (int, error) {
				stops()
				<-over
				return 0, io.ErrUnexpectedEOF
			}))
			refused <- d.post(key, address, begun)
		})
		select {
		case <-waited:
			return 0
		case answered = <-refused:
			return answered
		case <-time.After(soon):
			t.Fatal("got no answer to half a body and no read of it, want one of them")
			return 0
		}
	}
	for id := range int64(bodyBudget/keyBodyBudget + 1) {
		thief := d.identity.issue(id + 1)
		for n := 0; half(thief, somebody, largestKept) == 0; n++ {
			if n > bodyBudget/largestKept {
				t.Fatalf("got %d halves of one key accepted, want at most %d", n, bodyBudget/largestKept)
			}
		}
	}
	for n := range 2 * bodyBudget / addressBodyBudget {
		for half("", fmt.Sprintf("10.0.0.%d:1", n), largestAnonymous) == 0 {
		}
	}
	for range 10 {
		if got := d.post(other, somebody, bytes.NewReader(make([]byte, largestKept))); got != 200 {
			t.Fatalf("got %d for the other owner's body, want 200", got)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A claim is freed once the service has read the body, and where it has no use for one: a caller that takes its answer slowly
// holds none.
func TestBudgetIsFreedOnceRead(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, d *door, network *busy, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		network.serve = func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			<-network.goOn
		}
		for _, method := range []string{"POST", "GET"} {
			_, in := ask(
				method + " /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat(
					"x",
					1_000_000,
				),
			)
			receive(t, "the request", network.began)
			testkit.Eventually(t, "the claim is freed", d.gateway.bodies.IsFree)
			if method == "GET" {
				close(network.goOn)
				if got := status(t, in); got != 200 {
					t.Errorf("got %d, want 200", got)
				}
			}
		}
	})
}

// A body that turns out to be empty was waited for all the same.
func TestEmptyBodyArrivesLate(t *testing.T) {
	onBoth(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, principal.From(r.Context()).Principal.Name)
	}, func(t *testing.T, d *door, _ *busy, ask func(string) (net.Conn, *bufio.Reader)) {
		for _, method := range []string{"POST", "GET"} {
			d.setAdmin(keycache.Owner{Active: true, Name: "anna", Grants: principal.All})
			key := d.identity.issue(1)
			c, in := ask(
				method + " /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
			)
			_, _ = in.ReadString('\n')
			_, _ = in.ReadString('\n')
			d.setAdmin(keycache.Owner{Active: true, Name: "bert", Grants: principal.All})
			time.Sleep(memoryLife)
			_, _ = io.WriteString(c, "0\r\n\r\n")
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if name, _ := io.ReadAll(response.Body); string(name) != "bert" {
				t.Errorf("got %s done as %q, want it done as \"bert\"", method, name)
			}
		}
	})
}
