// Package keycache keeps in Redis what the gateway needs to admit a key: one entry for the key and one for its owner.
// The service that owns an item fills and removes its entry. The gateway only reads, and asks the owner for missing
// entries. Entries are signed, so write access to Redis is not enough to forge one.
//
// docs/understand/principals.md explains why no order of events lets a revoked key in again.
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
	// FreshTTL is how long an entry is trusted.
	FreshTTL = 5 * time.Second
	// MaxAge is how old an entry may be that replaces a service's response while the service cannot be reached.
	MaxAge = 5 * time.Minute
	// fillTimeout is how long a fill may take. Its token lives that long.
	fillTimeout = 10 * time.Second
)

// Purpose is the purpose of the key that signs entries. Only gateways and services that fill entries have it.
var Purpose = seal.Signing("keycache", "entries")

// Key is the entry of an API key. The zero Key means that the key does not exist.
//
// A reader ignores members that it does not know. So a new member that restricts a key may be written only when all
// gateways know it: gateways are upgraded before the services that fill it.
type Key struct {
	ID      int64             `json:"id,omitempty"`
	Owner   principal.Owner   `json:"owner,omitzero"`
	Expires *time.Time        `json:"expires,omitempty"`
	Bound   *principal.Grants `json:"bound,omitempty"` // what the key may do at most; nil: all that its owner may
	// Actor is the account that started an acting session. The key is valid only while the actor has the right to act.
	Actor principal.Owner `json:"actor,omitzero"`
	// SignedIn is when the login was that began the key's session. Credentials is the version of the account's
	// credentials at that time.
	SignedIn    time.Time `json:"signed_in,omitzero"`
	Credentials int64     `json:"credentials,omitempty"`
	// Maker is the integration that made the key for its client, or the key that a session was made with. The key is valid only
	// while that client belongs to the integration. 0: somebody else made it.
	Maker int64 `json:"maker,omitempty"`
	// Networks are the networks from which the key can be used; none means all.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// Exists tells whether the key exists.
func (k Key) Exists() bool { return k.ID != 0 }

// Owner is the entry of an account that keys belong to.
type Owner struct {
	Active bool             `json:"active"` // false: the account does not exist or is disabled
	Name   string           `json:"name,omitempty"`
	Grants principal.Grants `json:"grants,omitempty"`
	// Credentials counts changes of address and password. Kept is the key that made the last one: of all older
	// sessions, only that key's goes on.
	Credentials int64 `json:"credentials,omitempty"`
	Kept        int64 `json:"kept,omitempty"`
	// Integration is the one that a client belongs to, or 0. nil: a clients service of an earlier version does not say.
	Integration *int64 `json:"integration,omitempty"`
	// Above are the clients that reach this one by sub links. Only they can act for it.
	Above []int64 `json:"above,omitempty"`
}

// Within returns the owner's grants within a key's bound.
func (o Owner) Within(bound *principal.Grants) principal.Grants {
	if bound == nil {
		return o.Grants
	}
	return o.Grants & *bound
}

// Exists tells whether the account exists and is enabled.
func (o Owner) Exists() bool { return o.Active }

// Imports is the entry that tells whether there are imported keys, which other systems issued.
type Imports struct {
	Any bool `json:"any"`
}

// Exists returns true: the response is always worth keeping.
func (Imports) Exists() bool { return true }

// Value is the content of an entry.
type Value interface {
	// Exists tells whether the item exists. An entry of a missing item lives only for FreshTTL, because anybody can ask
	// for items that do not exist.
	Exists() bool
}

// The names of entries. Their owners fill them at the same paths below /internal/.

// KeyName returns the name of a key's entry by the key's hash, in hexadecimal.
func KeyName(hash string) string { return "key/" + hash }

// OwnerName returns the name of an owner's entry.
func OwnerName(o principal.Owner) string { return fmt.Sprintf("owner/%s/%d", o.Type, o.ID) }

// Revoked is the topic by which a service wakes gateways when it removes entries.
const Revoked = "revoked"

// UsagePath is where gateways report to identity which keys were used.
const UsagePath = "/internal/key-uses"

// ImportsName is the name of the entry Imports.
const ImportsName = "imports"

// kindOf returns the first part of an entry's name. The rest may be the hash of a key, which belongs in no log.
func kindOf(name string) string {
	before, _, _ := strings.Cut(name, "/")
	return before
}

// Store reads, fills and removes entries.
type Store struct {
	service  string // the service that fills entries, and its history
	history  string
	link     *cache.Link
	signer   *seal.Signer
	unsigned *distrust
	skewed   *distrust
}

// NewStore returns a store that uses a client of cache.Open. The signer must have the purpose Purpose.
func NewStore(client *cache.Client, signer *seal.Signer, log *slog.Logger) *Store {
	return &Store{
		link: cache.NewLink(client, "principals", log), signer: signer,
		unsigned: &distrust{log: log, warning: "entry in Redis has an invalid signature and is ignored"},
		skewed:   &distrust{log: log, warning: "clock of Redis differs by more than a minute: entries are ignored"},
	}
}

// IsUp tells whether the last request to Redis succeeded.
func (s *Store) IsUp() bool { return s.link.IsUp() }

// Metrics returns the metrics of a store that reads entries.
func (s *Store) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.unsigned.metric("signature"), s.skewed.metric("clock")}
}

const keySpace = "entry:"

// historyKey returns the key under which Redis has a service's history.
func historyKey(service string) string { return keySpace + "history/" + service }

// Bind sets the service and the history of its schema for all later fills. Entries that were filled in another history,
// before a restore from a backup, are ignored as soon as Redis has the new one: from here, or from the next fill.
func (s *Store) Bind(ctx context.Context, service, history string) {
	s.service, s.history = service, history
	_ = s.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		return r.HSet(ctx, historyKey(service), "history", history).Err()
	})
}
