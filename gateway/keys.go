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
	// maxDecisionAge is how old what was found of a key may be when it decides, and so how long a revoked key may still work.
	maxDecisionAge = 100 * time.Millisecond
	// maxReuseAge is how old it may be to decide another request without a look-up: young enough for the watch to end that
	// request within maxDecisionAge.
	maxReuseAge = 30 * time.Millisecond
	// maxCachedKeys bounds how many keys it remembers.
	maxCachedKeys = 100_000
	// lookupTimeout is how long finding out may take.
	lookupTimeout = 7 * time.Second
)

var (
	errNoSuchKey = errors.New("no such key")
	// errNoEntry says that there is no entry of a key, so that only its origin can tell.
	errNoEntry = errors.New("no entry of the key")
)

// keys turns a key into a principal: from memory, from the entries in Redis, or by asking who owns the key and who
// owns its owner.
type keys struct {
	entries *keycache.Store
	peers   mesh.Peers
	origins map[string]*origin // by service
	cache   *otter.Cache[[32]byte, *resolvedKey]
	imports atomic.Pointer[importState]
	flights singleflight.Group
	metrics *metrics

	admissions sync.Map // [32]byte, the hash of a key, to its *admission
}

// admission is an unknown key's, for all who wait until its origin has answered.
type admission struct {
	mu        sync.Mutex
	isGranted bool
}

// importState says whether there are keys that were not made here.
type importState struct {
	any  bool
	asOf time.Time
}

// resolvedKey is what was found out of a key. It does not change.
type resolvedKey struct {
	principal *principal.Principal // nil: nobody
	expires   *time.Time
	networks  []netip.Prefix // that the key is good from; none: all
	asOf      time.Time      // it was so then, or later
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
	*resolvedKey
}

func (f *resolvedKey) isValid() bool {
	return f.principal != nil && (f.expires == nil || f.expires.After(time.Now()))
}

// checkNetwork refuses a key from where it is not good.
func (f *resolvedKey) checkNetwork(ip netip.Addr) error {
	if len(f.networks) == 0 || slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return problem.New(problem.Forbidden, "The key is not good from the address %s.", ip)
}

func (f *resolvedKey) isFresh() bool { return time.Since(f.asOf) <= maxDecisionAge }

