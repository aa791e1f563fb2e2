package devservers

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// clockInterval is how precisely keys of the embedded server expire. miniredis can be exact (ClockTTL), but then sorts all
// keys at every command: 2.4 ms for ten thousand.
const clockInterval = 50 * time.Millisecond

// embeddedRedis is a Redis server in this process.
type embeddedRedis struct {
	redis *miniredis.Miniredis
	close context.CancelFunc
	done  chan struct{}
}

func startEmbedded(password string) (*embeddedRedis, error) {
	s := &embeddedRedis{redis: miniredis.NewMiniRedis(), done: make(chan struct{})}
	s.redis.RequireAuth(password)
	if err := s.redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.close = cancel
	go s.run(ctx)
	return s, nil
}

// run advances the clock of miniredis, which stands still by itself, until the server is stopped.
func (s *embeddedRedis) run(ctx context.Context) {
	defer close(s.done)
	defer s.redis.Close()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(clockInterval): // no ticker: with very many keys the commands need their turn
			now := time.Now()
			s.redis.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (s *embeddedRedis) Done() <-chan struct{} { return s.done }
func (s *embeddedRedis) Err() error            { return nil }

func (s *embeddedRedis) Stop(ctx context.Context) error {
	s.close()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the embedded Redis: %w", ctx.Err())
	}
}
