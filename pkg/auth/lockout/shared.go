package lockout

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
)

// shared counts guesses in Redis.
type shared struct{ link *cache.Link }

const keySpace = "lockout:"

// reserveScript counts a guess. KEYS are the counters. ARGV are the limit and the duration in ms of each. It returns for how many ms
// a counter is still at its limit; otherwise it adds one to each and returns 0. A counter lasts from its first guess, and starts again
// when it reaches its limit.
var reserveScript = redis.NewScript(`
	local locked = 0
	for i, key in ipairs(KEYS) do
		if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[2 * i - 1]) then
			locked = math.max(locked, redis.call('PTTL', key), 1)
		end
	end
	if locked > 0 then return locked end
	for i, key in ipairs(KEYS) do
		local count = redis.call('INCR', key)
		if count == 1 or count >= tonumber(ARGV[2 * i - 1]) then redis.call('PEXPIRE', key, ARGV[2 * i]) end
	end
	return 0`)

// releaseScript undoes a count. KEYS are the counters. ARGV tells for each whether it is reset.
var releaseScript = redis.NewScript(`
	for i, key in ipairs(KEYS) do
		if ARGV[i] == '1' then
			redis.call('DEL', key)
		elseif tonumber(redis.call('GET', key) or '0') > 0 then
			redis.call('DECR', key)
		end
	end
	return 0`)

// names returns the Redis keys of the counters.
func names(all []counter) []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = keySpace + c.name
	}
	return names
}

// reserve returns for how long the counters are locked, or counts a guess and returns 0. An error means that Redis is
// unavailable.
func (s shared) reserve(ctx context.Context, all []counter) (locked time.Duration, err error) {
	var args []any
	for _, c := range all {
		args = append(args, c.limit, c.duration.Milliseconds())
	}
	err = s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		ms, err := reserveScript.Run(ctx, r, names(all), args...).Int64()
		locked = time.Duration(ms) * time.Millisecond
		return err
	})
	return locked, err
}

// release undoes reserve. After a right guess it resets the counters with resetOnSuccess.
func (s shared) release(ctx context.Context, all []counter, right bool) error {
	reset := make([]any, len(all))
	for i, c := range all {
		reset[i] = 0
		if right && c.resetOnSuccess {
			reset[i] = 1
		}
	}
	return s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		return releaseScript.Run(ctx, r, names(all), reset...).Err()
	})
}
