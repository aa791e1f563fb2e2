//go:build containers

package containers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

const (
	callers = 16
	// maxFailuresInARow is the number of requests in a row that a gateway sends to an instance that does not respond, before it
	// avoids the instance.
	maxFailuresInARow = 6
	// readyInterval and readyTimeout are those of the checks whether a gateway is ready.
	readyInterval = 250 * time.Millisecond
	readyTimeout  = time.Second
)

// full measures for longer, with callers that wait longer than a gateway does.
var full = flag.Bool("full", false, "measure failures of instances for longer")

// loadDuration is how long the load continues after a failure, and callTimeout how long a caller waits for a response.
var loadDuration, callTimeout = 5 * time.Second, 12 * time.Second

// settleTime is how long after a failure callers may see errors.
const settleTime = 10 * time.Second

// balancedGateway is a gateway, as a load balancer sees it.
type balancedGateway struct {
	url, readyz string
	open        atomic.Bool
}

// load is a number of callers that read and write without a pause. They use the ready gateways in turn.
type load struct {
	begin    time.Time
	gateways []*balancedGateway
	ending   chan struct{}
	calling  sync.WaitGroup
	looking  sync.WaitGroup
	stop     context.CancelFunc
	count    atomic.Int64

	mu     sync.Mutex
	failed []failure
	worst  time.Duration
}

type failure struct {
	after, duration time.Duration // since the load began
	cause           string
}

func begin(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{begin: time.Now(), stop: stop, ending: make(chan struct{})}
	for _, c := range findContainers(t.Context(), principal.Gateway) {
		host := ip(t, c)
		d := &balancedGateway{url: "http://" + net.JoinHostPort(host, "8080"), readyz: "http://" + net.JoinHostPort(host, "9090") + "/readyz"}
		d.open.Store(true)
		l.gateways = append(l.gateways, d)
		l.looking.Go(func() { d.watch(ctx) })
	}
	for n := range callers {
		l.calling.Go(func() {
			for turn := n; ; turn++ {
				select {
				case <-l.ending:
					return
				default:
					l.call(ctx, entities+n, turn)
				}
			}
		})
	}
	return l
}

// end stops the callers, and waits for the calls in progress.
func (l *load) end() {
	close(l.ending)
	l.calling.Wait()
	l.stop()
	l.looking.Wait()
}

func (d *balancedGateway) watch(ctx context.Context) {
	for ctx.Err() == nil {
		looking, cancel := context.WithTimeout(ctx, readyTimeout)
		r, err := http.NewRequestWithContext(looking, http.MethodGet, d.readyz, http.NoBody)
		if err == nil {
			var response *http.Response
			if response, err = http.DefaultClient.Do(r); err == nil {
				_ = response.Body.Close()
			}
			d.open.Store(err == nil && response.StatusCode == http.StatusOK)
		}
		cancel()
		time.Sleep(readyInterval)
	}
}

func (l *load) call(ctx context.Context, entity, turn int) {
	begin := time.Now()
	cause := l.ask(ctx, entity, turn)
	duration := time.Since(begin)
	l.count.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = max(l.worst, duration)
	if cause != "" {
		l.failed = append(l.failed, failure{begin.Sub(l.begin), duration, cause})
	}
}

// ask sends one request, and returns the cause if it failed.
func (l *load) ask(ctx context.Context, entity, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	method, body := http.MethodGet, ""
	if turn/2%4 == 0 {
		method, body = http.MethodPatch, fmt.Sprintf(`{"nickname": "turn %d"}`, turn)
	}
	last := "no gateway is ready"
	for n := range l.gateways {
		balancedGateway := l.gateways[(turn+n)%len(l.gateways)]
		if !balancedGateway.open.Load() {
			continue
		}
		r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s/entity/%d", balancedGateway.url, entity), strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Authorization", "Bearer "+installation.key)
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err == nil && response.StatusCode != http.StatusOK {
				return method + ": " + response.Status
			}
		}
		if err == nil {
			return ""
		}
		last = method + ": " + shorten(err)
		if !strings.Contains(err.Error(), "dial tcp") {
			break
		}
	}
	return last
}

// shorten returns the text of an error without addresses, so that the report can count equal ones.
func shorten(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no response in " + callTimeout.String()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "connection closed"
	default:
		return err.Error()
	}
}

// report logs the result of the load. It returns the number of failed requests, and when the last of these began.
func (l *load) report(t *testing.T, cause string) (failed int, last time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	kinds := map[string]int{}
	for _, f := range l.failed {
		kinds[f.cause]++
		last = max(last, f.after)
	}
	t.Logf(
		"%s: %d requests in %s, the longest took %s, %d failed %v, the last of these began after %s",
		cause,
		l.count.Load(),
		time.Since(l.begin).Round(time.Second),
		l.worst.Round(time.Millisecond),
		len(l.failed),
		kinds,
		last.Round(time.Millisecond),
	)
	return len(l.failed), last
}

// received returns the number of bytes that each container of a service has received from the network.
func received(t *testing.T, service string) (bytes []float64) {
	t.Helper()
	for _, c := range findContainers(t.Context(), service) {
		response, err := http.Get("http://" + net.JoinHostPort(ip(t, c), "9090") + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), "process_network_receive_bytes_total "); ok {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				bytes = append(bytes, n)
			}
		}
	}
	if len(bytes) != 2 {
		t.Fatalf("got %d instances of %s that report how much they received, want 2", len(bytes), service)
	}
	return bytes
}

// entities is the id of the first IP entity. Each caller reads and edits its own.
var entities int

