// Package keys manages API keys: it decides who may create and edit them, answers gateways that look them up, and ends them
// together with all other credentials of an account.
package keys

import (
	"context"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/person"
)

// Service answers requests about API keys.
type Service struct {
	DB       *pg.DB
	Entries  *keycache.Store
	Settings *settings.Follower
	Rules    *access.Rules
	People   *person.Directory
}

// The kinds of keys.
const (
	Lasting = "lasting"
	Login   = "login"  // a session that a login began
	Acting  = "acting" // a session that acts for an account, or that a link began
)

// APIKey is a key. Only the response to the request that sets its value has the value.
type APIKey struct {
	rest.Versioned
	ID              int64           `json:"id" db:"id"`
	Name            string          `json:"name" db:"name"`
	Key             string          `json:"key,omitempty" doc:"The key's value. Only the response to the request that sets it has it."`
	Owner           KeyOwner        `json:"owner" db:"owner_"`
	ExpiresAt       *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at"`
	Networks        []string        `json:"allowed_cidrs" db:"allowed_cidrs" ext:"true" doc:"The networks that the key may be used from. Empty: from anywhere."`
	SessionNetworks []string        `json:"session_cidrs" db:"session_cidrs" ext:"true" doc:"The networks that sessions may be used from that the key begins for other accounts. Empty: the key's own networks. A session that begins by a link may be used only from the network that begins it."`
	LastUsed        *rest.Timestamp `json:"last_used_at,omitempty" db:"last_used_at" recorded:"false" ext:"true" doc:"When the key was last used, accurate to a few minutes. It does not count as a change of the key."`
	Bound           *[]string       `json:"bound,omitempty" db:"bound" doc:"The permissions that the key has at most, whatever its owner holds. Left out if the key has all of its owner's."`
}

// KeyOwner is the account that a key belongs to.
type KeyOwner struct {
	ID   int64               `json:"id" db:"id"`
	Name *string             `json:"name,omitempty" db:"name"`
	URL  string              `json:"url" db:"url"`
	Type principal.OwnerType `json:"-" db:"type"`
}

// View reads keys.
var View = pg.NewView[APIKey]("api_key_view")

// Target returns a key as the target of a record.
func Target(key *APIKey) pg.Target {
	return pg.Target{Type: "auth/key", Noun: "API key", ID: key.ID, Name: key.Name, Version: key.Version}
}

// Body is the body by which a key is created or edited.
type Body struct {
	Name            string          `json:"name" db:"name" required:"edit" example:"billing"`
	Key             secret.String   `json:"key" doc:"The value of a key from another system, at least 32 characters. Left out: a new value is created." example:"this-is-no-key-but-the-form-of-one"`
	ExpiresAt       *rest.Timestamp `json:"expires_at" db:"expires_at" future:"true" doc:"When the key expires. Left out: never, or together with the calling key." example:"{\"iso_8601\":\"2099-12-31T00:00:00Z\",\"unix\":4102358400}"`
	Networks        []string        `json:"allowed_cidrs" db:"allowed_cidrs" ext:"true" doc:"The networks that the key may be used from. Empty: from anywhere." example:"[\"192.0.2.0/24\", \"127.0.0.0/8\"]"`
	SessionNetworks []string        `json:"session_cidrs" db:"session_cidrs" ext:"true" doc:"The networks that sessions may be used from that the key begins for other accounts. Empty: the key's own networks. A session that begins by a link may be used only from the network that begins it." example:"[\"0.0.0.0/0\", \"::/0\"]"`
	Owner           struct {
		ID   *int64  `json:"id" alias:"owner_id" min:"1" doc:"The owner's id, unless url has it." example:"1"`
		Type *string `json:"type" alias:"owner_type" ext:"true" doc:"admin, client or integration, where url has none" example:"admin"`
		URL  string  `json:"url" doc:"The owner's path, such as /admin/3, or /admin with an id. Left out: the caller." example:"/admin/1"`
	} `json:"owner"`
	Type *string `json:"type" ext:"true" doc:"as in owner" example:"admin"`

	Kind      string              `db:"kind"`
	OwnerType principal.OwnerType `db:"owner_type"`
	OwnerID   int64               `db:"owner_id"`
	Hash      []byte              `db:"hash"`
	Imported  bool                `db:"imported"`
	Bound     *[]string           `db:"bound"`
	Maker     *int64              `db:"maker_id"`
}

