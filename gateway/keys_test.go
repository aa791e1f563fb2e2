package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/permission"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers"
)

func delay(d time.Duration) func(http.ResponseWriter) bool {
	return func(http.ResponseWriter) bool { time.Sleep(d); return false }
}

// hold makes every question wait until proceed is closed. asked is closed with the first question.
func (o *fakeIdentity) hold() (asked, proceed chan struct{}) {
	asked, proceed = make(chan struct{}), make(chan struct{})
	var first sync.Once
	o.set(func(http.ResponseWriter) bool {
		first.Do(func() { close(asked) })
		<-proceed
		return false
	}, nil)
	return asked, proceed
}

func refuseUnavailable(w http.ResponseWriter) bool {
	w.WriteHeader(http.StatusServiceUnavailable)
	return true
}

// Many simultaneous requests with the same key cost one question.
func TestOneQuestion(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	var asking, callers sync.WaitGroup
	asking.Add(50)
	d.identity.set(func(http.ResponseWriter) bool { asking.Wait(); return false }, nil)
	for range 50 {
		callers.Go(func() {
			asking.Done()
			d.want(200, key, "/port-speed")
		})
	}
	callers.Wait()
	d.questions(1)
}

// Requests that wait for the same key's look-up do not count as further guesses if the key is valid. If it is not, each of them
// counts.
func TestWaitersCountOnce(t *testing.T) {
	t.Parallel()
	const burst, callers = 3, 40
	config := unlimited
	config.AddressRate, config.AddressBurst = 1, burst
	for name, c := range map[string]struct {
		key             func(*testGateway) string
		wanted, refused int
	}{
		"a key":   {func(d *testGateway) string { return d.identity.issue(1) }, 200, 0},
		"a guess": {func(*testGateway) string { return apikey.New().Reveal() }, 401, callers - burst},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestGateway(t, config)
			key := c.key(d)
			asked, proceed := d.identity.hold()
			began := time.Now()
			statuses := make(chan int, callers)
			var all sync.WaitGroup
			call := func() { statuses <- get(d.gateway, testAddress, key, "/port-speed").Code }
			all.Go(call)
			<-asked
			for range callers - 1 { // one after the other, as they would come during a slow look-up
				all.Go(call)
				time.Sleep(time.Millisecond)
			}
			close(proceed)
			all.Wait()
			close(statuses)
			got := map[int]int{}
			for status := range statuses {
				got[status]++
			}
			// On a slow machine the limit may recover by some requests meanwhile.
			if n := got[429]; n > c.refused || n < c.refused-1-int(time.Since(began)/time.Second) || got[c.wanted] != callers-n {
				t.Errorf("got the statuses %v, want %d times 429 and %d for all others", got, c.refused, c.wanted)
			}
			d.questions(1)
		})
	}
}

// The request that asked first may leave without taking the result from the others.
func TestLeaderLeaves(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	asked, proceed := d.identity.hold()
	ctx, leave := context.WithCancel(t.Context())
	var leader, follower sync.WaitGroup
	leader.Go(func() { d.requestAndLeave(ctx, key) })
	<-asked
	follower.Go(func() { d.want(200, key, "/port-speed") })
	leave()
	leader.Wait()
	close(proceed)
	follower.Wait()
	d.questions(1)
}

// A response from identity that took longer than maxDecisionAge is not used.
func TestHeldUpAnswer(t *testing.T) {
	t.Parallel()
	for name, redisDown := range map[string]bool{"with Redis": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTestGateway(t, unlimited)
			if redisDown {
				_ = d.server.Stop(t.Context())
			}
			key := d.identity.issue(1)
			held, proceed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			d.identity.set(nil, func(http.ResponseWriter) bool {
				once.Do(func() { close(held); <-proceed })
				return false
			})
			var caller sync.WaitGroup
			caller.Go(func() { d.want(401, key, "/port-speed") })
			<-held
			d.identity.mu.Lock()
			delete(d.identity.keys, hashOf(key))
			d.identity.mu.Unlock()
			if !redisDown {
				d.identity.revoke(t, key)
			}
			time.Sleep(maxDecisionAge + 10*time.Millisecond)
			close(proceed)
			caller.Wait()
		})
	}
}

