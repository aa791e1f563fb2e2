package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/sync/singleflight"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// memoryLife is how old what was found of a key may be when it decides, and so how long a revoked key may still work.
	memoryLife = 100 * time.Millisecond
	// reusedFor is how old it may be to decide another request without a look-up: young enough for the watch to end that
	// request within memoryLife.
	reusedFor = 30 * time.Millisecond
	// remembered bounds how many keys it remembers.
	remembered = 100_000
	// lookupTime is how long finding out may take.
	lookupTime = 7 * time.Second
)

var (
	errNoSuchKey = errors.New("no such key")
	// errUnknown says that there is no entry of a key, so that only its origin can tell.
	errUnknown = errors.New("no entry of the key")
)

// keys turns a key into a principal: from memory, from the entries in Redis, or by asking who owns the key and who
// owns its owner.
type keys struct {
	entries *keycache.Store
	peers   mesh.Peers
	origins map[string]*origin // by service
	memory  *otter.Cache[[32]byte, *found]
	imports atomic.Pointer[imports]
	flights singleflight.Group
	metrics *metrics

	admissions sync.Map // [32]byte, the hash of a key, to its *admission
}

// admission is an unknown key's, for all who wait until its origin has answered.
type admission struct {
	mu      sync.Mutex
	granted bool
}

// imports says whether there are keys that were not made here.
type imports struct {
	any   bool
	since time.Time
}

// found is what was found out of a key. It does not change.
type found struct {
	principal *principal.Principal // nil: nobody
	expires   *time.Time
	networks  []netip.Prefix // that the key is good from; none: all
	since     time.Time      // it was so then, or later
}

// keyStatus says how far the gateway goes to find out about a key.
type keyStatus string

const (
	unknown  keyStatus = "unknown"  // nobody has been seen with it: Redis may have it
	admitted keyStatus = "admitted" // its origin may be asked, among the other unknown ones
	known    keyStatus = "known"    // somebody was let in by it lately
)

// decision is what was found of a request's key.
type decision struct {
	hash [32]byte
	*found
}

func (f *found) valid() bool {
	return f.principal != nil && (f.expires == nil || f.expires.After(time.Now()))
}

// from refuses a key from where it is not good.
func (f *found) from(ip netip.Addr) error {
	if len(f.networks) == 0 || slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return problem.New(problem.Forbidden, "The key is not good from the address %s.", ip)
}

func (f *found) recent() bool { return time.Since(f.since) <= memoryLife }

func newKeys(entries *keycache.Store, peers mesh.Peers, m *metrics) *keys {
	origins := map[string]*origin{}
	for _, service := range ownerServices {
		origins[service] = newOrigin(service, peers)
	}
	return &keys{
		entries: entries, peers: peers, origins: origins, metrics: m,
		memory: otter.Must(&otter.Options[[32]byte, *found]{
			MaximumSize: remembered,
			// For longer than memoryLife, to know which keys are known.
			ExpiryCalculator: otter.ExpiryWriting[[32]byte, *found](keycache.MaxAge),
		}),
	}
}

// decide finds out who the key stands for. The error is errNoSuchKey where it stands for nobody. admit is asked before
// the origin of a key is that nobody has been seen with, unless somebody was admitted whose question is under way; its
// error is passed on.
func (k *keys) decide(ctx context.Context, key string, admit func(context.Context) error) (decision, error) {
	if len(key) > apikey.Longest {
		return decision{}, errNoSuchKey
	}
	hash := apikey.Hash(key)
	f, ok := k.memory.GetIfPresent(hash)
	if ok && time.Since(f.since) <= reusedFor {
		k.metrics.lookups.memory.Inc()
	} else {
		var err error
		if f, err = k.lookUp(ctx, key, hash, statusOf(f), admit); err != nil {
			return decision{}, err
		}
	}
	if !f.valid() {
		return decision{}, errNoSuchKey
	}
	return decision{hash, f}, nil
}

func statusOf(f *found) keyStatus {
	if f != nil && f.principal != nil {
		return known
	}
	return unknown
}

// lookUp finds out of a key what is not remembered. An answer that took longer than memoryLife to arrive may be true no
// more, so it is looked for again; where that takes as long, the answer counts if it was true after the request arrived.
// It ends: what is joined that began before the request can be one look-up of each status.
func (k *keys) lookUp(ctx context.Context, key string, hash [32]byte, s keyStatus, admit func(context.Context) error) (*found, error) {
	arrived := time.Now()
	if s == unknown {
		if err := k.mayExist(ctx, key); err != nil {
			return nil, err
		}
	}
	for again := false; ; again = true {
		f, err := k.findFor(ctx, hash, &s, admit)
		if err != nil || f.recent() || again && !f.since.Before(arrived) {
			return f, err
		}
	}
}

// findFor finds what there is of the key, and admits one that is unknown where that is needed.
func (k *keys) findFor(ctx context.Context, hash [32]byte, s *keyStatus, admit func(context.Context) error) (*found, error) {
	f, err := k.find(ctx, hash, *s)
	if !errors.Is(err, errUnknown) {
		return f, err
	}
	if err := k.admit(ctx, hash, admit); err != nil {
		return nil, err
	}
	*s = admitted
	return k.find(ctx, hash, *s)
}

// admit asks once for all who wait for the same key's origin. Who is refused leaves the others to be asked for, each in his turn.
func (k *keys) admit(ctx context.Context, hash [32]byte, admit func(context.Context) error) error {
	shared, _ := k.admissions.LoadOrStore(hash, &admission{})
	a := shared.(*admission)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.granted {
		return nil
	}
	if err := admit(ctx); err != nil {
		k.admissions.CompareAndDelete(hash, a)
		return err
	}
	a.granted = true
	return nil
}

