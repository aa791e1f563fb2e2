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

// issueForOther creates a key of admin 2.
func (o *fakeIdentity) issueForOther(id int64) string {
	key := o.issue(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admins["2"] = keycache.Owner{Active: true, Name: "bert", Grants: principal.All}
	o.keys[hashOf(key)] = keycache.Key{ID: id, Owner: principal.Owner{Type: principal.Admin, ID: 2}}
	return key
}

// fillShare claims all of a share, and returns what releases it.
func fillShare(t *testing.T, budget *limits.Budget, share limits.Share) (release func()) {
	t.Helper()
	c := budget.Claim(share)
	if _, err := c.TryAcquire(share.Max); err != nil {
		t.Fatal(err)
	}
	return c.Release
}

func (d *testGateway) post(key, address string, body io.Reader) int {
	r := httptest.NewRequestWithContext(d.t.Context(), "POST", "/port-speed", body)
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	d.gateway.ServeHTTP(w, r)
	return w.Code
}

// Memory for bodies is bounded in all, and for each owner, key and address. Only callers whose share is full are refused, and
// never for a short body.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	d.gateway.upstreams["network"] = newBlockingService(readBody)
	d.gateway.bodyBudget.Timeout = time.Millisecond
	own, second, other := d.identity.issue(1), d.identity.issue(2), d.identity.issueForOther(3)
	owner := principal.Owner{Type: principal.Admin, ID: 1}
	address, otherAddress := testAddress, "192.0.2.8:1000"
	network := bodyShares(&principal.Call{IP: d.gateway.callerAddress(&http.Request{RemoteAddr: address})})[0]
	type sender struct{ key, address string }
	first, sibling, outsider := sender{own, address}, sender{second, address}, sender{other, address}
	anonymous, distant := sender{"", address}, sender{"", otherAddress}
	for _, c := range []struct {
		full limits.Share
		want map[sender]int
	}{
		{limits.Share{Key: keyID(1), Max: keyBodyBudget}, map[sender]int{first: 429, sibling: 200, outsider: 200, anonymous: 200}},
		{limits.Share{Key: owner, Max: ownerBodyBudget}, map[sender]int{first: 429, sibling: 429, outsider: 200, anonymous: 200}},
		{network, map[sender]int{first: 200, anonymous: 429, distant: 200}},
		{limits.Share{Key: anonymousCallers{}, Max: anonymousBodyBudget}, map[sender]int{first: 200, anonymous: 503, distant: 503}},
		{limits.Share{Key: allCallers{}, Max: bodyBudget}, map[sender]int{first: 503, anonymous: 503}},
	} {
		release := fillShare(t, d.gateway.bodyBudget, c.full)
		for from, want := range c.want {
			for name, body := range map[string]io.Reader{
				"of known length": bytes.NewReader(make([]byte, 5000)), "in chunks": io.MultiReader(bytes.NewReader(make([]byte, 5000))),
			} {
				t.Run(fmt.Sprintf("%T is full/%d/%s", c.full.Key, want, name), func(t *testing.T) {
					if got := d.post(from.key, from.address, body); got != want {
						t.Errorf("got %d, want %d", got, want)
					}
				})
			}
			if got := d.post(from.key, from.address, strings.NewReader("{}")); got != 200 {
				t.Errorf("got %d for a short body, want 200", got)
			}
		}
		release()
	}
	for _, size := range []int{maxAnonymousBufferedBody, maxAnonymousBufferedBody + 1, maxBufferedBody, maxBufferedBody + 1} {
		for _, key := range []string{own, ""} {
			if got := d.post(key, address, bytes.NewReader(make([]byte, size))); got != 200 {
				t.Errorf("got %d for %d bytes, want 200", got, size)
			}
		}
	}
	if !d.gateway.bodyBudget.IsEmpty() {
		t.Error("got bytes that stay claimed, want all released")
	}
}

// A caller that sends halves of bodies, with many keys or from many addresses without one, leaves memory for others.
func TestHalfBodiesLeaveOthersTheirBudget(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	d.gateway.upstreams["network"] = readingService{}
	d.gateway.bodyBudget.Timeout = time.Millisecond
	other := d.identity.issueForOther(1000)
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
		case <-time.After(testTimeout):
			t.Fatal("got no answer to half a body and no read of it, want one of them")
			return 0
		}
	}
	for id := range int64(bodyBudget/keyBodyBudget + 1) {
		key := d.identity.issue(id + 1)
		for n := 0; half(key, testAddress, maxBufferedBody) == 0; n++ {
			if n > bodyBudget/maxBufferedBody {
				t.Fatalf("got %d halves of one key accepted, want at most %d", n, bodyBudget/maxBufferedBody)
			}
		}
	}
	for n := range 2 * bodyBudget / addressBodyBudget {
		for half("", fmt.Sprintf("10.0.0.%d:1", n), maxAnonymousBufferedBody) == 0 {
		}
	}
	for range 10 {
		if got := d.post(other, testAddress, bytes.NewReader(make([]byte, maxBufferedBody))); got != 200 {
			t.Fatalf("got %d for the other owner's body, want 200", got)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A claim is released once the service has read the body, so a caller that reads its response slowly holds none.
func TestBudgetIsFreedOnceRead(t *testing.T) {
	forBothTransports(t, nil, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		network.serve = func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			<-network.proceed
		}
		for _, method := range []string{"POST", "GET"} {
			_, in := ask(
				method + " /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat(
					"x",
					1_000_000,
				),
			)
			receive(t, "the request", network.started)
			testkit.Eventually(t, "the claim is freed", d.gateway.bodyBudget.IsEmpty)
			if method == "GET" {
				close(network.proceed)
				if got := readStatus(t, in); got != 200 {
					t.Errorf("got %d, want 200", got)
				}
			}
		}
	})
}

// The key is checked again after waiting for a body, also if the body turns out to be empty.
func TestEmptyBodyArrivesLate(t *testing.T) {
	forBothTransports(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, principal.FromContext(r.Context()).Principal.Name)
	}, func(t *testing.T, d *testGateway, _ *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		for _, method := range []string{"POST", "GET"} {
			d.setAdmin(keycache.Owner{Active: true, Name: "anna", Grants: principal.All})
			key := d.identity.issue(1)
			c, in := ask(
				method + " /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
			)
			_, _ = in.ReadString('\n')
			_, _ = in.ReadString('\n')
			d.setAdmin(keycache.Owner{Active: true, Name: "bert", Grants: principal.All})
			time.Sleep(maxDecisionAge)
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
