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
	// tolerated is how many requests in a row a gateway gives to an instance that does not answer before it leaves that alone.
	tolerated = 6
	// lookPause is between two looks at whether a gateway is ready, and lookTime how long one may take.
	lookPause = 250 * time.Millisecond
	lookTime  = time.Second
)

// full measures for longer, with callers who wait for longer than a gateway does.
var full = flag.Bool("full", false, "measure for longer what callers see when something goes")

// lasting is how long the load goes on with something wrong, and patience how long a caller waits for an answer.
var lasting, patience = 5 * time.Second, 12 * time.Second

// settled is when nobody has to notice any more that something is wrong.
const settled = 10 * time.Second

// door is a gateway, as a balancer in front sees it.
type door struct {
	url, readyz string
	open        atomic.Bool
}

// load is callers who read and write without a pause, in turns by each of the gateways that are ready.
type load struct {
	begin   time.Time
	doors   []*door
	ending  chan struct{}
	calling sync.WaitGroup
	looking sync.WaitGroup
	stop    context.CancelFunc
	count   atomic.Int64

	mu     sync.Mutex
	failed []failure
	worst  time.Duration
}

type failure struct {
	after, took time.Duration // since the load began
	what        string
}

func begin(t *testing.T) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{begin: time.Now(), stop: stop, ending: make(chan struct{})}
	for _, c := range containersOf(t.Context(), principal.Gateway) {
		host := ip(t, c)
		d := &door{url: "http://" + net.JoinHostPort(host, "8080"), readyz: "http://" + net.JoinHostPort(host, "9090") + "/readyz"}
		d.open.Store(true)
		l.doors = append(l.doors, d)
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

// end lets all calls end, however long they take.
func (l *load) end() {
	close(l.ending)
	l.calling.Wait()
	l.stop()
	l.looking.Wait()
}

func (d *door) watch(ctx context.Context) {
	for ctx.Err() == nil {
		looking, cancel := context.WithTimeout(ctx, lookTime)
		r, err := http.NewRequestWithContext(looking, http.MethodGet, d.readyz, http.NoBody)
		if err == nil {
			var response *http.Response
			if response, err = http.DefaultClient.Do(r); err == nil {
				_ = response.Body.Close()
			}
			d.open.Store(err == nil && response.StatusCode == http.StatusOK)
		}
		cancel()
		time.Sleep(lookPause)
	}
}

func (l *load) call(ctx context.Context, entity, turn int) {
	begin := time.Now()
	what := l.ask(ctx, entity, turn)
	took := time.Since(begin)
	l.count.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = max(l.worst, took)
	if what != "" {
		l.failed = append(l.failed, failure{begin.Sub(l.begin), took, what})
	}
}

// ask answers what went wrong.
func (l *load) ask(ctx context.Context, entity, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method, body := http.MethodGet, ""
	if turn/2%4 == 0 {
		method, body = http.MethodPatch, fmt.Sprintf(`{"nickname": "turn %d"}`, turn)
	}
	last := "no gateway is ready"
	for n := range l.doors {
		door := l.doors[(turn+n)%len(l.doors)]
		if !door.open.Load() {
			continue
		}
		r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s/entity/%d", door.url, entity), strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Authorization", "Bearer "+installed.key)
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
		last = method + ": " + brief(err)
		if !strings.Contains(err.Error(), "dial tcp") {
			break
		}
	}
	return last
}

// brief is an error without addresses.
func brief(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in " + patience.String()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "connection cut"
	default:
		return err.Error()
	}
}

// report prints what callers saw, and answers how many failed and when the last of them began.
func (l *load) report(t *testing.T, what string) (failed int, last time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	kinds := map[string]int{}
	for _, f := range l.failed {
		kinds[f.what]++
		last = max(last, f.after)
	}
	t.Logf(
		"%s: %d requests in %s, the longest %s, %d failed %v, the last of them began after %s",
		what,
		l.count.Load(),
		time.Since(l.begin).Round(time.Second),
		l.worst.Round(time.Millisecond),
		len(l.failed),
		kinds,
		last.Round(time.Millisecond),
	)
	return len(l.failed), last
}