// Account returns the key's owner.
func (b *Body) Account() principal.Owner {
	return principal.Owner{Type: b.OwnerType, ID: b.OwnerID}
}

// setDefaultOwner sets the key's owner if the body names none.
func (b *Body) setDefaultOwner(owner principal.Owner) {
	if b.OwnerType == "" {
		b.OwnerType, b.OwnerID = owner.Type, owner.ID
		b.Owner.ID, b.Owner.URL = nil, ""
	}
}

// Resolve checks what the tags cannot express, and determines the owner.
func (b *Body) Resolve(invalid *problem.Fields) {
	b.Networks = checkNetworks("/allowed_cidrs", b.Networks, invalid)
	b.SessionNetworks = checkNetworks("/session_cidrs", b.SessionNetworks, invalid)
	if text := b.Key.Reveal(); text != "" {
		switch {
		case len(text) < apikey.MinImportLength:
			invalid.Add("/key", "too_short", "must have at least %d characters", apikey.MinImportLength)
		case len(text) > apikey.MaxLength || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
			invalid.Add("/key", "invalid", "can have at most %d printable ASCII characters and no space", apikey.MaxLength)
		case apikey.DetectFormat(text) == apikey.Broken:
			invalid.Add("/key", "checksum", "looks like a key of this installation, but its checksum is wrong")
		}
	}
	url, urlPointer := b.Owner.URL, "/owner/url"
	typePointer := "/owner/type"
	if b.Type != nil {
		if b.Owner.Type != nil && *b.Owner.Type != *b.Type {
			invalid.Add("/type", "disagrees", "does not match the type in owner")
		}
		b.Owner.Type, b.Type, typePointer = b.Type, nil, "/type"
	}
	switch {
	case url != "":
	case b.Owner.Type != nil:
		url, urlPointer = "/"+*b.Owner.Type, typePointer
	case b.Owner.ID != nil: // of the same type as before
		url = "/" + string(b.OwnerType)
	default:
		return
	}
	id := b.Owner.ID
	if id == nil && b.OwnerID > 0 { // the same owner as before
		id = &b.OwnerID
	}
	if id != nil && strings.Count(url, "/") == 1 {
		url = fmt.Sprintf("%s/%d", url, *id)
	}
	switch owner, ok := principal.ParseOwner(url); {
	case !ok:
		invalid.Add(urlPointer, "invalid", "must be an account's path, such as /admin/3, or an account type with an id")
	case b.Owner.ID != nil && *b.Owner.ID != owner.ID:
		invalid.Add("/owner/id", "disagrees", "does not match the id in the owner's url")
	case b.Owner.Type != nil && *b.Owner.Type != string(owner.Type):
		invalid.Add(typePointer, "disagrees", "does not match the type in the owner's url")
	default:
		b.OwnerType, b.OwnerID = owner.Type, owner.ID
		b.Owner.ID, b.Owner.Type, b.Owner.URL = nil, nil, ""
	}
}

// Routes returns the operations on keys, except the one that creates them.
func (s *Service) Routes() []rest.Route {
	current := rest.Read[rest.None, APIKey]{
		Path:      "/auth/key/current",
		Guard:     guard.AnyKey,
		Name:      "getCurrentAPIKey",
		Summary:   "View the key of this request",
		Extension: true,
		Do:        s.currentKey,
	}
	return append([]rest.Route{current, s.listRoute()}, rest.Resource[APIKey, Body]{
		Path:        "/auth/key",
		ID:          "key_id",
		Noun:        "API key",
		Guard:       guard.ForCredentials(guard.AnyKey),
		Scope:       readableKeys,
		Without:     rest.Creating | rest.Listing,
		Table:       "api_key",
		View:        "api_key_view",
		EditExample: `{"name": "shop"}`,
		Lock:        func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*Body) error { return access.Allow(ctx, tx) },
		Check:       s.Check,
		Delete:      s.deleteKey,
		Reveal:      func(key *APIKey, b *Body) { key.Key = b.Key.Reveal() },
	}.Routes()...)
}

// currentKey returns the key of the request.
func (s *Service) currentKey(ctx context.Context, _ rest.None) (APIKey, error) {
	return View.Get(ctx, s.DB, principal.FromContext(ctx).Principal.KeyID)
}
