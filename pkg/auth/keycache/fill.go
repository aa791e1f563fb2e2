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

// nowLua sets time and now (in ms) to the clock of Redis. All ages are by that clock, so that differences between
// machines do not matter.
const nowLua = `
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)`

// beginScript begins a fill. KEYS are the entry, and where its service's history is kept. ARGV are a nonce, how long to
// keep the token in ms, and the history. It returns the entry's token, which is new only if there was none, and the
// time. A token contains the time: a repeated beginScript that arrives after a removal does not bring back the removed
// token.
var beginScript = redis.NewScript(nowLua + `
	if redis.call('HGET', KEYS[2], 'history') ~= ARGV[3] then redis.call('HSET', KEYS[2], 'history', ARGV[3]) end
	redis.call('HSETNX', KEYS[1], 'token', time[1] .. '.' .. time[2] .. '.' .. ARGV[1])
	if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
	return {redis.call('HGET', KEYS[1], 'token'), string.format('%.0f', now)}`)

// landScript writes the entry. KEYS is the entry. ARGV are the token and the time that beginScript returned, the body,
// how long to keep it in ms, the signature, and the history. It does nothing if a removal has deleted the token, or if a
// fill that began later has already landed.
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

// errClockSkew means that the clock of Redis is wrong, so that its time must not be signed.
var errClockSkew = errors.New("the clock of Redis differs from this machine's")

// Fill returns what read returns, and stores it as the entry, unless the entry was removed since or Redis is
// unavailable.
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
	// An error does not matter: the value is fresh for the caller, who counts its age from the question on.
	_ = s.land(ctx, name, t, body, keep)
	return value, nil
}

// begin returns a ticket to fill an entry. The ticket is void once the entry is removed, or somebody else begins to fill it.
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

// land stores the signed value for the duration keep, unless the ticket is void.
func (s *Store) land(ctx context.Context, name string, t ticket, body []byte, keep time.Duration) error {
	return s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		return landScript.Run(
			ctx, r, []string{keySpace + name}, t.token, t.at, body, keep.Milliseconds(), s.signer.Sign(Signed(name, s.history, t.at, body)),
			s.history,
		).
			Err()
	})
}
