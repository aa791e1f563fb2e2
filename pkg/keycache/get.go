package keycache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNone says that there is no entry.
var ErrNone = errors.New("no entry")

// get: KEYS the entry. Its age in ms, and its body.
var get = redis.NewScript(now + `
	local entry = redis.call('HMGET', KEYS[1], 'at', 'body')
	if not entry[2] then return false end
	return {now - entry[1], entry[2]}`)

// now is, in the scripts, what Redis' own clock shows, in ms: all ages are by that one clock.
const now = `
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)`

// Get reads an entry that is not older than Life. Its age counts from before the read that filled it. The error is
// ErrNone where there is no entry.
func Get[T Value](ctx context.Context, s *Store, name string) (value T, age time.Duration, err error) {
	return getBy[T](ctx, s.link.Do, name)
}

// GetPatiently is Get for who has nobody else to ask.
func GetPatiently[T Value](ctx context.Context, s *Store, name string) (value T, age time.Duration, err error) {
	return getBy[T](ctx, s.link.Insist, name)
}

type way func(context.Context, func(context.Context, redis.UniversalClient) error) error

func getBy[T Value](ctx context.Context, do way, name string) (value T, age time.Duration, err error) {
	var found []any
	err = do(ctx, func(ctx context.Context, r redis.UniversalClient) (err error) {
		found, err = get.Run(ctx, r, []string{keySpace + name}).Slice()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	if err != nil {
		return value, 0, fmt.Errorf("read entry %s: %w", kind(name), err)
	}
	if len(found) != 2 {
		return value, 0, ErrNone
	}
	ms, isNumber := found[0].(int64)
	body, isText := found[1].(string)
	if !isNumber || !isText {
		return value, 0, fmt.Errorf("read entry %s: Redis answered %T and %T", kind(name), found[0], found[1])
	}
	if age = time.Duration(ms) * time.Millisecond; age < 0 || age > Life {
		return value, 0, ErrNone
	}
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		return value, 0, fmt.Errorf("decode entry %s: %w", kind(name), err)
	}
	return value, age, nil
}
