package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/process"

	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// testTimeout is how long tests wait for something, also on a busy machine.
const testTimeout = 2 * time.Minute

// blockingService keeps each request until proceed is closed or the request's context ends, unless serve is set.
type blockingService struct {
	started chan *http.Request
	ended   chan error
	proceed chan struct{}
	serve   http.HandlerFunc
}

func newBlockingService(serve http.HandlerFunc) *blockingService {
	return &blockingService{make(chan *http.Request, 10_000), make(chan error, 10_000), make(chan struct{}), serve}
}

func (b *blockingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		p := recover()
		b.ended <- r.Context().Err()
		if p != nil {
			panic(p)
		}
	}()
	b.started <- r
	if b.serve != nil {
		b.serve(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body) // then net/http notices the end of the connection
	select {
	case <-b.proceed:
	case <-r.Context().Done():
	}
}

// writeEndlessly writes a response that does not end.
func writeEndlessly(w http.ResponseWriter, r *http.Request) {
	for piece := make([]byte, 64<<10); r.Context().Err() == nil; {
		if _, err := w.Write(piece); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func readBody(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// forBothTransports runs a test with a service in the gateway's process, and with one in another process. ask opens a connection
// and sends the text.
func forBothTransports(
	t *testing.T,
	serve http.HandlerFunc,
	test func(t *testing.T, d *testGateway, network *blockingService, ask func(text string) (net.Conn, *bufio.Reader)),
) {
	t.Parallel()
	for _, transport := range []string{"together", "apart"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			d, network := newTestGateway(t, unlimited), newBlockingService(serve)
			d.gateway.upstreams["network"] = network
			if transport == "apart" {
				d.gateway.upstreams["network"] = serveRemote(t, network)
			}
			address := d.serve()
			test(t, d, network, func(text string) (net.Conn, *bufio.Reader) {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				_ = c.SetDeadline(time.Now().Add(3 * testTimeout))
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
				return c, bufio.NewReader(c)
			})
		})
	}
}

// serveRemote returns an upstream that reaches the handler over mTLS.
func serveRemote(t *testing.T, handler http.Handler) http.Handler {
	t.Helper()
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	service, err := authority.Identity("network")
	if err != nil {
		t.Fatal(err)
	}
	id, err := authority.Identity(principal.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- process.Serve(ctx, service.Listener(listener), mtls.Receive(handler, log), log) }()
	t.Cleanup(func() {
		stop()
		<-served
	})
	return proxy.New(id, "network", []string{listener.Addr().String()}, log)
}

func receive[T any](t *testing.T, event string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("got nothing in %v, want %s", testTimeout, event)
		panic("")
	}
}

func readStatus(t *testing.T, in *bufio.Reader) int {
	t.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 && !strings.Contains(string(body), `"request_id"`) {
		t.Errorf("got %d %s, %v, want 200 or a problem with its request ID", response.StatusCode, body, err)
	}
	return response.StatusCode
}

// When a key loses its rights, requests without a response end with a 401 or 403, and the service notices.
func TestRequestsUnderWayEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(d *testGateway, key string)
		want int
	}{
		"deleted":       {func(d *testGateway, key string) { d.identity.revoke(d.t, key) }, 401},
		"owner deleted": {func(d *testGateway, _ string) { d.setAdmin(keycache.Owner{}) }, 401},
		"permission lost": {func(d *testGateway, _ string) {
			d.setAdmin(keycache.Owner{
				Active: true, Name: "anna", Grants: principal.All &^ principal.Grant(permission.NetworkGroups, permission.Write),
			})
		}, 403},
		"expired": {func(d *testGateway, key string) { d.expire(key, time.Now().Add(10*time.Millisecond)) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			forBothTransports(t, nil, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
				key := d.identity.issue(1)
				_, get := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n\r\n")
				_, post := ask("POST /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nContent-Length: 2\r\n\r\n{}")
				receive(t, "the request", network.started)
				receive(t, "the request", network.started)
				c.end(d, key)
				if got := readStatus(t, get); got != c.want {
					t.Errorf("got %d, want %d", got, c.want)
				}
				if got := readStatus(t, post); got != c.want {
					t.Errorf("got %d, want %d", got, c.want)
				}
				receive(t, "the service to hear of it", network.ended)
				receive(t, "the service to hear of it", network.ended)
			})
		})
	}
}

// A response in progress is broken off, even if its caller reads nothing of it.
func TestAnswersUnderWayEnd(t *testing.T) {
	forBothTransports(
		t,
		writeEndlessly,
		func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
			key := d.identity.issue(1)
			_, in := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n\r\n")
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			receive(t, "the request", network.started)
			d.identity.revoke(t, key)
			receive(t, "the service to hear of it", network.ended)
			if _, err := io.Copy(io.Discard, response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v at the answer's end, want %v", err, io.ErrUnexpectedEOF)
			}
		},
	)
}

