//go:build containers

package containers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/consul"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// agent is a Consul in a container. It loses its data when it stops.
type agent struct {
	t         *testing.T
	container testcontainers.Container
	address   atomic.Pointer[url.URL]
	host      string // of the test, as the container reaches it
}

func startConsul(t *testing.T) *agent {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), image("IRONPLANE_CONSUL_IMAGE", "hashicorp/consul:1.21"),
		testcontainers.WithCmd("agent", "-dev", "-client", "0.0.0.0"),
		testcontainers.WithExposedPorts("8500/tcp"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/v1/connect/ca/roots").WithPort("8500/tcp")))
	testcontainers.CleanupContainer(t, c)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, container: c}
	a.locate()
	connection, err := net.Dial("udp", a.address.Load().Host)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	a.host = connection.LocalAddr().(*net.UDPAddr).IP.String()
	return a
}

// locate finds the container's address, which may change with each start.
func (a *agent) locate() {
	a.t.Helper()
	ip, err := a.container.ContainerIP(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	a.address.Store(&url.URL{Scheme: "http", Host: net.JoinHostPort(ip, "8500")})
}

// open returns a process's connection to Consul, and the number of its requests.
func (a *agent) open() (*consul.Agent, *atomic.Int64) {
	a.t.Helper()
	return a.openAt(a.host)
}

// openAt is open for a process that others reach at this host.
func (a *agent) openAt(host string) (*consul.Agent, *atomic.Int64) {
	a.t.Helper()
	requests := &atomic.Int64{}
	proxy := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(a.address.Load()) },
		ErrorLog: slog.NewLogLogger(logTo(a.t).Handler(), slog.LevelDebug),
	}
	connection := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	a.t.Cleanup(func() {
		connection.CloseClientConnections()
		connection.Close()
	})
	opened, err := consul.Open(consul.Config{Consul: connection.URL, Advertise: host}, logTo(a.t))
	if err != nil {
		a.t.Fatal(err)
	}
	return opened, requests
}

// stop stops Consul. Another container may get its address, so nothing is sent there until Consul runs again.
func (a *agent) stop() {
	a.t.Helper()
	a.address.Store(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})
	if err := a.container.Stop(a.t.Context(), nil); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) start() {
	a.t.Helper()
	if err := a.container.Start(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	a.locate()
}

// instance is a process, as Consul sees it.
type instance struct {
	address string
	healthy atomic.Bool
	leave   context.CancelFunc
	ended   chan struct{}
}

// register registers a process with this name until leave is called.
func (a *agent) register(name string) *instance {
	a.t.Helper()
	serving := a.listen()
	return a.registerAt(name, a.host, serving.Addr())
}

// registerAt registers a process that serves at this address, and that others reach at this host.
func (a *agent) registerAt(name, host string, serving net.Addr) *instance {
	a.t.Helper()
	p := &instance{ended: make(chan struct{})}
	p.healthy.Store(true)
	operations := a.listen()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = server.Serve(operations) }()
	a.t.Cleanup(func() { _ = server.Close() })
	p.address = net.JoinHostPort(host, strconv.Itoa(serving.(*net.TCPAddr).Port))
	connection, _ := a.openAt(host)
	registration := connection.Registration(name, serving, operations.Addr())
	ctx, leave := context.WithCancel(a.t.Context())
	p.leave = leave
	go func() {
		defer close(p.ended)
		registration.Keep(ctx)
		registration.End()
	}()
	a.t.Cleanup(func() {
		leave()
		<-p.ended
	})
	return p
}

func (a *agent) listen() net.Listener {
	a.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(a.host, "0"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { l.Close() })
	return l
}

// discovery has the known addresses of a service.
type discovery struct {
	mu        sync.Mutex
	addresses []string
	news      int
	requests  *atomic.Int64
}

func (a *agent) find(name string) *discovery {
	connection, requests := a.open()
	f := &discovery{requests: requests}
	ctx, stop := context.WithCancel(a.t.Context())
	finding := make(chan struct{})
	go func() {
		defer close(finding)
		connection.Watch(ctx, name, func(addresses []string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.addresses = addresses
			f.news++
		})
	}()
	a.t.Cleanup(func() {
		stop()
		<-finding
	})
	return f
}