// A request that joins an earlier request's question is not refused because that question takes long.
func TestQuestionOfAnEarlierRequest(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	held, proceed := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	var asked atomic.Int32
	d.identity.set(nil, func(http.ResponseWriter) bool {
		if n := asked.Add(1) - 1; n < 2 {
			close(held[n])
			<-proceed[n]
		}
		return false
	})
	var callers sync.WaitGroup
	callers.Go(func() { d.want(200, key, "/port-speed") })
	<-held[0] // the question about the key

	name, at, body := keycache.KeyName(hashOf(key)), time.Now().UnixMilli(), `{"id":1,"owner":{"type":"admin","id":1}}`
	d.redis.HSet(t.Context(), "entry:"+name, "at", at, "body", body, "mac", d.signer.Sign(keycache.Signed(name, "", at, []byte(body))))
	callers.Go(func() { d.want(200, key, "/port-speed") })
	<-held[1] // the question about its owner: Redis has the key's entry
	time.Sleep(maxDecisionAge + 10*time.Millisecond)
	d.redis.FlushDB(t.Context())
	close(proceed[1])
	time.Sleep(maxDecisionAge) // so that the second request asks for the key again
	close(proceed[0])
	callers.Wait()
}

// A key whose owner's service responds slowly still works.
func TestSlowOwner(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	_ = d.server.Stop(t.Context())
	key := d.identity.issue(1)
	d.identity.set(nil, delay(maxDecisionAge+20*time.Millisecond))
	for range 3 {
		d.want(200, key, "/port-speed")
	}
	d.identity.revoke(t, key) // waits, because Redis is away
	time.Sleep(maxDecisionAge)
	d.want(401, key, "/port-speed")
}

// age makes the entries of a key older. It fills them first if a busy Redis has missed that.
func (d *testGateway) age(key string, by time.Duration) {
	d.t.Helper()
	for _, name := range []string{keycache.KeyName(hashOf(key)), "owner/admin/1"} {
		for deadline := time.Now().Add(2 * time.Minute); !d.redis.HExists(context.Background(), "entry:"+name, "body").Val(); {
			if time.Now().After(deadline) {
				d.t.Fatalf("got no entry %s, want it filled", name)
			}
			time.Sleep(maxDecisionAge)
			d.want(200, key, "/port-speed")
		}
		entry := d.redis.HGetAll(context.Background(), "entry:"+name).Val()
		at, err := strconv.ParseInt(entry["at"], 10, 64)
		if err != nil {
			d.t.Fatal(err)
		}
		at -= by.Milliseconds()
		if err := d.redis.HSet(
			context.Background(), "entry:"+name, "at", at, "mac", d.signer.Sign(keycache.Signed(name, entry["history"], at, []byte(entry["body"]))),
		).
			Err(); err != nil {
			d.t.Fatal(err)
		}
	}
	time.Sleep(maxDecisionAge)
}

// A stale entry is used while its owner's service is away, and only then.
func TestStaleEntries(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	d.want(200, key, "/port-speed")
	asked := d.identity.questions("key")

	d.age(key, time.Minute)
	d.want(200, key, "/port-speed")
	if d.identity.questions("key") == asked {
		t.Error("got a stale entry believed, want its owner asked")
	}
	d.age(key, time.Minute)
	d.identity.set(refuseUnavailable, nil)
	asked, began := d.identity.questions("key"), time.Now()
	for range 20 {
		d.want(200, key, "/port-speed")
		time.Sleep(maxDecisionAge)
	}
	if n := d.identity.questions("key") - asked; n < 1 || n > 1+int(time.Since(began)/originRetryInterval) {
		t.Errorf("got %d questions to an absent owner in %v, want 1 and at most one more every %v", n, time.Since(began), originRetryInterval)
	}
	d.identity.set(func(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }, nil)
	time.Sleep(originRetryInterval)
	d.want(200, key, "/port-speed")

	d.redis.Del(t.Context(), "entry:"+keycache.KeyName(hashOf(key)))
	time.Sleep(maxDecisionAge)
	if w := d.want(503, key, "/port-speed"); w.Header().Get("Retry-After") == "" {
		t.Error("got 503 without Retry-After, want one")
	}
	d.want(503, apikey.New().Reveal(), "/port-speed")
	d.identity.set(func(http.ResponseWriter) bool { return false }, nil)
	d.want(200, key, "/port-speed")
	d.age(key, keycache.MaxAge)
	d.identity.set(refuseUnavailable, nil)
	d.want(503, key, "/port-speed")
}

// An entry from before a service was restored never stands in for the service.
func TestEntriesOfBeforeARestore(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	d.want(200, key, "/port-speed")
	d.age(key, time.Minute)
	d.identity.set(refuseUnavailable, nil)
	d.want(200, key, "/port-speed")
	d.identity.entries.Bind(t.Context(), "identity", "another")
	time.Sleep(maxDecisionAge)
	d.want(503, key, "/port-speed")
	d.identity.set(func(http.ResponseWriter) bool { return false }, nil)
	d.want(200, key, "/port-speed")
}