// A revoked key's incomplete body is not waited for, and its request reaches no service. An upload that has begun ends at the
// service.
func TestBodiesUnderWayEnd(t *testing.T) {
	forBothTransports(t, readBody, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		for _, length := range []int{100, maxBufferedBody, maxBufferedBody + 1} {
			key := d.identity.issue(1)
			c, in := ask(
				fmt.Sprintf(
					"POST /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
					key,
					length,
				),
			)
			if length > maxBufferedBody {
				receive(t, "the upload", network.started)
			}
			if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("got %q, %v, want HTTP/1.1 100 Continue", line, err)
			}
			_, _ = in.ReadString('\n')
			_, _ = io.WriteString(c, "{")
			d.identity.revoke(t, key)
			if got := readStatus(t, in); got != 401 {
				t.Errorf("got %d, want 401", got)
			}
			if length > maxBufferedBody {
				receive(t, "the service to hear of it", network.ended)
			}
			if len(network.started) > 0 {
				t.Error("got the request at the service, want it refused before")
			}
		}
	})
}

// A request whose body arrives late is done with the rights that the key has by then.
func TestBodyArrivesLate(t *testing.T) {
	forBothTransports(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, principal.FromContext(r.Context()).Principal.Name)
	}, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		c, in := ask(
			"POST /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
		)
		_, _ = in.ReadString('\n')
		_, _ = in.ReadString('\n')
		d.setAdmin(keycache.Owner{Active: true, Name: "bert", Grants: principal.All})
		time.Sleep(maxDecisionAge)
		_, _ = io.WriteString(c, "2\r\n{}\r\n0\r\n\r\n")
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name, _ := io.ReadAll(response.Body); string(name) != "bert" {
			t.Errorf("got the call done as %q, want it done as \"bert\"", name)
		}
		if r := receive(t, "the request", network.started); r.ContentLength != 2 {
			t.Errorf("got %d bytes at the service, want 2", r.ContentLength)
		}
	})
}

// Running requests go on while no service can tell whether their key is valid. So do requests without a key.
func TestRequestsContinueDuringOutage(t *testing.T) {
	forBothTransports(t, nil, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		key := d.identity.issue(1)
		_, in := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n\r\n")
		_, anonymous := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\n\r\n")
		receive(t, "the request", network.started)
		receive(t, "the request", network.started)
		d.identity.set(refuseUnavailable, nil)
		d.identity.mu.Lock()
		clear(d.identity.keys)
		d.identity.mu.Unlock()
		d.redis.FlushAll(t.Context())
		asked := d.identity.questions("key")
		// The second question follows the first one's failure. A request that ended because of it would ask no second one.
		testkit.Eventually(t, "the key is asked for twice, or a request has ended", func() bool {
			return d.identity.questions("key") >= asked+2 || len(network.ended) > 0
		})
		close(network.proceed)
		for _, in := range []*bufio.Reader{in, anonymous} {
			if got := readStatus(t, in); got != 200 {
				t.Errorf("got %d, want 200", got)
			}
		}
	})
}

// A single response that a key is gone ends its requests, however long the next look-up takes.
func TestOneAnswerEndsIt(t *testing.T) {
	t.Parallel()
	d, network := newTestGateway(t, unlimited), newBlockingService(nil)
	d.gateway.upstreams["network"] = network
	_ = d.server.Stop(t.Context()) // so that each look-up is a question
	key, proceed := d.identity.issue(1), make(chan struct{})
	var isDeleted, answered atomic.Bool
	d.identity.set(func(http.ResponseWriter) bool {
		if isDeleted.Load() && answered.Swap(true) {
			<-proceed
		}
		return false
	}, nil)
	defer close(proceed)
	ended := make(chan int, 1)
	go func() { ended <- get(d.gateway, testAddress, key, "/port-speed").Code }()
	receive(t, "the request", network.started)
	d.identity.mu.Lock()
	delete(d.identity.keys, hashOf(key))
	d.identity.mu.Unlock()
	isDeleted.Store(true)
	if got := receive(t, "the request to end", ended); got != 401 {
		t.Errorf("got %d, want 401", got)
	}
}

// Each key is looked up once at a time, however many of its requests are running.
func TestOneLookUp(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	d.gateway.upstreams["network"] = newBlockingService(nil)
	_ = d.server.Stop(t.Context()) // so that each look-up is a question
	key := d.identity.issue(1)
	address := d.serve()
	for range 50 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", key)
	}
	for range 50 {
		receive(t, "the request", d.gateway.upstreams["network"].(*blockingService).started)
	}
	began, asked := time.Now(), d.identity.questions("key")
	time.Sleep(10 * watchInterval)
	testkit.Eventually(t, "there is one more question", func() bool { return d.identity.questions("key") > asked })
	if n, maxQuestions := d.identity.questions("key")-asked, 2+int(time.Since(began)/maxWatchedAge); n > maxQuestions {
		t.Errorf("got %d questions, want at most %d", n, maxQuestions)
	}
}

func (d *testGateway) setAdmin(o keycache.Owner) {
	d.t.Helper()
	d.identity.mu.Lock()
	d.identity.admins["1"] = o
	d.identity.mu.Unlock()
	if err := d.identity.entries.Remove(d.t.Context(), "owner/admin/1"); err != nil {
		d.t.Error(err)
	}
}

func (d *testGateway) expire(key string, at time.Time) {
	d.t.Helper()
	d.identity.mu.Lock()
	k := d.identity.keys[hashOf(key)]
	k.Expires = &at
	d.identity.keys[hashOf(key)] = k
	d.identity.mu.Unlock()
	if err := d.identity.entries.Remove(d.t.Context(), keycache.KeyName(hashOf(key))); err != nil {
		d.t.Error(err)
	}
}
