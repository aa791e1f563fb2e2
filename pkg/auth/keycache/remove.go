package keycache

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// retryInterval is how long Remove waits before it tries again.
const retryInterval = 100 * time.Millisecond

// Remove makes sure that nobody trusts what was read before now. It deletes the entries with their tokens, so that no
// fill lands that began before. If Redis cannot be reached, Remove waits until all entries that may exist are older than
// FreshTTL, so they are not trusted either.
func (s *Store) Remove(ctx context.Context, names ...string) error {
	old := time.NewTimer(FreshTTL + maxDrift)
	defer old.Stop()
	for {
		if err := s.deleteEntries(ctx, names); err == nil {
			return nil
		}
		select {
		case <-old.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait until entries are old: %w", ctx.Err())
		case <-time.After(retryInterval):
		}
	}
}

// maxDrift is how much the clock of Redis may run slow against this machine's within FreshTTL.
const maxDrift = 50 * time.Millisecond

// deleteEntries deletes entries from Redis, which also voids the tickets of those that are being filled.
func (s *Store) deleteEntries(ctx context.Context, names []string) error {
	return s.link.DoRequired(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range names {
				p.Del(ctx, keySpace+name)
			}
			return nil
		})
		return err
	})
}
