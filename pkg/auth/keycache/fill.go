package keycache

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// nowLua is, in the scripts, what Redis' own clock shows, in ms: all ages are by that one clock.
const nowLua = `
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)`

// beginScript: KEYS the entry, and where the history stands that its service is in; ARGV a nonce, how long to keep the token in
// ms, and that history. The token that stands, which is a new one only
// where there was none, and the time. A token has Redis' time in it: a begin that arrives twice, the second time after a
// removal, does not bring back the token that the removal took away.
var beginScript = redis.NewScript(nowLua + `
	if redis.call('HGET', KEYS[2], 'history') ~= ARGV[3] then redis.call('HSET', KEYS[2], 'history', ARGV[3]) end
	redis.call('HSETNX', KEYS[1], 'token', time[1] .. '.' .. time[2] .. '.' .. ARGV[1])
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
	return {redis.call('HGET', KEYS[1], 'token'), string.format('%.0f', now)}`)

// landScript: KEYS the entry; ARGV the token and the time that begin answered, the body, how long to keep it in ms, the
// signature, and the history. It does nothing where the token is gone, which is what a removal does, or where somebody landed who began
// later.
var landScript = redis.NewScript(nowLua + `
	if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
	local other = tonumber(redis.call('HGET', KEYS[1], 'at') or '')
	if other and other > tonumber(ARGV[2]) and other <= now then return 0 end
	local left = ARGV[2] + ARGV[4] - now
	if left <= 0 then return 0 end
	redis.call('HSET', KEYS[1], 'at', ARGV[2], 'body', ARGV[3], 'mac', ARGV[5], 'history', ARGV[6])
	redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left))
	return 1`)

// ticket is what a fill got when it began, and needs to land.
type ticket struct {
	token string // fencing token
	at    int64  // by Redis' clock, in ms
}

// errClockSkew says that Redis tells another time, so that nothing can be signed with it.
var errClockSkew = errors.New("the clock of Redis differs from ours")

// Fill answers what read reads and leaves it as the entry, unless that was removed since or Redis is away.
func Fill[T Value](ctx context.Context, s *Store, name string, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	t, noTicket := s.begin(ctx, name)
	value, err := read(ctx)
	if err != nil || noTicket != nil {
		return value, err
	}
	body, err := json.Marshal(value)
	if err != nil {
		return value, fmt.Errorf("encode entry %s: %w", kindOf(name), err)
	}
	keep := MaxAge
	if !value.Exists() {
		keep = FreshTTL
	}
	// Whether it lands or not, the value is as good as the question is young: that is how the gateway counts.
	_ = s.land(ctx, name, t, body, keep)
	return value, nil
}

func (s *Store) begin(ctx context.Context, name string) (t ticket, err error) {
	err = s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		got, err := beginScript.Run(ctx, r, []string{keySpace + name, historyKey(s.service)}, rand.Text(), fillTimeout.Milliseconds(), s.history).
			StringSlice()
		if err == nil && len(got) != 2 {
			err = fmt.Errorf("begin to fill %s: Redis answered %d values", kindOf(name), len(got))
		}
		if err == nil {
			t.token = got[0]
			t.at, err = strconv.ParseInt(got[1], 10, 64)
		}
		return err
	})
	if err == nil && !s.checkClock(time.UnixMilli(t.at)) {
		err = errClockSkew
	}
	return t, err
}

func (s *Store) land(ctx context.Context, name string, t ticket, body []byte, keep time.Duration) error {
	return s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		return landScript.Run(
			ctx, r, []string{keySpace + name}, t.token, t.at, body, keep.Milliseconds(), s.signer.Sign(Signed(name, s.history, t.at, body)),
			s.history,
		).
			Err()
	})
}
