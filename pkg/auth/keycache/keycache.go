// Package keycache keeps, in Redis, what the gateway needs to know to let a key in: one entry for the key, one for its
// owner. Each is filled and removed by the service that owns the thing; the gateway only reads, and asks the owner
// for what is missing. Entries are signed: who can write to Redis and has not the key that signs them makes none.
//
// docs/understand/principals.md says why no order of events lets a revoked key in again.
package keycache

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/seal"
)

const (
	// FreshTTL is how long an entry is believed.
	FreshTTL = 5 * time.Second
	// MaxAge is how old an entry may be that stands in for the service that filled it, where that cannot be asked.
	MaxAge = 5 * time.Minute
	// fillTimeout is how long a fill may take: its token is kept for that long.
	fillTimeout = 10 * time.Second
)

// Purpose is what the key is for that signs entries. Who fills entries has it, and gateways, and nobody else.
var Purpose = seal.Signing("keycache", "entries")

// Key is the entry of an API key. The zero Key says that there is none.
//
// A reader ignores members that it does not know. So a new member that takes something away is written only once all
// gateways know it: they are upgraded before the services that fill it.
type Key struct {
	ID      int64             `json:"id,omitempty"`
	Owner   principal.Owner   `json:"owner,omitzero"`
	Expires *time.Time        `json:"expires,omitempty"`
	Bound   *principal.Grants `json:"bound,omitempty"` // the most that the key may do of what its owner may; nil: all of it
	// Actor is, of an acting session, who made it: it is good as long as he may.
	Actor principal.Owner `json:"actor,omitzero"`
	// SignedIn is when the login was that the key's session began with, and Credentials the version of the account's at that time.
	SignedIn    time.Time `json:"signed_in,omitzero"`
	Credentials int64     `json:"credentials,omitempty"`
	// Networks are those that the key is good from; none: all.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// Exists tells whether there is such a key.
func (k Key) Exists() bool { return k.ID != 0 }

// Owner is the entry of an account that keys belong to.
type Owner struct {
	Active bool             `json:"active"` // false: there is none, or it may not be used
	Name   string           `json:"name,omitempty"`
	Grants principal.Grants `json:"grants,omitempty"`
	// Credentials is how often address or password were changed, last with the key Kept: of sessions from before that one's goes on.
	Credentials int64 `json:"credentials,omitempty"`
	Kept        int64 `json:"kept,omitempty"`
}

// Within is what o holds within a key's bound.
func (o Owner) Within(bound *principal.Grants) principal.Grants {
	if bound == nil {
		return o.Grants
	}
	return o.Grants & *bound
}

// Exists tells whether there is such an account.
func (o Owner) Exists() bool { return o.Active }

// Imports is the entry that says whether there are keys that were not made here.
type Imports struct {
	Any bool `json:"any"`
}

// Exists is true: the answer is always worth keeping.
func (Imports) Exists() bool { return true }

// Value is what an entry says.
type Value interface {
	// Exists tells whether the thing does. That it does not is kept for no longer than it is believed: anybody can
	// ask for what does not exist.
	Exists() bool
}

// The names of entries, and below /internal/ the paths at which their owners fill them.

// KeyName is the entry of the key with this hash, in hexadecimal.
func KeyName(hash string) string { return "key/" + hash }

// OwnerName is the entry of an owner.
func OwnerName(o principal.Owner) string { return fmt.Sprintf("owner/%s/%d", o.Type, o.ID) }

// UsagePath is where gateways tell identity which keys were used.
const UsagePath = "/internal/key-uses"

// ImportsName is the entry about imported keys.
const ImportsName = "imports"

// kindOf is a name without what it names: the hash of a key belongs in no log.
func kindOf(name string) string {
	before, _, _ := strings.Cut(name, "/")
	return before
}

// Store is the entries.
type Store struct {
	service  string // who fills by it, and in which history
	history  string
	link     *cache.Link
	signer   *seal.Signer
	unsigned *distrust
	skewed   *distrust
}

// NewStore uses a Redis, by a client that cache.Open made. The signer is that of Purpose.
func NewStore(client *cache.Client, signer *seal.Signer, log *slog.Logger) *Store {
	return &Store{
		link: cache.NewLink(client, "principals", log), signer: signer,
		unsigned: &distrust{log: log, warning: "Redis holds an entry that none of those signed who fill entries: it counts as none"},
		skewed:   &distrust{log: log, warning: "Redis' clock and ours differ by more than a minute: entries count as none"},
	}
}

// IsUp tells whether Redis answered when it was last asked.
func (s *Store) IsUp() bool { return s.link.IsUp() }

// Metrics are what operators may know of who reads entries.
func (s *Store) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.unsigned.metric("signature"), s.skewed.metric("clock")}
}

const keySpace = "entry:"

// historyKey is where the history stands that a service is in.
func historyKey(service string) string { return keySpace + "history/" + service }

// Bind binds what is filled from now on to the history that the service's schema is in. What was filled in another one,
// which is what it knew before it was restored from a backup, counts as none once Redis is told: here, or by a fill.
func (s *Store) Bind(ctx context.Context, service, history string) {
	s.service, s.history = service, history
	_ = s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		return r.HSet(ctx, historyKey(service), "history", history).Err()
	})
}