func TestOwnerRefuses(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	d.want(200, key, "/port-speed")
	d.age(key, time.Minute)
	d.identity.set(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusForbidden); return true }, nil)
	d.want(503, key, "/port-speed")
}

// A bounded key has the rights that both its owner and its bound have.
func TestBound(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	read, write := principal.Grant(permission.NetworkGroups, permission.Read), principal.Grant(permission.NetworkGroups, permission.Write)
	d.identity.admins["1"] = keycache.Owner{Active: true, Name: "anna", Grants: read | write}
	nothing, both := principal.Grants(0), read|principal.Grant(permission.SystemLogs, permission.Read)
	for _, c := range []struct {
		bound *principal.Grants
		want  principal.Grants
	}{{nil, read | write}, {&both, read}, {&nothing, 0}} {
		key := d.identity.issue(1)
		d.identity.mu.Lock()
		d.identity.keys[hashOf(key)] = keycache.Key{ID: 1, Owner: principal.Owner{Type: principal.Admin, ID: 1}, Bound: c.bound}
		d.identity.mu.Unlock()
		for _, from := range []string{"its origin", "Redis"} {
			d.want(200, key, "/port-speed")
			if got := d.network.call.Principal.Grants; got != c.want {
				t.Errorf("by %s, with the bound %v: got %v, want %v", from, c.bound, got.Names(), c.want.Names())
			}
			time.Sleep(maxDecisionAge)
		}
	}
}

// An entry with a wrong signature is ignored: the key's origin is asked instead.
func TestForgedEntry(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := apikey.New().Reveal()
	forger := newSigner(t)
	forge := func(name, body string) {
		at := time.Now().UnixMilli()
		d.redis.HSet(t.Context(), "entry:"+name, "at", at, "body", body, "mac", forger.Sign(keycache.Signed(name, "", at, []byte(body))))
	}
	forge(keycache.KeyName(hashOf(key)), `{"id":1,"owner":{"type":"admin","id":1}}`)
	d.want(401, key, "/port-speed")
	d.identity.set(refuseUnavailable, nil)
	forge(keycache.KeyName(hashOf(key)), `{"id":1,"owner":{"type":"admin","id":1}}`)
	time.Sleep(maxDecisionAge)
	d.want(503, key, "/port-speed")
}

// A key works until it expires, and not a moment longer, also if its entry was read before.
func TestExpiry(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	d.expire(key, time.Now().Add(time.Hour))
	d.want(200, key, "/port-speed")
	soon := time.Now().Add(300 * time.Millisecond)
	d.expire(key, soon)
	time.Sleep(maxReuseAge)
	get(d.gateway, testAddress, key, "/port-speed") // reads the new entry; on a slow machine the key may have expired by now
	time.Sleep(time.Until(soon))
	d.want(401, key, "/port-speed")
}

// Keys of an invalid form cost no question. Other unknown keys cost as many as their address may ask.
func TestInvalidKeys(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.AddressRate, config.AddressBurst = 1, 5
	d := newTestGateway(t, config)
	good := d.identity.issue(1)
	free := d.newGateway(unlimited)
	for i := range 1000 {
		broken := apikey.New().Reveal()
		for _, invalid := range []string{
			broken[:51] + "!", broken[:50], "short", strings.Repeat("k", 300), fmt.Sprint(strings.Repeat("k", 40), i),
		} {
			if w := get(free, testAddress, invalid, "/port-speed"); w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Fatalf("%q: got %d %v, want 401 with WWW-Authenticate: Bearer", invalid, w.Code, w.Header())
			}
		}
	}
	if n := d.identity.questions("key"); n != 0 {
		t.Errorf("got %d questions for keys of a wrong form, want 0", n)
	}
	refused, began := 0, time.Now()
	for range 100 {
		if w := get(d.gateway, testAddress, apikey.New().Reveal(), "/port-speed"); w.Code == 429 {
			refused++
		}
	}
	allowed := 100 - refused
	if maxQuestions := 6 + int(time.Since(began)/time.Second); allowed < 5 || allowed > maxQuestions {
		t.Errorf("got %d of 100 keys let through, want 5 to %d", allowed, maxQuestions)
	}
	d.questions(allowed)
	if w := get(d.gateway, "192.0.2.8:1", good, "/port-speed"); w.Code != 200 {
		t.Errorf("got %d for a valid key from another address, want 200", w.Code)
	}
	d.want(200, good, "/port-speed") // it has an entry now, so the limit of the address does not apply
}

