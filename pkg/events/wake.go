package events

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Wake tells, until ctx ends, those who listen to a service's channel that the service has numbered changes. While
// Redis is away nobody is woken.
func Wake(ctx context.Context, client redis.UniversalClient, listeners map[string][]chan struct{}) error {
	channels := make([]string, 0, len(listeners))
	for service := range listeners {
		channels = append(channels, channel(service))
	}
	subscription := client.Subscribe(ctx, channels...)
	defer subscription.Close()
	messages := subscription.Channel()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return nil
			}
			for _, listener := range listeners[strings.TrimPrefix(m.Channel, channel(""))] {
				select {
				case listener <- struct{}{}:
				default: // it is woken already
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}