// received is how many bytes each container of a service got from the network.
func received(t *testing.T, service string) (bytes []float64) {
	t.Helper()
	for _, c := range containersOf(t.Context(), service) {
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

// entities is the first of the IP entities that callers ask for, each for its own.
var entities int

func prepare(t *testing.T) {
	t.Helper()
	if entities != 0 {
		return
	}
	c := testkit.ClientAt(t, installed.url).WithKey(installed.key)
	group := c.Do("POST", "/group", `{"name": "load"}`).Want(200).ID()
	answer := c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", group), `{"prefix": "203.0.113.0/27", "gateway": "203.0.113.1", "subnet_mask": "255.255.255.224"}`).
		Want(200)
	var made struct {
		First int `json:"first"`
	}
	if err := json.Unmarshal([]byte(answer.Text), &made); err != nil || made.First == 0 {
		t.Fatalf("got %s (%v), want the first id", answer.Text, err)
	}
	entities = made.First
}

func TestCallsAreSpread(t *testing.T) {
	prepare(t)
	network, gateways := received(t, "network"), received(t, principal.Gateway)
	l := begin(t)
	time.Sleep(lasting / 3)
	l.end()
	if failed, _ := l.report(t, "with all there"); failed > 0 {
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

// What callers see when one of two instances goes, in each way in which one can.
func TestOneGoes(t *testing.T) {
	docker := installed.docker.Client()
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
	for _, goes := range []struct {
		name     string
		away     func(context.Context, string) error
		back     func(context.Context, string) error
		tolerate int // failed requests, at most
	}{
		{"is stopped", stop, start, 0},
		{"is killed", kill, start, callers}, // those under way
		{"is frozen", freeze, thaw, callers + 2*tolerated},
	} {
		for _, service := range []string{"network", principal.Gateway} {
			t.Run(service+" "+goes.name, func(t *testing.T) {
				prepare(t)
				victim := containersOf(t.Context(), service)[1]
				l := begin(t)
				time.Sleep(lasting / 5)
				at := time.Since(l.begin)
				if err := goes.away(t.Context(), victim.GetContainerID()); err != nil {
					t.Fatal(err)
				}
				defer back(t, goes.back, victim)
				time.Sleep(lasting)
				l.end()
				failed, last := l.report(t, service+" "+goes.name)
				if failed > goes.tolerate {
					t.Errorf("got %d failed requests, want at most %d", failed, goes.tolerate)
				}
				if failed > 0 && last > at+settled {
					t.Errorf("got a failed request %s after it went, want none after %s", last-at, settled)
				}
			})
		}
	}
}

// back brings a container back and waits until all is as before.
func back(t *testing.T, how func(context.Context, string) error, c testcontainers.Container) {
	t.Helper()
	if err := how(t.Context(), c.GetContainerID()); err != nil {
		t.Fatal(err)
	}
	located(t)
	l := begin(t)
	time.Sleep(lasting / 5)
	l.end()
	if failed, _ := l.report(t, "with it back"); failed > 0 {
		t.Errorf("got %d failed requests once it was back, want none", failed)
	}
}

// located waits until all are ready, and Consul has heard of it.
func located(t *testing.T) {
	t.Helper()
	for _, service := range []string{"network", principal.Gateway} {
		testkit.Eventually(t, "both instances of "+service+" are ready", func() bool {
			ready := 0
			for _, c := range containersOf(t.Context(), service) {
				if readiness(t, c) != "" {
					ready++
				}
			}
			return ready == 2
		})
	}
	time.Sleep(settled / 2)
}

// readiness is what a container's process says of it, and empty where it is not ready.
func readiness(t *testing.T, c testcontainers.Container) string {
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

// Nobody notices that Consul goes and comes back.
func TestConsulGoes(t *testing.T) {
	prepare(t)
	l := begin(t)
	for range 2 {
		time.Sleep(lasting / 5)
		if _, err := compose(t.Context(), "stop", "consul"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lasting)
		if _, err := compose(t.Context(), "up", "--no-build", "--no-deps", "--no-recreate", "--wait", "consul"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lasting)
	}
	l.end()
	if failed, _ := l.report(t, "while Consul goes and comes back, twice"); failed > 0 {
		t.Errorf("got %d failed requests, want none", failed)
	}
	for _, service := range []string{"network", principal.Gateway} {
		for _, c := range containersOf(t.Context(), service) {
			testkit.Eventually(t, "Consul is heard again by "+service, func() bool { return strings.Contains(readiness(t, c), `"consul":"ok"`) })
		}
	}
}