func prepare(t *testing.T) {
	t.Helper()
	if entities != 0 {
		return
	}
	c := testkit.ClientAt(t, installation.url).WithKey(installation.key)
	group := c.Do("POST", "/group", `{"name": "load"}`).Want(200).ID()
	answer := c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", group), `{"prefix": "203.0.113.0/27", "gateway": "203.0.113.1", "subnet_mask": "255.255.255.224"}`).
		Want(200)
	var created struct {
		First int `json:"first"`
	}
	if err := json.Unmarshal([]byte(answer.Text), &created); err != nil || created.First == 0 {
		t.Fatalf("got %s (%v), want the first id", answer.Text, err)
	}
	entities = created.First
}

func TestCallsAreSpread(t *testing.T) {
	prepare(t)
	network, gateways := received(t, "network"), received(t, principal.Gateway)
	l := begin(t)
	time.Sleep(loadDuration / 3)
	l.end()
	if failed, _ := l.report(t, "with all instances"); failed > 0 {
		t.Errorf("got %d failed requests, want none", failed)
	}
	for service, before := range map[string][]float64{"network": network, principal.Gateway: gateways} {
		now := received(t, service)
		one, two := now[0]-before[0], now[1]-before[1]
		t.Logf("%s got %.0f and %.0f bytes", service, one, two)
		if one > 2*two || two > 2*one {
			t.Errorf("%s: got instances with %.0f and %.0f bytes, want neither more than twice the other", service, one, two)
		}
	}
}

// TestOneInstanceFails measures what callers see when one of two instances is stopped, killed or frozen.
func TestOneInstanceFails(t *testing.T) {
	docker := installation.docker.Client()
	stop := func(ctx context.Context, id string) error {
		_, err := docker.ContainerStop(ctx, id, client.ContainerStopOptions{})
		return err
	}
	start := func(ctx context.Context, id string) error {
		_, err := docker.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	}
	kill := func(ctx context.Context, id string) error {
		_, err := docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		return err
	}
	freeze := func(ctx context.Context, id string) error {
		_, err := docker.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	}
	thaw := func(ctx context.Context, id string) error {
		_, err := docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	}
	for _, test := range []struct {
		name      string
		fail      func(context.Context, string) error
		bringBack func(context.Context, string) error
		maxFailed int // failed requests, at most
	}{
		{"is stopped", stop, start, 0},
		{"is killed", kill, start, callers}, // the requests in progress
		{"is frozen", freeze, thaw, callers + 2*maxFailuresInARow},
	} {
		for _, service := range []string{"network", principal.Gateway} {
			t.Run(service+" "+test.name, func(t *testing.T) {
				prepare(t)
				victim := findContainers(t.Context(), service)[1]
				l := begin(t)
				time.Sleep(loadDuration / 5)
				at := time.Since(l.begin)
				if err := test.fail(t.Context(), victim.GetContainerID()); err != nil {
					t.Fatal(err)
				}
				defer bringBack(t, test.bringBack, victim)
				time.Sleep(loadDuration)
				l.end()
				failed, last := l.report(t, service+" "+test.name)
				if failed > test.maxFailed {
					t.Errorf("got %d failed requests, want at most %d", failed, test.maxFailed)
				}
				if failed > 0 && last > at+settleTime {
					t.Errorf("got a failed request %s after the failure, want none after %s", last-at, settleTime)
				}
			})
		}
	}
}

// bringBack restarts or resumes a container, and waits until no request fails.
func bringBack(t *testing.T, how func(context.Context, string) error, c testcontainers.Container) {
	t.Helper()
	if err := how(t.Context(), c.GetContainerID()); err != nil {
		t.Fatal(err)
	}
	awaitReady(t)
	l := begin(t)
	time.Sleep(loadDuration / 5)
	l.end()
	if failed, _ := l.report(t, "after the recovery"); failed > 0 {
		t.Errorf("got %d failed requests after the recovery, want none", failed)
	}
}

// awaitReady waits until all instances are ready and Consul has registered them.
func awaitReady(t *testing.T) {
	t.Helper()
	for _, service := range []string{"network", principal.Gateway} {
		testkit.Eventually(t, "both instances of "+service+" are ready", func() bool {
			ready := 0
			for _, c := range findContainers(t.Context(), service) {
				if fetchReadiness(t, c) != "" {
					ready++
				}
			}
			return ready == 2
		})
	}
	time.Sleep(settleTime / 2)
}

// fetchReadiness returns the body of a container's /readyz. It is empty if the process is not ready.
func fetchReadiness(t *testing.T, c testcontainers.Container) string {
	t.Helper()
	response, err := http.Get("http://" + net.JoinHostPort(ip(t, c), "9090") + "/readyz")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// TestConsulRestarts shows that no request fails while Consul is stopped and started again.
func TestConsulRestarts(t *testing.T) {
	prepare(t)
	l := begin(t)
	for range 2 {
		time.Sleep(loadDuration / 5)
		if _, err := compose(t.Context(), "stop", "consul"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(loadDuration)
		if _, err := compose(t.Context(), "up", "--no-build", "--no-deps", "--no-recreate", "--wait", "consul"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(loadDuration)
	}
	l.end()
	if failed, _ := l.report(t, "while Consul is restarted twice"); failed > 0 {
		t.Errorf("got %d failed requests, want none", failed)
	}
	for _, service := range []string{"network", principal.Gateway} {
		for _, c := range findContainers(t.Context(), service) {
			testkit.Eventually(
				t,
				"Consul is connected again to "+service,
				func() bool { return strings.Contains(fetchReadiness(t, c), `"consul":"ok"`) },
			)
		}
	}
}
