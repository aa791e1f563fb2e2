// Package entry keeps, in Redis, what the gateway needs to know to let a key in: one entry for the key, one for its
// owner. Each is filled and removed by the service that owns the thing; the gateway only reads, and asks the owner
// for what is missing.
//
// A fill that read before a removal must not land after it. So a removal leaves a mark in the entry's place, and a
// fill lands only where the mark is still the one that it found before it read. An entry's age counts from before
// that read, on Redis' clock: it is what is left of its life.
package entry

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/principal"
)

const (
	// Fresh is how long an entry is believed.
	Fresh = 5 * time.Second
	// life is how long an entry stands.
	life = 5 * time.Minute
	// fillTime is how long a fill may take. A mark stands for longer.
	fillTime = 10 * time.Second
	markLife = time.Minute
)

// Key is the entry of an API key. The zero Key says that there is none.
type Key struct {
	ID      int64           `json:"id,omitempty"`
	Owner   principal.Owner `json:"owner,omitzero"`
	Expires *time.Time      `json:"expires,omitempty"`
}

// Owner is the entry of an account that keys belong to.
type Owner struct {
	Active bool             `json:"active"` // false: there is none, or it may not be used
	Name   string           `json:"name,omitempty"`
	Grants principal.Grants `json:"grants,omitempty"`
}

// Imports is the entry that says whether there are keys that were not made here.
type Imports struct {
	Any bool `json:"any"`
}

// The names of entries, and below /internal/ the paths at which their owners fill them.

// KeyName is the entry of the key with this hash, in hexadecimal.
func KeyName(hash string) string { return "key/" + hash }

// OwnerName is the entry of an owner.
func OwnerName(o principal.Owner) string { return fmt.Sprintf("owner/%s/%d", o.Type, o.ID) }

// ImportsName is the entry about imported keys.
const ImportsName = "imports"

// Store is the entries.
type Store struct{ redis redis.UniversalClient }

// NewStore uses a Redis.
func NewStore(client redis.UniversalClient) *Store { return &Store{client} }

const (
	fieldMark = "mark"
	fieldBody = "body"
	keySpace  = "entry:"
)

// fill: KEYS the entry; ARGV the mark that was found, the body, the life in ms.
var fill = redis.NewScript(`
	if (redis.call('HGET', KEYS[1], 'mark') or '') ~= ARGV[1] then return 0 end
	redis.call('HSET', KEYS[1], 'mark', ARGV[1], 'body', ARGV[2])
	redis.call('PEXPIRE', KEYS[1], ARGV[3])
	return 1`)

// Get reads an entry that is fresh, and tells whether there is one.
func (s *Store) Get(ctx context.Context, name string, into any) (bool, error) {
	var body *redis.StringCmd
	var left *redis.DurationCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		left = p.PTTL(ctx, keySpace+name) // first, so that the age is not too low
		body = p.HGet(ctx, keySpace+name, fieldBody)
		return nil
	})
	if errors.Is(err, redis.Nil) || err == nil && life-left.Val() > Fresh {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read entry %s: %w", kind(name), err)
	}
	if err := json.Unmarshal([]byte(body.Val()), into); err != nil {
		return false, fmt.Errorf("decode entry %s: %w", kind(name), err)
	}
	return true, nil
}

// Fill answers what read reads and leaves it as the entry. What was removed while it was read is read again. Where
// Redis is away, Fill only answers.
func Fill[T any](ctx context.Context, s *Store, name string, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, fillTime)
	defer cancel()
	for {
		value, landed, err := fillOnce(ctx, s, name, read)
		if err != nil || landed {
			return value, err
		}
	}
}

func fillOnce[T any](ctx context.Context, s *Store, name string, read func(context.Context) (T, error)) (value T, landed bool, err error) {
	began := time.Now()
	mark, markErr := s.redis.HGet(ctx, keySpace+name, fieldMark).Result()
	value, err = read(ctx)
	if err != nil || markErr != nil && !errors.Is(markErr, redis.Nil) {
		return value, true, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return value, false, fmt.Errorf("encode entry %s: %w", kind(name), err)
	}
	written, err := fill.Run(ctx, s.redis, []string{keySpace + name}, mark, body, (life - time.Since(began)).Milliseconds()).Int()
	return value, err != nil || written == 1, nil
}

// Remove makes sure that what was read before now is not believed any more. Where Redis cannot be told, it waits
// until every entry that stands is too old to be believed, and has then kept its word, too.
func (s *Store) Remove(ctx context.Context, names ...string) error {
	old := time.After(Fresh)
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.HSet(ctx, keySpace+name, fieldMark, rand.Text())
			p.HDel(ctx, keySpace+name, fieldBody)
			p.PExpire(ctx, keySpace+name, markLife)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	select {
	case <-old:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until entries are old: %w", ctx.Err())
	}
}

// kind is a name without what it names: the hash of a key belongs in no log.
func kind(name string) string {
	for i, c := range name {
		if c == '/' {
			return name[:i]
		}
	}
	return name
}
