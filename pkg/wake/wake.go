// Package wake tells waiting tasks that there is something to do: directly in this process, and through Redis in others.
// A wake-up carries no data and may be lost, so every waiting task also polls now and then. See
// docs/understand/decisions/0015-wake-ups.md.
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

// Interval is how often tasks poll without a wake-up.
const Interval = time.Minute

// Changes is the topic with which a service wakes its consumers when it has numbered changes.
const Changes = "changes"

const (
	// deafInterval is how often all listeners are woken while the subscription in Redis is broken.
	deafInterval = time.Second
	// gatherInterval is how long the publisher gathers wake-ups between two publications.
	gatherInterval = 10 * time.Millisecond
	// publishTimeout is how long a publication may take, and retryInterval the delay after a failed one.
	publishTimeout, retryInterval = 250 * time.Millisecond, time.Second
	// silenceTimeout is how long Redis may be silent before it gets a ping, and pongTimeout how long the response may
	// take.
	silenceTimeout, pongTimeout = 5 * time.Second, 2 * time.Second
)

// topic is what listeners wait for: a named event of a service.
type topic struct{ service, name string }

// channel returns the channel in Redis for a service's wake-ups.
func channel(service string) string { return "events:" + service }

// Bus carries wake-ups. Each process has one. Nobody is woken through a nil Bus.
type Bus struct {
	// Interval is how often all listeners are woken without a reason; 0 means never. Tests set it, so that none waits
	// for a slow poll.
	Interval time.Duration

	client redis.UniversalClient
	name   string // random, so that the process recognizes its own messages

	mu           sync.Mutex
	listeners    map[topic][]chan struct{}
	subscription *redis.PubSub // nil: there is none
	isSubscribed bool          // Redis has confirmed the subscription
	unsent       map[topic]bool
	due          chan struct{} // holds a value while something is unsent
}

// New returns a bus that uses a client of cache.Open. It reaches other processes while Run runs.
func New(client redis.UniversalClient) *Bus {
	return &Bus{
		client:    client,
		name:      rand.Text(),
		listeners: map[topic][]chan struct{}{},
		unsent:    map[topic]bool{},
		due:       make(chan struct{}, 1),
	}
}

// Listen returns a channel that gets a value when a service's topic is woken. It also gets one when a wake-up may have
// been lost. Wake-ups between two receives count as one.
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
		_ = subscription.Subscribe(ctx, channel(service)) // if this fails, Run subscribes again
	}
	return listener
}

// Wake wakes the listeners of a service's topic. It does not wait for Redis.
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

// wakeAll wakes all listeners, because a wake-up may have been lost.
func (b *Bus) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range b.listeners {
		b.wakeListeners(t)
	}
}

// IsSubscribed tells whether wake-ups of other processes arrive. It is false for a nil Bus.
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

// sleep waits, and returns false if ctx ends first.
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

// Repeat calls do until ctx ends or do fails. It calls do again when woken has a value, but not before minInterval is
// over, and at the latest after the duration that do returned.
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

// publish sends wake-ups, each topic once even if it was woken several times. What cannot be sent is sent later.
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

// send publishes the collected topics. Those that it cannot publish stay collected.
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

// receive subscribes, and wakes listeners as other processes ask, until the connection to Redis breaks.
func (b *Bus) receive(ctx context.Context) {
	subscription := b.client.Subscribe(ctx)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // ends the wait for a message
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
		case *redis.Subscription: // messages from before it are lost
			b.mu.Lock()
			b.isSubscribed = true
			b.mu.Unlock()
			b.wakeAll()
		}
	}
}

// deliver wakes the listeners of a message's topic, unless this process sent the message.
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
	for t := range b.listeners { // a message of an older version names no topic
		if t.service == service {
			b.wakeListeners(t)
		}
	}
}