func (f *discovery) is(processes ...*instance) bool {
	var want []string
	for _, p := range processes {
		want = append(want, p.address)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got := slices.Clone(f.addresses)
	slices.Sort(got)
	slices.Sort(want)
	return f.news > 0 && slices.Equal(got, want)
}

// TestDiscovery shows that ready processes are found, and stay known while Consul is stopped and after it has lost its data.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	f := a.find("network")
	testkit.Eventually(t, "the empty list is reported", func() bool { return f.is() })
	one, two := a.register("network"), a.register("network")
	a.register("identity")
	testkit.Eventually(t, "both are found", func() bool { return f.is(one, two) })

	before := f.requests.Load()
	time.Sleep(5 * time.Second) // nothing changes in this time
	if n := f.requests.Load() - before; n > 1 {
		t.Errorf("got %d requests to Consul while nothing changed, want at most 1", n)
	}

	two.healthy.Store(false)
	testkit.Eventually(t, "a process that is not ready is removed", func() bool { return f.is(one) })
	two.healthy.Store(true)
	testkit.Eventually(t, "a process that is ready again is found", func() bool { return f.is(one, two) })

	before = f.requests.Load()
	a.stop()
	time.Sleep(5 * time.Second) // Consul is stopped in this time
	if !f.is(one, two) {
		t.Error("got other processes while Consul was stopped, want both kept")
	}
	if n := f.requests.Load() - before; n > 10 {
		t.Errorf("got %d requests to Consul while it was stopped, want at most 10", n)
	}
	a.start()
	third := a.register("network")
	testkit.Eventually(t, "all processes register with a Consul that has lost its data", func() bool { return f.is(one, two, third) })

	third.leave()
	<-third.ended
	if !f.is(one, two) {
		t.Error("got other processes once the third has ended, want the first two alone")
	}
	one.leave()
	two.leave()
	<-one.ended
	<-two.ended
	if f.is() {
		t.Error("got no process once the last has left, want the last known one kept")
	}
}

// TestConsulSamePort shows that instances on one machine with the same port, at different addresses, are all found. If one leaves, the
// other stays.
func TestConsulSamePort(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	f := a.find("network")
	serving := a.listen().Addr()
	one, two := a.registerAt("network", "192.0.2.1", serving), a.registerAt("network", "192.0.2.2", serving)
	six := a.registerAt("network", "2001:db8::6", serving)
	testkit.Eventually(t, "all instances are found", func() bool { return f.is(one, two, six) })
	one.leave()
	<-one.ended
	testkit.Eventually(t, "the others stay when one has left", func() bool { return f.is(two, six) })
}

// TestConsulCertifies replaces the root of Consul's authority. Requests over old and new connections go on without errors.
func TestConsulCertifies(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	processes, renewed := a.open()
	identities := map[string]*mtls.Identity{}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	for _, name := range []string{principal.Gateway, "network"} {
		id, err := processes.Identity(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		identities[name] = id
		working.Go(func() { processes.Renew(ctx, id, name) })
	}
	plain := a.listen()
	server := httptest.NewUnstartedServer(mtls.Receive(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			w.Header().Set("Connection", "close")
		}
	}), logTo(t)))
	server.Listener = identities["network"].Listener(plain)
	server.Config.ErrorLog = slog.NewLogLogger(logTo(t).Handler(), slog.LevelDebug)
	server.Start()
	defer server.Close()
	front := httptest.NewServer(
		testkit.As(proxy.New(identities[principal.Gateway], "network", []string{plain.Addr().String()}, logTo(t)), nil),
	)
	defer front.Close()

	var requests, failed atomic.Int64
	for n := range 4 {
		path := []string{"/", "/last"}[n%2]
		working.Go(func() {
			for ctx.Err() == nil {
				response, err := http.Get(front.URL + path)
				if err == nil {
					_ = response.Body.Close()
				}
				if err != nil || response.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				requests.Add(1)
			}
		})
	}
	first := issuer(t, plain.Addr().String())
	before := renewed.Load()
	a.rotate()
	testkit.Eventually(t, "the service's certificate is of the new root", func() bool { return issuer(t, plain.Addr().String()) != first })
	rotated := requests.Load()
	testkit.Eventually(t, "requests go on", func() bool { return requests.Load() > rotated+200 })
	if n := failed.Load(); n > 0 {
		t.Errorf("got %d failed of %d requests, want none", n, requests.Load())
	}
	t.Logf("%d requests, Consul asked %d times", requests.Load(), renewed.Load()-before)
}

// rotate lets Consul's authority create a new root.
func (a *agent) rotate() {
	a.t.Helper()
	const config = `{"Provider": "consul", "Config": {"LeafCertTTL": "72h", "PrivateKeyType": "ec", "PrivateKeyBits": 384}}`
	r, err := http.NewRequestWithContext(
		a.t.Context(),
		http.MethodPut,
		a.address.Load().String()+"/v1/connect/ca/configuration",
		strings.NewReader(config),
	)
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		a.t.Fatalf("got the status %s, want 200", response.Status)
	}
}

// issuer returns the id of the authority's key that signed the certificate of the process at an address.
func issuer(t *testing.T, address string) string {
	t.Helper()
	seen := errors.New("certificate seen")
	var issuer string
	_, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		issuer = string(s.PeerCertificates[0].AuthorityKeyId)
		return seen
	}})
	if !errors.Is(err, seen) {
		t.Fatalf("got the error %v, want a handshake that reaches the certificate", err)
	}
	return issuer
}

// TestStartWithoutConsul shows that a process that starts before Consul waits for its certificate.
func TestStartWithoutConsul(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	a.stop()
	processes, _ := a.open()
	got := make(chan error, 1)
	go func() {
		_, err := processes.Identity(t.Context(), "network")
		got <- err
	}()
	testkit.Eventually(t, "the check reports that Consul is unavailable", func() bool { return processes.Check(t.Context()) != nil })
	a.start()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := processes.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func image(variable, official string) string {
	if name := os.Getenv(variable); name != "" {
		return name
	}
	return official
}

func logTo(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