// Unknown keys wait in a queue of bounded length. A key that is in use does not wait for them.
func TestUnknownKeysWait(t *testing.T) {
	t.Parallel()
	const guesses = 2 * maxUnknownKeys
	d := newTestGateway(t, unlimited)
	good := d.identity.issue(1)
	d.want(200, good, "/port-speed")
	asked, proceed := make(chan struct{}), make(chan struct{})
	var held atomic.Bool // set by the first guess; questions about the valid key pass
	d.identity.set(func(http.ResponseWriter) bool {
		if held.CompareAndSwap(false, true) {
			close(asked)
			<-proceed
		}
		return false
	}, nil)
	statuses := make(chan int, guesses)
	for range guesses {
		go func() { statuses <- get(d.gateway, testAddress, apikey.New().Reveal(), "/port-speed").Code }()
	}
	<-asked
	if status := <-statuses; status != 503 {
		t.Errorf("got %d as the first answer to one guess too many, want 503", status)
	}
	d.want(200, good, "/port-speed")
	close(proceed)
	for range guesses - 1 {
		if status := <-statuses; status != 401 && status != 503 {
			t.Errorf("got %d for a guess, want 401 or 503", status)
		}
	}
	d.want(200, d.identity.issue(2), "/port-speed")
}

// Valid keys do not count against their address.
func TestValidKeysAreFree(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.AddressRate, config.AddressBurst = 1, 2
	d := newTestGateway(t, config)
	for id := range int64(20) {
		d.want(200, d.identity.issue(id+1), "/port-speed")
	}
	d.questions(20)
}

// A key that cannot be looked up does not count against its address either, so it works at once after the outage.
func TestOutageIsFree(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.AddressRate, config.AddressBurst = 1, 2
	d := newTestGateway(t, config)
	key := d.identity.issue(1)
	d.identity.set(refuseUnavailable, nil)
	for range 20 {
		d.want(503, key, "/port-speed")
	}
	d.identity.set(func(http.ResponseWriter) bool { return false }, nil)
	d.want(200, key, "/port-speed")
}

func BenchmarkKeyInMemory(b *testing.B) {
	d := newTestGateway(b, unlimited)
	key := d.identity.issue(1)
	admitAll := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.gateway.keys.decide(b.Context(), key, admitAll); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKeyInRedis(b *testing.B) {
	d := newTestGatewayOn(b, unlimited, devservers.RedisOptions{})
	key := d.identity.issue(1)
	hash := apikey.Hash(key)
	admitAll := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		d.gateway.keys.cache.Invalidate(hash)
		if _, err := d.gateway.keys.decide(b.Context(), key, admitAll); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInvalidChecksum(b *testing.B) {
	d := newTestGateway(b, unlimited)
	key := apikey.New().Reveal()[:51] + "!"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.gateway.keys.decide(b.Context(), key, nil); err == nil {
			b.Fatal("got a key with a wrong checksum accepted, want an error")
		}
	}
}

// A caller that leaves before it learns that its guess was wrong has still used up a request.
func TestLeavingIsNotFree(t *testing.T) {
	t.Parallel()
	const burst = 3
	d := newTestGateway(
		t,
		testConfig{
			rates: rates{
				OwnerRate:          1000,
				OwnerBurst:         1000,
				AddressRate:        1,
				AddressBurst:       burst,
				OwnerConcurrency:   1_000_000,
				AddressConcurrency: 1_000_000,
			},
		},
	)
	began := time.Now()
	for range 10 * burst {
		ctx, leave := context.WithCancel(t.Context())
		d.identity.set(func(http.ResponseWriter) bool { leave(); return false }, nil)
		d.requestAndLeave(ctx, apikey.New().Reveal())
		leave()
	}
	if n, maxQuestions := d.identity.questions("key"), burst+1+int(time.Since(began)/time.Second); n > maxQuestions {
		t.Errorf("got %d questions, want at most %d", n, maxQuestions)
	}
}

// A cached result that is older than maxReuseAge admits no request: otherwise the request could not be ended in time after a
// revocation.
func TestMemoryIsYoung(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	d.want(200, key, "/port-speed")
	d.identity.revoke(t, key)
	hash := apikey.Hash(key)
	d.gateway.keys.cache.Set(
		hash,
		&resolvedKey{
			principal: &principal.Principal{KeyID: 1, Owner: principal.Owner{Type: principal.Admin, ID: 1}},
			asOf:      time.Now().Add(-maxReuseAge),
		},
	)
	d.want(401, key, "/port-speed")
}
