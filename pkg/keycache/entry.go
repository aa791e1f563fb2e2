// Package keycache keeps, in Redis, what the gateway needs to know to let a key in: one entry for the key, one for its
// owner. Each is filled and removed by the service that owns the thing; the gateway only reads, and asks the owner
// for what is missing.
//
// docs/principals.md says why no order of events lets a revoked key in again.
package keycache

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/principal"
)

const (
	// Fresh is how long an entry is believed.
	Fresh = 5 * time.Second
	// Life is how long an entry stands in for the service that filled it, where that cannot be asked.
	Life = 5 * time.Minute
	// fillTime is how long a fill may take: its token is kept for that long.
	fillTime = 10 * time.Second
)

// Key is the entry of an API key. The zero Key says that there is none.
type Key struct {
	ID      int64           `json:"id,omitempty"`
	Owner   principal.Owner `json:"owner,omitzero"`
	Expires *time.Time      `json:"expires,omitempty"`
	// Bound is what the key can do at most, whatever its owner holds; nil: all of that.
	Bound *principal.Grants `json:"bound,omitempty"`
}

// Known tells whether there is such a key.
func (k Key) Known() bool { return k.ID != 0 }

// Owner is the entry of an account that keys belong to.
type Owner struct {
	Active bool             `json:"active"` // false: there is none, or it may not be used
	Name   string           `json:"name,omitempty"`
	Grants principal.Grants `json:"grants,omitempty"`
}

// Within is what o holds within a key's bound.
func (o Owner) Within(bound *principal.Grants) principal.Grants {
	if bound == nil {
		return o.Grants
	}
	return o.Grants & *bound
}

// Known tells whether there is such an account.
func (o Owner) Known() bool { return o.Active }

// Imports is the entry that says whether there are keys that were not made here.
type Imports struct {
	Any bool `json:"any"`
}

// Known is true: the answer is always worth keeping.
func (Imports) Known() bool { return true }

// Value is what an entry says.
type Value interface {
	// Known tells whether the thing exists. That it does not is kept for no longer than it is believed: anybody can
	// ask for what does not exist.
	Known() bool
}

// The names of entries, and below /internal/ the paths at which their owners fill them.

// KeyName is the entry of the key with this hash, in hexadecimal.
func KeyName(hash string) string { return "key/" + hash }

// OwnerName is the entry of an owner.
func OwnerName(o principal.Owner) string { return fmt.Sprintf("owner/%s/%d", o.Type, o.ID) }

// ImportsName is the entry about imported keys.
const ImportsName = "imports"

// kind is a name without what it names: the hash of a key belongs in no log.
func kind(name string) string {
	before, _, _ := strings.Cut(name, "/")
	return before
}

// Store is the entries.
type Store struct{ link *cache.Link }

// NewStore uses a Redis, by a client that cache.Open made.
func NewStore(client redis.UniversalClient, log *slog.Logger) *Store {
	return &Store{cache.NewLink(client, "principals", log)}
}

// Up tells whether Redis answered when it was last asked.
func (s *Store) Up() bool { return s.link.Up() }

const keySpace = "entry:"
