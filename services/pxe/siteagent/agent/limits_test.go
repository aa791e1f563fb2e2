package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// silentBody is a body whose first byte never arrives.
type silentBody struct {
	reading *atomic.Int64
	closed  <-chan struct{}
}

func (b silentBody) Read([]byte) (int, error) {
	b.reading.Add(1)
	<-b.closed
	return 0, io.ErrUnexpectedEOF
}

func (silentBody) Close() error { return nil }

// A machine that floods the agent with half-sent requests does not keep out the others.
func TestMachineFlood(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	r.putMachine(web1())
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	const flood = 4300
	var reading, answered atomic.Int64
	closed := make(chan struct{})
	var requests sync.WaitGroup
	for range flood {
		requests.Go(func() {
			response := httptest.NewRecorder()
			request := httptest.NewRequest("POST", "/i/"+token+"/progress", silentBody{&reading, closed})
			request.RemoteAddr = machineAddress + ":4711"
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.machines.ServeHTTP(response, request)
			answered.Add(1)
		})
	}
	defer requests.Wait()
	defer close(closed)
	testkit.Eventually(t, "all requests are in progress or answered", func() bool { return reading.Load()+answered.Load() == flood })
	for _, from := range []string{"192.0.2.11", "2001:db8::1"} {
		r.wantResponse("GET", "/none", from, "", http.StatusNotFound, "no such file")
	}
	r.wantResponse("GET", "/none", machineAddress, "", http.StatusServiceUnavailable, "in progress")
	r.wantMetric(fmt.Sprintf(`ironplane_site_agent_refused_total{limit="machine-requests"} %d`, answered.Load()+1))
}

// Bodies of requests without a valid token are not read.
func TestTokenBeforeBody(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	r.putMachine(web1())
	r.switchOn(machine.Client{MAC: mac}, machineAddress)
	var reading atomic.Int64
	closed := make(chan struct{})
	close(closed)
	for path, from := range map[string]string{
		"/i/" + token + "/progress":                   "192.0.2.11",
		"/i/" + strings.Repeat("x", 26) + "/progress": machineAddress,
		"/i/" + strings.Repeat("x", 26) + "/done":     machineAddress,
		"/i/" + strings.Repeat("x", 26) + "/failed":   machineAddress,
	} {
		response, request := httptest.NewRecorder(), httptest.NewRequest("POST", path, silentBody{&reading, closed})
		request.RemoteAddr = from + ":4711"
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.machines.ServeHTTP(response, request)
		if response.Code != http.StatusNotFound || reading.Load() != 0 {
			t.Errorf("%s from %s: got %d after %d reads of the body, want %d after none",
				path, from, response.Code, reading.Load(), http.StatusNotFound)
		}
	}
}

// A request ends if its body does not arrive in time, even if a byte comes now and then.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	r.agent.SetBodyTimeout(time.Second)
	r.putMachine(web1())
	r.switchOn(machine.Client{MAC: mac}, "127.0.0.1")
	conn := r.dialMachines("127.0.0.1")
	_, err := fmt.Fprintf(conn, "POST /i/%s/progress HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
		"Content-Length: 60000\r\n\r\n", token)
	testkit.Must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn) // the agent closes the connection
	}()
	drip := time.NewTicker(100 * time.Millisecond)
	defer drip.Stop()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case <-ended:
			return
		case <-deadline:
			t.Fatal("got no end of the request after 20 seconds, want one after a second")
		case <-drip.C:
			_, _ = conn.Write([]byte("x")) // fails once the agent has closed the connection
		}
	}
}

// One address has a share of the connections.
func TestConnectionShare(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	for range 100 {
		r.dialMachines("127.0.0.1")
	}
	r.wantMetric(fmt.Sprintf(`ironplane_site_agent_refused_total{limit="machine-connections"} %d`, 100-32))
	other := r.dialMachines("127.0.0.2")
	_, err := io.WriteString(other, "GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	testkit.Must(t, err)
	if got, err := io.ReadAll(other); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 404") {
		t.Errorf("got %q (%v) at another address, want a 404", got, err)
	}
}

// dialMachines connects to the agent's server for machines from a loopback address. The server ends with the test.
func (r *testAgent) dialMachines(from string) net.Conn {
	r.Helper()
	r.serveMachines.Do(func() {
		listener, err := r.agent.ListenMachines("127.0.0.1:0")
		testkit.Must(r.T, err)
		r.machinesAddress = listener.Addr().String()
		ctx, cancel := context.WithCancel(context.Background())
		var serving sync.WaitGroup
		serving.Go(func() { _ = process.Serve(ctx, listener, r.machines, slog.New(slog.DiscardHandler)) })
		r.Cleanup(func() {
			cancel()
			serving.Wait()
		})
	})
	return r.dialFrom(from, r.machinesAddress)
}

// dialFrom connects from a loopback address.
func (r *testAgent) dialFrom(from, address string) net.Conn {
	r.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(r.Context(), "tcp", address)
	testkit.Must(r.T, err)
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

// wantMetric waits for a line among the metrics of the agent's limits.
func (r *testAgent) wantMetric(want string) {
	r.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.agent.Refusals())
	metrics := func() string {
		response := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response, httptest.NewRequest("GET", "/metrics", nil))
		return response.Body.String()
	}
	testkit.Eventually(r.T, "the metrics have "+want, func() bool { return strings.Contains(metrics(), want+"\n") }, metrics)
}

// Silent SSH connections from one address leave slots for others.
func TestSilentLogins(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.agent.SetLoginTimeout(time.Hour)
	endpoint := r.serveSFTP()
	for range 100 {
		r.dialFrom("127.0.0.1", endpoint.Address)
	}
	r.wantMetric(fmt.Sprintf(`ironplane_site_agent_refused_total{limit="sftp-logins"} %d`, 100-8))
	if err := r.logIn("127.0.0.2", endpoint); err != nil {
		t.Errorf("got %v at another address, want a connection", err)
	}
}

// Silent SSH connections from many addresses do not keep out everybody else, because some new connections are dropped at random
// before all are in use.
func TestManySilentLogins(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.agent.SetLoginTimeout(time.Hour)
	endpoint := r.serveSFTP()
	for n := range 100 {
		r.dialFrom(fmt.Sprintf("127.0.1.%d", n+1), endpoint.Address)
	}
	testkit.Eventually(t, "a login succeeds", func() bool { return r.logIn("127.0.0.2", endpoint) == nil })
}

// A client that does not authenticate in time is disconnected.
func TestLoginTimeout(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.agent.SetLoginTimeout(100 * time.Millisecond)
	conn := r.dialFrom("127.0.0.1", r.serveSFTP().Address)
	testkit.Must(t, conn.SetReadDeadline(time.Now().Add(5*time.Minute)))
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "SSH-2.0-Ironplane") {
		t.Errorf("got %q (%v), want the agent's version and the end", got, err)
	}
}

// logIn authenticates from a loopback address with the API key.
func (r *testAgent) logIn(from string, endpoint *siteagent.SFTPEndpoint) error {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(ctx, network, address)
	}
	conn, err := endpoint.Dial(r.Context(), dial, secret.New(key))
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}
