package keycache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNone means that there is no entry, or none that can be trusted.
var ErrNone = errors.New("no entry")

// Get returns an entry and its age, which counts from before the read that filled it. It returns ErrNone if there is no
// entry, if the entry is older than MaxAge, or if it was filled in another history than its service is in.
func Get[T Value](ctx context.Context, s *Store, service, name string) (value T, age time.Duration, err error) {
	return getEntry[T](ctx, s, s.link.Do, service, name)
}

// GetRequired does the same for callers that cannot ask anybody else: it asks Redis even while others leave it alone.
func GetRequired[T Value](ctx context.Context, s *Store, service, name string) (value T, age time.Duration, err error) {
	return getEntry[T](ctx, s, s.link.DoRequired, service, name)
}

// doFunc is Link.Do or Link.DoRequired.
type doFunc func(context.Context, func(context.Context, redis.UniversalClient) error) error

// getEntry reads an entry, and returns its age by the clock of Redis. It returns ErrNone if the entry is missing, too old, or not
// signed for the present history of its service.
func getEntry[T Value](ctx context.Context, s *Store, ask doFunc, service, name string) (value T, age time.Duration, err error) {
	var entry, present *redis.SliceCmd
	var clock *redis.TimeCmd
	err = ask(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
			entry, present, clock = p.HMGet(
				ctx,
				keySpace+name,
				"at",
				"body",
				"mac",
				"history",
			), p.HMGet(
				ctx,
				historyKey(service),
				"history",
			), p.Time(
				ctx,
			)
			return nil
		})
		return err
	})
	if err != nil {
		return value, 0, fmt.Errorf("read entry %s: %w", kindOf(name), err)
	}
	var fields [5]string
	for i, field := range append(entry.Val(), present.Val()...)[:min(len(fields), len(entry.Val())+len(present.Val()))] {
		fields[i], _ = field.(string)
	}
	body, signature, history := []byte(fields[1]), []byte(fields[2]), fields[3]
	if len(body) == 0 || history != fields[4] {
		return value, 0, ErrNone
	}
	at, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		at = 0 // no signature fits this time
	}
	if !s.isSigned(name, history, at, body, signature) || !s.checkClock(clock.Val()) {
		return value, 0, ErrNone
	}
	if age = clock.Val().Sub(time.UnixMilli(at)); age < 0 || age > MaxAge {
		return value, 0, ErrNone
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return value, 0, fmt.Errorf("decode entry %s: %w", kindOf(name), err)
	}
	return value, age, nil
}
