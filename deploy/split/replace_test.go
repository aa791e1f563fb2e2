package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/services/network"
)

const (
	// callsASecond is the rate of all callers together.
	callers, callsASecond = 30, 150
	// checkInterval is how often the balancer requests /readyz. It is shorter than the drain delay, so no request meets a
	// process that has stopped.
	checkInterval, drainDelay = 100 * time.Millisecond, "5s"
)

// TestReplacedInTurn replaces two replicas of each process in turn, each after the other one is ready. No request
// fails.
func TestReplacedInTurn(t *testing.T) {
	f, c := startFleet(t, datastores.Config{Data: t.TempDir()}, "IRONPLANE_OWNER_RATE=100000", "IRONPLANE_OWNER_BURST=100000")
	id := c.Do("POST", "/group", map[string]any{"name": "site"}).Want(http.StatusOK).ID()
	names, pairs := startReplicas(t, f, 2)

	front, stop := startCallers(t, pairs[principal.Gateway], c.Key, fmt.Sprintf("/group/%d", id))
	rounds := 1
	if *full {
		rounds = 5
	} else {
		names = []string{network.Name, principal.Gateway}
	}
	for range rounds {
		for _, name := range names {
			for n := range 2 {
				pairs[name][n].stop(t)
				pairs[name][n].start(t)
			}
		}
	}
	stop()
	event := fmt.Sprintf("%d processes replaced in turn", rounds*len(names)*2)
	report(t, event, front.requested.Load(), front.failed.Load(), time.Duration(front.outage.Load()), 0)
	if front.failed.Load() > 0 || front.requested.Load() < 200 {
		t.Errorf("got %d failed of %d requests, want none of at least 200", front.failed.Load(), front.requested.Load())
	}
}

// startCallers has callers view and edit the item at a path until stop is called.
func startCallers(t *testing.T, gateways []*replica, key, path string) (front *balancer, stop func()) {
	t.Helper()
	front = &balancer{gateways: gateways}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	front.checkReady()
	working.Go(func() {
		for ctx.Err() == nil {
			front.checkReady()
			time.Sleep(checkInterval)
		}
	})
	for n := range callers {
		working.Go(func() { front.sendRequests(ctx, t, n, key, path) })
	}
	return front, func() {
		cancel()
		working.Wait()
	}
}

// replica is one of the processes of a service or of the gateway.
type replica struct {
	name, address, operations string
	programs                  string // the folder of the programs
	environment               []string
	f                         *fleet
	process                   *child.Child
	ready                     atomic.Bool // the result of the last check
}

// startReplicas stops the processes of the fleet, and starts count replicas of each.
func startReplicas(t *testing.T, f *fleet, count int) (names []string, replicas map[string][]*replica) {
	t.Helper()
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.processes = map[string]*child.Child{}
	names, replicas = append(product.Names(), principal.Gateway), map[string][]*replica{}
	free, err := ports.Free(2 * count * len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var addresses []string
		for n := range count {
			at := 2 * (i*count + n)
			o := &replica{name: name, address: free[at], operations: free[at+1], programs: f.programs, f: f}
			replicas[name], addresses = append(replicas[name], o), append(addresses, o.address)
		}
		f.addresses[name] = strings.Join(addresses, ",")
	}
	t.Cleanup(func() {
		var stopping sync.WaitGroup
		for _, all := range replicas {
			for _, o := range all {
				if o.process != nil {
					stopping.Go(func() { _ = o.process.Stop(context.Background()) })
				}
			}
		}
		stopping.Wait()
	})
	for _, name := range names {
		environment := f.serviceEnvironment(name)
		if name == principal.Gateway {
			environment = slices.Concat(f.common(name), f.filterEnvironment("IRONPLANE_OWNER_"), []string{f.services()})
		}
		for _, o := range replicas[name] {
			o.environment = append(
				slices.Clone(environment),
				"IRONPLANE_LISTEN="+o.address,
				"IRONPLANE_OPERATIONS_LISTEN="+o.operations,
				"IRONPLANE_DRAIN_DELAY="+drainDelay,
			)
			o.start(t)
		}
	}
	return names, replicas
}

// start starts the process and waits until it is ready.
func (o *replica) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(o.programs, o.name), "serve")
	cmd.Env, cmd.Stderr = o.environment, t.Output()
	var err error
	if o.process, err = child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	if err := o.process.Await(ctx, o.isReady); err != nil {
		t.Fatalf("wait until %s is ready: %v", o.name, err)
	}
}

func (o *replica) stop(t *testing.T) {
	t.Helper()
	if err := o.process.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (o *replica) isReady() bool {
	response, err := http.Get("http://" + o.operations + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// balancer sends requests to the gateways that are ready.
type balancer struct {
	gateways                    []*replica
	repeat                      atomic.Bool // whether to send a request again after a lost connection, a 429 or a 503
	requested, repeated, failed atomic.Int64
	outage                      atomic.Int64 // the longest time that a request was sent again for, in nanoseconds
}

func (b *balancer) checkReady() {
	for _, g := range b.gateways {
		g.ready.Store(g.isReady())
	}
}

// sendRequests sends requests over persistent connections until ctx ends.
func (b *balancer) sendRequests(ctx context.Context, t *testing.T, n int, key, path string) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: waitTimeout}
	tick := time.NewTicker(callers * time.Second / callsASecond)
	defer tick.Stop()
	for i := n; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		method, body := http.MethodGet, ""
		if i%3 == 0 {
			method, body = http.MethodPatch, fmt.Sprintf(`{"name": "site %d %d"}`, n, i)
		}
		b.requested.Add(1)
		began := time.Now()
		for attempt := 0; ; attempt++ {
			failure, passes := b.send(context.WithoutCancel(ctx), client, i+attempt, key, method, path, body)
			if failure == nil {
				if tried := time.Since(began).Nanoseconds(); attempt > 0 && tried > b.outage.Load() {
					b.outage.Store(tried)
				}
				break
			}
			if passes && b.repeat.Load() && attempt < maxAttempts {
				b.repeated.Add(1)
				time.Sleep(checkInterval)
				continue
			}
			b.failed.Add(1)
			t.Log(time.Now().Format(time.StampMilli), failure)
			break
		}
	}
}

// maxAttempts bounds how often a request is sent again.
const maxAttempts = 100

// send sends a request to a gateway that is ready. passes reports whether the failure is temporary.
func (b *balancer) send(ctx context.Context, client *http.Client, turn int, key, method, path, body string) (failure error, passes bool) {
	to := b.gateways[turn%len(b.gateways)]
	if !to.ready.Load() {
		to = b.gateways[(turn+1)%len(b.gateways)]
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+to.address+path, strings.NewReader(body))
	if err != nil {
		return err, false
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err, true
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err, true
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf(
				"%s %d %s",
				method,
				response.StatusCode,
				text,
			), response.StatusCode == http.StatusServiceUnavailable ||
				response.StatusCode == http.StatusTooManyRequests
	}
	return nil, false
}
