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

// agent is a Consul of its own, which forgets everything when it ends.
type agent struct {
	t         *testing.T
	container testcontainers.Container
	at        atomic.Pointer[url.URL]
	host      string // by which the container reaches us
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
	way, err := net.Dial("udp", a.at.Load().Host)
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	a.host = way.LocalAddr().(*net.UDPAddr).IP.String()
	return a
}

// locate finds the container's address, which may be another one at each start.
func (a *agent) locate() {
	a.t.Helper()
	ip, err := a.container.ContainerIP(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	a.at.Store(&url.URL{Scheme: "http", Host: net.JoinHostPort(ip, "8500")})
}

// open is a process's way to Consul, and how often it asked.
func (a *agent) open() (*consul.Agent, *atomic.Int64) {
	a.t.Helper()
	asked := &atomic.Int64{}
	proxy := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(a.at.Load()) },
		ErrorLog: slog.NewLogLogger(logTo(a.t).Handler(), slog.LevelDebug),
	}
	way := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	a.t.Cleanup(func() {
		way.CloseClientConnections()
		way.Close()
	})
	opened, err := consul.Open(consul.Config{Consul: way.URL, Advertise: a.host}, logTo(a.t))
	if err != nil {
		a.t.Fatal(err)
	}
	return opened, asked
}

func (a *agent) stop() {
	a.t.Helper()
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

// present is a process as far as Consul looks at it.
type present struct {
	address string
	well    atomic.Bool
	leave   context.CancelFunc
	gone    chan struct{}
}

// register is a process of this name that is there until leave.
func (a *agent) register(name string) *present {
	a.t.Helper()
	p := &present{gone: make(chan struct{})}
	p.well.Store(true)
	operations := a.listen()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = server.Serve(operations) }()
	a.t.Cleanup(func() { _ = server.Close() })
	serving := a.listen()
	p.address = serving.Addr().String()
	way, _ := a.open()
	registration, err := way.Registration(name, serving.Addr(), operations.Addr())
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, leave := context.WithCancel(a.t.Context())
	p.leave = leave
	go func() {
		defer close(p.gone)
		registration.Keep(ctx)
		registration.End()
	}()
	a.t.Cleanup(func() {
		leave()
		<-p.gone
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

// found is where a service is, as far as somebody has heard.
type found struct {
	mu        sync.Mutex
	addresses []string
	news      int
	asked     *atomic.Int64
}

func (a *agent) find(name string) *found {
	way, asked := a.open()
	f := &found{asked: asked}
	ctx, stop := context.WithCancel(a.t.Context())
	finding := make(chan struct{})
	go func() {
		defer close(finding)
		way.Watch(ctx, name, func(addresses []string) {
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

func (f *found) is(processes ...*present) bool {
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

// Who is ready is found, and stays so while Consul is away and when it has forgotten everything.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	f := a.find("network")
	testkit.Eventually(t, "that nobody is there is said", func() bool { return f.is() })
	one, two := a.register("network"), a.register("network")
	a.register("identity")
	testkit.Eventually(t, "both are found", func() bool { return f.is(one, two) })

	before := f.asked.Load()
	time.Sleep(5 * time.Second) // in which nothing changes
	if n := f.asked.Load() - before; n > 1 {
		t.Errorf("got %d requests to Consul while nothing changed, want at most 1", n)
	}

	two.well.Store(false)
	testkit.Eventually(t, "who is not ready is left out", func() bool { return f.is(one) })
	two.well.Store(true)
	testkit.Eventually(t, "who is ready again is found again", func() bool { return f.is(one, two) })

	before = f.asked.Load()
	a.stop()
	time.Sleep(5 * time.Second) // in which it is away
	if !f.is(one, two) {
		t.Error("got other processes while Consul is away, want both kept")
	}
	if n := f.asked.Load() - before; n > 10 {
		t.Errorf("got %d requests to Consul while it was away, want at most 10", n)
	}
	a.start()
	third := a.register("network")
	testkit.Eventually(t, "a Consul that forgot everything is told of all", func() bool { return f.is(one, two, third) })

	third.leave()
	<-third.gone
	if !f.is(one, two) {
		t.Error("got other processes once the third has ended, want the first two alone")
	}
	one.leave()
	two.leave()
	<-one.gone
	<-two.gone
	if f.is() {
		t.Error("got no process once the last has left, want the last known one kept")
	}
}

// A new root of Consul's authority takes over while requests go on, over connections that stay and such that begin.
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

	var asked, failed atomic.Int64
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
				asked.Add(1)
			}
		})
	}
	first := issuer(t, plain.Addr().String())
	before := renewed.Load()
	a.rotate()
	testkit.Eventually(t, "the service's certificate is of the new root", func() bool { return issuer(t, plain.Addr().String()) != first })
	at := asked.Load()
	testkit.Eventually(t, "requests go on", func() bool { return asked.Load() > at+200 })
	if n := failed.Load(); n > 0 {
		t.Errorf("got %d failed of %d requests, want none", n, asked.Load())
	}
	t.Logf("%d requests, Consul asked %d times", asked.Load(), renewed.Load()-before)
}

// rotate makes Consul's authority begin a new root.
func (a *agent) rotate() {
	a.t.Helper()
	const config = `{"Provider": "consul", "Config": {"LeafCertTTL": "72h", "PrivateKeyType": "ec", "PrivateKeyBits": 384}}`
	r, err := http.NewRequestWithContext(
		a.t.Context(),
		http.MethodPut,
		a.at.Load().String()+"/v1/connect/ca/configuration",
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

// issuer is who certified the process at an address.
func issuer(t *testing.T, address string) string {
	t.Helper()
	seen := errors.New("seen enough")
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

// A process that starts while Consul is away waits for it, and one that nobody certifies says so.
func TestConsulIsAway(t *testing.T) {
	t.Parallel()
	a := startConsul(t)
	a.stop()
	processes, _ := a.open()
	got := make(chan error, 1)
	go func() {
		_, err := processes.Identity(t.Context(), "network")
		got <- err
	}()
	testkit.Eventually(t, "it is known that Consul is away", func() bool { return processes.Check(t.Context()) != nil })
	a.start()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := processes.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func image(variable, official string) string {
	if given := os.Getenv(variable); given != "" {
		return given
	}
	return official
}

func logTo(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
