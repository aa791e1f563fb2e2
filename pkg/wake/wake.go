// Package wake tells those who wait that there is something to do: in this process directly, and in others through
// Redis. A wake-up says nothing but that somebody should look, so one may be lost: whoever waits also looks by
// itself now and then. See docs/understand/decisions/0015-wake-ups.md.
package wake

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Interval is how often somebody looks whom nobody wakes.
const Interval = time.Minute

// Changes is what a service wakes its consumers with when it has numbered changes.
const Changes = "changes"

const (
	// deafInterval is how often everybody is woken while Redis cannot be heard.
	deafInterval = time.Second
	// gatherInterval is how long the publisher gathers wake-ups after it has sent some.
	gatherInterval = 10 * time.Millisecond
	// publishTimeout is how long Redis may take to be told, and retryInterval how long it is left alone if it fails.
	publishTimeout, retryInterval = 250 * time.Millisecond, time.Second
	// silenceTimeout is how long Redis may say nothing until it is asked for a sign of life, and pongTimeout how long
	// that may take.
	silenceTimeout, pongTimeout = 5 * time.Second, 2 * time.Second
)

// topic is what somebody waits for: something of a service.
type topic struct{ service, name string }

// channel is where Redis has what a service wakes others with.
func channel(service string) string { return "events:" + service }

// Bus is the way between those who wake and those who wait. There is one in each process. Of a nil Bus nobody is woken.
type Bus struct {
	// Interval is how often everybody is woken besides. Tests set it, so that none waits for the slow look of somebody whom nobody
	// wakes.
	Interval time.Duration

	client redis.UniversalClient
	name   string // of this process, by which it knows its own messages

	mu           sync.Mutex
	listeners    map[topic][]chan struct{}
	subscription *redis.PubSub // nil: there is none
	isSubscribed bool          // Redis has said that the subscription stands
	unsent       map[topic]bool
	due          chan struct{} // holds one value where something is unsent
}

// New makes a bus by way of a client that cache.Open made. Other processes are reached while Run runs.
func New(client redis.UniversalClient) *Bus {
	return &Bus{
		client:    client,
		name:      rand.Text(),
		listeners: map[topic][]chan struct{}{},
		unsent:    map[topic]bool{},
		due:       make(chan struct{}, 1),
	}
}

// Listen returns a channel that has a value when somebody has woken those who wait for something of a service since the
// last value was taken, or may have done so while Redis was not heard.
func (b *Bus) Listen(service, name string) <-chan struct{} {
	if b == nil {
		return nil
	}
	listener := make(chan struct{}, 1)
	b.mu.Lock()
	t := topic{service, name}
	b.listeners[t] = append(b.listeners[t], listener)
	subscription := b.subscription
	b.mu.Unlock()
	if subscription != nil {
		ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
		defer cancel()
		_ = subscription.Subscribe(ctx, channel(service)) // where that fails, Run subscribes again
	}
	return listener
}

// Wake wakes those who wait for something of a service. It does not wait for Redis.
func (b *Bus) Wake(service, name string) {
	if b == nil {
		return
	}
	t := topic{service, name}
	b.mu.Lock()
	b.unsent[t] = true
	b.wakeListeners(t)
	b.mu.Unlock()
	signal(b.due)
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default: // it has been woken already
	}
}

func (b *Bus) wakeListeners(t topic) {
	for _, listener := range b.listeners[t] {
		signal(listener)
	}
}

// wakeAll is for when a wake-up may have been lost.
func (b *Bus) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range b.listeners {
		b.wakeListeners(t)
	}
}

// IsSubscribed tells whether wake-ups of other processes are heard, of a nil Bus false.
func (b *Bus) IsSubscribed() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isSubscribed
}

// Run carries wake-ups to and from other processes until ctx ends.
func (b *Bus) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { b.publish(ctx) })
	running.Go(func() {
		for b.Interval > 0 && sleep(ctx, b.Interval) {
			b.wakeAll()
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			b.receive(ctx)
			b.wakeAll()
			sleep(ctx, deafInterval)
		}
	})
	running.Wait()
}

// sleep waits, and tells whether ctx goes on.
func sleep(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Repeat calls do, whenever woken has a value, but no more often than every rest, and at the latest when the time is over
// that do answered, until ctx ends or do fails.
func Repeat(ctx context.Context, woken <-chan struct{}, minInterval time.Duration, do func(context.Context) (time.Duration, error)) error {
	for {
		next, err := do(ctx)
		if err != nil {
			return err
		}
		if minInterval > 0 && !sleep(ctx, minInterval) {
			return nil
		}
		timer := time.NewTimer(next - minInterval)
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// publish sends what is unsent, each topic once however often it was woken meanwhile. What cannot be sent is kept.
func (b *Bus) publish(ctx context.Context) {
	for {
		select {
		case <-b.due:
		case <-ctx.Done():
			return
		}
		length := gatherInterval
		if err := b.send(ctx); err != nil {
			length = retryInterval
			signal(b.due)
		}
		if !sleep(ctx, length) {
			return
		}
	}
}

func (b *Bus) send(ctx context.Context) error {
	b.mu.Lock()
	topics := slices.Collect(maps.Keys(b.unsent))
	clear(b.unsent)
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for i, t := range topics {
		if err := b.client.Publish(ctx, channel(t.service), b.name+" "+t.name).Err(); err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, t := range topics[i:] {
				b.unsent[t] = true
			}
			return err
		}
	}
	return nil
}

// receive wakes those who wait as other processes say, until Redis is not heard any more.
func (b *Bus) receive(ctx context.Context) {
	subscription := b.client.Subscribe(ctx)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // which ends the wait for a message
	b.mu.Lock()
	var channels []string
	for t := range b.listeners {
		channels = append(channels, channel(t.service))
	}
	b.subscription = subscription
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.subscription, b.isSubscribed = nil, false
		b.mu.Unlock()
	}()
	slices.Sort(channels)
	if channels = slices.Compact(channels); len(channels) > 0 && subscription.Subscribe(ctx, channels...) != nil {
		return
	}
	asked := false
	for {
		timeout := silenceTimeout
		if asked {
			timeout = pongTimeout
		}
		received, err := subscription.ReceiveTimeout(ctx, timeout)
		late, _ := errors.AsType[net.Error](err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && late != nil && late.Timeout() && !asked:
			if asked = true; subscription.Ping(ctx) != nil {
				return
			}
			continue
		case err != nil:
			return
		}
		asked = false
		switch m := received.(type) {
		case *redis.Message:
			b.deliver(m)
		case *redis.Subscription: // what was said before it is lost
			b.mu.Lock()
			b.isSubscribed = true
			b.mu.Unlock()
			b.wakeAll()
		}
	}
}

func (b *Bus) deliver(m *redis.Message) {
	from, name, named := strings.Cut(m.Payload, " ")
	if from == b.name {
		return
	}
	service := strings.TrimPrefix(m.Channel, channel(""))
	b.mu.Lock()
	defer b.mu.Unlock()
	if named {
		b.wakeListeners(topic{service, name})
		return
	}
	for t := range b.listeners { // an older program does not say what for
		if t.service == service {
			b.wakeListeners(t)
		}
	}
}
