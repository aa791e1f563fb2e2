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
	// maxDecisionAge is how old the result of a look-up may be when it decides about a request. It is how long a revoked key may
	// still work.
	maxDecisionAge = 100 * time.Millisecond
	// maxReuseAge is how old a result may be to admit another request without a look-up. It is short, so that the watcher can end
	// that request within maxDecisionAge.
	maxReuseAge = 30 * time.Millisecond
	// maxCachedKeys bounds how many keys are cached.
	maxCachedKeys = 100_000
	// lookupTimeout is how long a look-up may take.
	lookupTimeout = 7 * time.Second
)

var (
	errNoSuchKey = errors.New("no such key")
	// errNoEntry means that Redis has no entry of an unknown key, so only its origin knows whether the key exists.
	errNoEntry = errors.New("no entry of the key")
)

// keys finds the principal of a key: in its cache, in the entries in Redis, or by asking the service that owns the key and the
// service that owns its owner.
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

// admission is the permission to ask the origin about an unknown key. All requests that wait for the same answer share it.
type admission struct {
	mu        sync.Mutex
	isGranted bool
}

// importState says whether there are keys that were imported from another system.
type importState struct {
	any  bool
	asOf time.Time
}

// resolvedKey is the result of a look-up. It is immutable.
type resolvedKey struct {
	principal *principal.Principal // nil: the key does not exist or is not valid
	expires   *time.Time
	networks  []netip.Prefix // in which the key can be used; empty: all
	asOf      time.Time      // the result was true at this time, or later
}

// keyStatus says how far the gateway goes to look up a key.
type keyStatus string

const (
	unknown  keyStatus = "unknown"  // not seen before: only Redis is asked
	admitted keyStatus = "admitted" // its origin may be asked, too, in the queue of unknown keys
	known    keyStatus = "known"    // it was valid a moment ago: its origin may be asked at once
)

// decision is the result for the key of a request.
type decision struct {
	hash [32]byte
	*resolvedKey
}

// isValid reports whether the key stands for a principal and has not expired.
func (f *resolvedKey) isValid() bool {
	return f.principal != nil && (f.expires == nil || f.expires.After(time.Now()))
}

// checkNetwork returns a 403 if the key cannot be used from this address.
func (f *resolvedKey) checkNetwork(ip netip.Addr) error {
	if len(f.networks) == 0 || slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return problem.New(problem.Forbidden, "The API key cannot be used from the address %s.", ip)
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

// decide returns the principal of a key. The error is errNoSuchKey if the key does not exist or is not valid. admit is called
// before the origin is asked about an unknown key, unless another request was admitted for the same question. An error of admit is
// returned as it is.
func (k *keys) decide(ctx context.Context, key string, admit func(context.Context) error) (decision, error) {
	if len(key) > apikey.MaxLength {
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

// lookUp looks up a key that is not in the cache. If a result took longer than maxDecisionAge to arrive, lookUp asks once more. If
// the second takes as long, it counts if it was true after the request arrived. The loop ends: a question that began before the
// request can be joined at most once for each status.
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

// findOrAdmit looks up the key. If only its origin can tell, it calls admit and asks the origin.
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

// admit calls admit once for all requests that wait for the same key's origin. If a request is refused, each of the others asks
// for itself.
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

// mayExist returns errNoSuchKey for keys that cannot exist because of their form.
func (k *keys) mayExist(ctx context.Context, key string) error {
	switch apikey.DetectFormat(key) {
	case apikey.Broken:
		return errNoSuchKey
	case apikey.Imported:
		if len(key) < apikey.MinImportLength {
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

// find shares one look-up between all requests with the same key. The error is errNoEntry if only the origin of an unknown key
// could tell.
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

// resolve joins the key's entry with its owner's.
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
	holder := owner // the account that has the key, or the key that an acting session was made with
	if p.Acting && key.Actor != key.Owner {
		actor, actorAsOf, err := readEntry[keycache.Owner](ctx, k, ownerServices[string(key.Actor.Type)], keycache.OwnerName(key.Actor), known)
		if err != nil {
			return nil, err
		}
		if actorAsOf.Before(asOf) {
			asOf = actorAsOf
		}
		if !actor.Active || !mayAct(key.Actor, actor, owner) {
			return &resolvedKey{asOf: asOf}, nil
		}
		p.Name += principal.ByActor + actor.Name
		holder = actor
	}
	if key.Maker != 0 && !belongsTo(holder, key.Maker) {
		return &resolvedKey{asOf: asOf}, nil
	}
	return &resolvedKey{principal: p, expires: key.Expires, networks: key.Networks, asOf: asOf}, nil
}

// mayAct reports whether an account may still act for another one: a client for clients below it, an integration for its own
// clients, any other account with the permission users.clients.
func mayAct(id principal.Owner, actor, owner keycache.Owner) bool {
	if id.Type == principal.Client {
		return slices.Contains(owner.Above, id.ID)
	}
	isAllowed := actor.Grants.Holds(principal.Grant(permission.UsersClients, permission.Write))
	return isAllowed && (id.Type != principal.Integration || belongsTo(owner, id.ID))
}

// belongsTo reports whether a client belongs to an integration. An earlier version of the clients service does not say.
func belongsTo(client keycache.Owner, integration int64) bool {
	return client.Integration == nil || *client.Integration == integration
}

// isSessionEnded reports whether the owner's credentials changed after the key's session began. It concerns sessions that began
// with a login, or with a link of the owner's own. The session that made the change (owner.Kept) goes on.
func isSessionEnded(key keycache.Key, owner keycache.Owner) bool {
	return (!key.SignedIn.IsZero() || key.Actor == key.Owner) && key.Credentials < owner.Credentials && key.ID != owner.Kept
}

// hasImportedKeys reports whether there are keys from another system.
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

// readEntry reads an entry from Redis. If Redis has no fresh one, it asks the service that fills the entry. The value was true at
// the returned time, or later.
func readEntry[T keycache.Value](ctx context.Context, k *keys, service, name string, s keyStatus) (value T, asOf time.Time, err error) {
	asOf = time.Now()
	value, age, err := keycache.Get[T](ctx, k.entries, service, name)
	switch {
	case err == nil && age <= keycache.FreshTTL:
		k.metrics.lookups.redis.Inc()
		return value, asOf, nil
	case err != nil && s == unknown:
		return value, asOf, errNoEntry
	}
	missing, stale := err, err == nil
	source := k.origins[service]
	if source == nil {
		return value, asOf, fmt.Errorf("no service fills %s", name)
	}
	if stale && source.isPaused() {
		k.metrics.lookups.stale.Inc()
		return value, asOf, nil
	}
	askedAt := time.Now()
	fetched, err := askOrigin[T](ctx, source, "/internal/"+name, s)
	if errors.Is(err, mesh.ErrUnavailable) && !stale && !errors.Is(missing, keycache.ErrNone) {
		// Neither responded. Redis may only have been slow for a moment, so it gets more time.
		asOf = time.Now()
		value, _, missing = keycache.GetRequired[T](ctx, k.entries, service, name)
		stale = missing == nil
	}
	if stale && errors.Is(err, mesh.ErrUnavailable) {
		k.metrics.lookups.stale.Inc()
		return value, asOf, nil
	}
	k.metrics.lookups.owner.Inc()
	return fetched, askedAt, err
}

// shareCall runs find once for all callers that ask for the same name at the same time. It goes on if one of them leaves.
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
