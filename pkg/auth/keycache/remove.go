package keycache

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// retryInterval is how long Remove waits before it tells Redis again.
const retryInterval = 100 * time.Millisecond

// Remove makes sure that what was read before now is not believed any more: with the entries go their tokens, without
// which no fill lands that began before. Where Redis cannot be told, it waits until every entry that may stand is too
// old to be believed, and has then kept its word, too.
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

// maxDrift is by how much Redis' clock may run slow against ours within FreshTTL.
const maxDrift = 50 * time.Millisecond

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