// mayExist refuses keys that nobody has, going by their form.
func (k *keys) mayExist(ctx context.Context, key string) error {
	switch apikey.FormatOf(key) {
	case apikey.Broken:
		return errNoSuchKey
	case apikey.Imported:
		if len(key) < apikey.ShortestImport {
			return errNoSuchKey
		}
		imported, err := k.anyImported(ctx)
		if err == nil && !imported {
			return errNoSuchKey
		}
		return err
	}
	return nil
}

// find asks once for all who look for the same key at the same time. The error is errUnknown where only the owner of
// an unknown key could tell.
func (k *keys) find(ctx context.Context, hash [32]byte, s keyStatus) (*found, error) {
	name := string(hash[:]) + string(s)
	return once(ctx, k, name, func(ctx context.Context) (*found, error) {
		if s == admitted {
			defer k.admissions.Delete(hash)
		}
		f, err := k.join(ctx, hash, s)
		if err != nil {
			return nil, err
		}
		k.memory.Set(hash, f)
		return f, nil
	})
}

// join puts the key's entry and its owner's together.
func (k *keys) join(ctx context.Context, hash [32]byte, s keyStatus) (*found, error) {
	key, since, err := read[keycache.Key](ctx, k, "identity", keycache.KeyName(hex.EncodeToString(hash[:])), s)
	if err != nil {
		return nil, err
	}
	if !key.Exists() {
		return &found{since: since}, nil
	}
	owner, ownerSince, err := read[keycache.Owner](ctx, k, ownerServices[string(key.Owner.Type)], keycache.OwnerName(key.Owner), known)
	if err != nil {
		return nil, err
	}
	if ownerSince.Before(since) {
		since = ownerSince
	}
	if !owner.Active || ended(key, owner) {
		return &found{since: since}, nil
	}
	p := &principal.Principal{
		KeyID:    key.ID,
		Owner:    key.Owner,
		Name:     owner.Name,
		Grants:   owner.Within(key.Bound),
		Acting:   key.Actor.ID != 0,
		SignedIn: key.SignedIn,
	}
	if p.Acting && key.Actor != key.Owner {
		actor, actorSince, err := read[keycache.Owner](ctx, k, ownerServices[string(key.Actor.Type)], keycache.OwnerName(key.Actor), known)
		if err != nil {
			return nil, err
		}
		if actorSince.Before(since) {
			since = actorSince
		}
		if !actor.Active || !actor.Grants.Holds(principal.Grant(permission.UsersClients, permission.Write)) {
			return &found{since: since}, nil
		}
		p.Name += ", by " + actor.Name
	}
	return &found{principal: p, expires: key.Expires, networks: key.Networks, since: since}, nil
}

// ended tells whether the owner's credentials were changed since the session of the key began, with a login or a link of the owner's own.
func ended(key keycache.Key, owner keycache.Owner) bool {
	return (!key.SignedIn.IsZero() || key.Actor == key.Owner) && key.Credentials < owner.Credentials && key.ID != owner.Kept
}

func (k *keys) anyImported(ctx context.Context) (bool, error) {
	if known := k.imports.Load(); known != nil && time.Since(known.since) <= memoryLife {
		return known.any, nil
	}
	return once(ctx, k, keycache.ImportsName, func(ctx context.Context) (bool, error) {
		e, since, err := read[keycache.Imports](ctx, k, "identity", keycache.ImportsName, known)
		if err != nil {
			return false, err
		}
		k.imports.Store(&imports{e.Any, since})
		return e.Any, nil
	})
}

// read reads an entry from Redis or, where there is no fresh one, from the service that fills it. The value was true
// at the time that is answered, or later.
func read[T keycache.Value](ctx context.Context, k *keys, service, name string, s keyStatus) (value T, since time.Time, err error) {
	since = time.Now()
	value, age, err := keycache.Get[T](ctx, k.entries, service, name)
	switch {
	case err == nil && age <= keycache.FreshFor:
		k.metrics.lookups.redis.Inc()
		return value, since, nil
	case err != nil && s == unknown:
		return value, since, errUnknown
	}
	missing, stale := err, err == nil
	from := k.origins[service]
	if from == nil {
		return value, since, fmt.Errorf("nobody fills %s", name)
	}
	if stale && from.paused() {
		k.metrics.lookups.stale.Inc()
		return value, since, nil
	}
	asked := time.Now()
	told, err := ask[T](ctx, from, "/internal/"+name, s)
	if errors.Is(err, mesh.ErrAway) && !stale && !errors.Is(missing, keycache.ErrNone) {
		// Neither answered. That Redis did not may have been a moment's doing, so it is given more time.
		since = time.Now()
		value, _, missing = keycache.GetPatiently[T](ctx, k.entries, service, name)
		stale = missing == nil
	}
	if stale && errors.Is(err, mesh.ErrAway) {
		k.metrics.lookups.stale.Inc()
		return value, since, nil
	}
	k.metrics.lookups.owner.Inc()
	return told, asked, err
}

// once runs find once for all who ask for the same name at the same time. It goes on when one of them leaves.
func once[T any](ctx context.Context, k *keys, name string, find func(context.Context) (T, error)) (T, error) {
	result := k.flights.DoChan(name, func() (any, error) {
		detached, cancel := k.peers.Limit(context.WithoutCancel(ctx), lookupTime)
		defer cancel()
		return find(detached)
	})
	select {
	case r := <-result:
		value, _ := r.Val.(T)
		return value, r.Err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}
