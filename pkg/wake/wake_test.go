package wake_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/wake"
)

// run runs a process's bus until the test ends, or stop is called.
func run(t testing.TB, client redis.UniversalClient) (bus *wake.Bus, stop func()) {
	t.Helper()
	bus = wake.New(client)
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { bus.Run(ctx) })
	stop = func() {
		end()
		running.Wait()
	}
	t.Cleanup(stop)
	return bus, stop
}

// hears waits until the bus receives the wake-ups of other processes, and drops those that have arrived by then.
func hears(t testing.TB, bus *wake.Bus, listeners ...<-chan struct{}) {
	t.Helper()
	testkit.Eventually(t, "the bus has subscribed", bus.IsSubscribed)
	for _, listener := range listeners {
		testkit.Eventually(t, "listeners that may have missed a wake-up are woken", func() bool { return receive(listener) })
	}
}

func receive(listener <-chan struct{}) bool {
	select {
	case <-listener:
		return true
	default:
		return false
	}
}

func TestWakeReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	bus, _ := run(t, client)
	other, stop := run(t, client)
	before, unrelated := other.Listen("pxe", "changes"), other.Listen("pxe", "jobs")
	hears(t, other, before, unrelated)
	late := other.Listen("network", "changes") // a service without an earlier listener
	own := bus.Listen("pxe", "changes")
	hears(t, bus, own)
	for receive(before) || receive(unrelated) || receive(late) { // as the subscription to the late one says
	}
	bus.Wake("pxe", "changes")
	testkit.Eventually(t, "the other process is woken", func() bool { return receive(before) })
	testkit.Eventually(t, "the late listener is woken", func() bool {
		bus.Wake("network", "changes")
		return receive(late)
	})
	if !receive(own) {
		t.Error("got no wake-up in the same process, want one")
	}
	stop() // returns though nothing comes
}

// An older release sends how many changes it has numbered, instead of a topic.
func TestOlderProgram(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	bus, _ := run(t, client)
	listener := bus.Listen("pxe", wake.Changes)
	hears(t, bus, listener)
	if err := client.Publish(t.Context(), "events:pxe", 7).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "an older program wakes", func() bool { return receive(listener) })
}

// counting is a client that counts published messages.
type counting struct {
	mu       sync.Mutex
	messages map[string]int
}

func (c *counting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if strings.EqualFold(command.Name(), "publish") {
			c.mu.Lock()
			c.messages[command.Args()[1].(string)]++
			c.mu.Unlock()
		}
		return next(ctx, command)
	}
}

func TestStormOfWakesCoalesces(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	count := &counting{messages: map[string]int{}}
	client.AddHook(count)
	bus, _ := run(t, client)
	began := time.Now()
	for range 100_000 {
		bus.Wake("pxe", "changes")
	}
	elapsed := time.Since(began)
	testkit.Eventually(t, "it is published", func() bool {
		count.mu.Lock()
		defer count.mu.Unlock()
		return count.messages["events:pxe"] > 0
	})
	count.mu.Lock()
	defer count.mu.Unlock()
	if got, want := count.messages["events:pxe"], int(elapsed/(10*time.Millisecond))+2; got > want {
		t.Errorf("got %d messages of 100,000 wake-ups in %v, want at most %d", got, elapsed, want)
	}
}

// While Redis is unavailable, a process wakes itself, and polls once a second for changes of others. It receives their wake-ups
// again once Redis is available.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	server, err := devservers.StartRedis(t.Context(), devservers.RedisOptions{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cache.Open(secret.New(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bus, _ := run(t, client)
	listener := bus.Listen("pxe", "changes")
	hears(t, bus, listener)
	if err := server.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the bus notices that Redis is unavailable", func() bool { return !bus.IsSubscribed() })
	for range 2 {
		testkit.Eventually(t, "the bus polls", func() bool { return receive(listener) })
	}
	bus.Wake("pxe", "changes")
	if !receive(listener) {
		t.Error("got no wake-up in the same process, want one")
	}
}

func TestNilBus(t *testing.T) {
	t.Parallel()
	var bus *wake.Bus
	bus.Wake("pxe", "changes")
	if receive(bus.Listen("pxe", "changes")) || bus.IsSubscribed() {
		t.Error("got a wake-up of no bus, want none")
	}
}

// The interval makes up for a lost wake-up. Many wake-ups at once become one after each rest.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rest, interval = time.Second, 30 * time.Second
		woken, began := make(chan struct{}, 1), time.Now()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var at []time.Duration
		ended := make(chan error)
		go func() {
			ended <- wake.Repeat(ctx, woken, rest, func(context.Context) (time.Duration, error) {
				at = append(at, time.Since(began))
				return interval, nil
			})
		}()
		synctest.Wait()
		woken <- struct{}{}
		time.Sleep(5 * time.Second)
		for range 3 { // within one rest
			select {
			case woken <- struct{}{}:
			default:
			}
			synctest.Wait()
		}
		time.Sleep(40 * time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, rest, 5 * time.Second, 6 * time.Second, 36 * time.Second}
		if len(at) != len(want) {
			t.Fatalf("got calls at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("got call %d at %v, want %v", i, at[i], want[i])
			}
		}
		failed := errors.New("failed")
		if err := wake.Repeat(t.Context(), nil, 0, func(context.Context) (time.Duration, error) { return 0, failed }); !errors.Is(err, failed) {
			t.Errorf("got %v, want %v", err, failed)
		}
	})
}