func newKeys(entries *keycache.Store, peers mesh.Peers, m *metrics) *keys {
	origins := map[string]*origin{}
	for _, service := range ownerServices {
		origins[service] = newOrigin(service, peers)
	}
	return &keys{
		entries: entries, peers: peers, origins: origins, metrics: m,
		cache: otter.Must(&otter.Options[[32]byte, *resolvedKey]{
			MaximumSize: maxCachedKeys,
			// For longer than maxDecisionAge, to know which keys are known.
			ExpiryCalculator: otter.ExpiryWriting[[32]byte, *resolvedKey](keycache.MaxAge),
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
	f, ok := k.cache.GetIfPresent(hash)
	if ok && time.Since(f.asOf) <= maxReuseAge {
		k.metrics.lookups.memory.Inc()
	} else {
		var err error
		if f, err = k.lookUp(ctx, key, hash, statusOf(f), admit); err != nil {
			return decision{}, err
		}
	}
	if !f.isValid() {
		return decision{}, errNoSuchKey
	}
	return decision{hash, f}, nil
}

func statusOf(f *resolvedKey) keyStatus {
	if f != nil && f.principal != nil {
		return known
	}
	return unknown
}

// lookUp finds out of a key what is not remembered. An answer that took longer than maxDecisionAge to arrive may be true no
// more, so it is looked for again; where that takes as long, the answer counts if it was true after the request arrived.
// It ends: what is joined that began before the request can be one look-up of each status.
func (k *keys) lookUp(
	ctx context.Context,
	key string,
	hash [32]byte,
	s keyStatus,
	admit func(context.Context) error,
) (*resolvedKey, error) {
	arrived := time.Now()
	if s == unknown {
		if err := k.mayExist(ctx, key); err != nil {
			return nil, err
		}
	}
	for isRetry := false; ; isRetry = true {
		f, err := k.findOrAdmit(ctx, hash, &s, admit)
		if err != nil || f.isFresh() || isRetry && !f.asOf.Before(arrived) {
			return f, err
		}
	}
}

// findOrAdmit finds what there is of the key, and admits one that is unknown where that is needed.
func (k *keys) findOrAdmit(ctx context.Context, hash [32]byte, s *keyStatus, admit func(context.Context) error) (*resolvedKey, error) {
	f, err := k.find(ctx, hash, *s)
	if !errors.Is(err, errNoEntry) {
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
	if a.isGranted {
		return nil
	}
	if err := admit(ctx); err != nil {
		k.admissions.CompareAndDelete(hash, a)
		return err
	}
	a.isGranted = true
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
		imported, err := k.hasImportedKeys(ctx)
		if err == nil && !imported {
			return errNoSuchKey
		}
		return err
	}
	return nil
}

// find asks once for all who look for the same key at the same time. The error is errNoEntry where only the owner of
// an unknown key could tell.
func (k *keys) find(ctx context.Context, hash [32]byte, s keyStatus) (*resolvedKey, error) {
	name := string(hash[:]) + string(s)
	return shareCall(ctx, k, name, func(ctx context.Context) (*resolvedKey, error) {
		if s == admitted {
			defer k.admissions.Delete(hash)
		}
		f, err := k.resolve(ctx, hash, s)
		if err != nil {
			return nil, err
		}
		k.cache.Set(hash, f)
		return f, nil
	})
}

// resolve puts the key's entry and its owner's together.
func (k *keys) resolve(ctx context.Context, hash [32]byte, s keyStatus) (*resolvedKey, error) {
	key, asOf, err := readEntry[keycache.Key](ctx, k, "identity", keycache.KeyName(hex.EncodeToString(hash[:])), s)
	if err != nil {
		return nil, err
	}
	if !key.Exists() {
		return &resolvedKey{asOf: asOf}, nil
	}
	owner, ownerAsOf, err := readEntry[keycache.Owner](ctx, k, ownerServices[string(key.Owner.Type)], keycache.OwnerName(key.Owner), known)
	if err != nil {
		return nil, err
	}
	if ownerAsOf.Before(asOf) {
		asOf = ownerAsOf
	}
	if !owner.Active || isSessionEnded(key, owner) {
		return &resolvedKey{asOf: asOf}, nil
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
		actor, actorAsOf, err := readEntry[keycache.Owner](ctx, k, ownerServices[string(key.Actor.Type)], keycache.OwnerName(key.Actor), known)
		if err != nil {
			return nil, err
		}
		if actorAsOf.Before(asOf) {
			asOf = actorAsOf
		}
		if !actor.Active || !actor.Grants.Holds(principal.Grant(permission.UsersClients, permission.Write)) {
			return &resolvedKey{asOf: asOf}, nil
		}
		p.Name += ", by " + actor.Name
	}
	return &resolvedKey{principal: p, expires: key.Expires, networks: key.Networks, asOf: asOf}, nil
}

// isSessionEnded reports whether the owner's credentials changed after the key's session began. It concerns sessions that began
// with a login, or with a link of the owner's own. The session that made the change (owner.Kept) goes on.
func isSessionEnded(key keycache.Key, owner keycache.Owner) bool {
	return (!key.SignedIn.IsZero() || key.Actor == key.Owner) && key.Credentials < owner.Credentials && key.ID != owner.Kept
}

func (k *keys) hasImportedKeys(ctx context.Context) (bool, error) {
	if known := k.imports.Load(); known != nil && time.Since(known.asOf) <= maxDecisionAge {
		return known.any, nil
	}
	return shareCall(ctx, k, keycache.ImportsName, func(ctx context.Context) (bool, error) {
		e, asOf, err := readEntry[keycache.Imports](ctx, k, "identity", keycache.ImportsName, known)
		if err != nil {
			return false, err
		}
		k.imports.Store(&importState{e.Any, asOf})
		return e.Any, nil
	})
}

// readEntry reads an entry from Redis or, where there is no fresh one, from the service that fills it. The value was true
// at the time that is answered, or later.
func readEntry[T keycache.Value](ctx context.Context, k *keys, service, name string, s keyStatus) (value T, asOf time.Time, err error) {
	asOf = time.Now()
	value, age, err := keycache.Get[T](ctx, k.entries, service, name)
	switch {
	case err == nil && age <= keycache.FreshFor:
		k.metrics.lookups.redis.Inc()
		return value, asOf, nil
	case err != nil && s == unknown:
		return value, asOf, errNoEntry
	}
	missing, stale := err, err == nil
	source := k.origins[service]
	if source == nil {
		return value, asOf, fmt.Errorf("nobody fills %s", name)
	}
	if stale && source.isPaused() {
		k.metrics.lookups.stale.Inc()
		return value, asOf, nil
	}
	askedAt := time.Now()
	fetched, err := askOrigin[T](ctx, source, "/internal/"+name, s)
	if errors.Is(err, mesh.ErrAway) && !stale && !errors.Is(missing, keycache.ErrNone) {
		// Neither answered. That Redis did not may have been a moment's doing, so it is given more time.
		asOf = time.Now()
		value, _, missing = keycache.GetPatiently[T](ctx, k.entries, service, name)
		stale = missing == nil
	}
	if stale && errors.Is(err, mesh.ErrAway) {
		k.metrics.lookups.stale.Inc()
		return value, asOf, nil
	}
	k.metrics.lookups.owner.Inc()
	return fetched, askedAt, err
}

// shareCall runs find once for all who ask for the same name at the same time. It goes on when one of them leaves.
func shareCall[T any](ctx context.Context, k *keys, name string, find func(context.Context) (T, error)) (T, error) {
	result := k.flights.DoChan(name, func() (any, error) {
		detached, cancel := k.peers.Limit(context.WithoutCancel(ctx), lookupTimeout)
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
