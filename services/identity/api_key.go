package identity

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/apikey"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/keycache"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// APIKey is a key, without its value.
type APIKey struct {
	rest.Versioned
	ID        int64           `json:"id" db:"id"`
	Name      string          `json:"name" db:"name"`
	Owner     KeyOwner        `json:"owner" db:"owner_"`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at"`
}

// KeyOwner is the account that a key belongs to.
type KeyOwner struct {
	ID   int64               `json:"id" db:"id"`
	Name *string             `json:"name,omitempty" db:"name"`
	URL  string              `json:"url" db:"url"`
	Type principal.OwnerType `json:"-" db:"type"`
}

func (k *APIKey) owner() principal.Owner { return principal.Owner{Type: k.Owner.Type, ID: k.Owner.ID} }

// ShownKey is a key in the one answer that shows its value.
type ShownKey struct {
	APIKey
	Key string `json:"key,omitempty" doc:"the key's value, in the answer to the request that set it and never again"`
}

type apiKeyBody struct {
	Name      string          `json:"name" db:"name" required:"create,edit" example:"billing"`
	Key       secret.String   `json:"key" doc:"the value of a key made elsewhere, at least 32 characters; none: a new one is made" example:"this-is-no-key-but-the-form-of-one"`
	ExpiresAt *rest.Timestamp `json:"expires_at" db:"expires_at" doc:"none: never" example:"{\"iso_8601\":\"2099-12-31T00:00:00Z\",\"unix\":4102358400}"`
	Owner     struct {
		ID  *int64 `json:"id" min:"1" doc:"where url has none" example:"1"`
		URL string `json:"url" doc:"/admin/3, or /admin with an id; none: the caller" example:"/admin/1"`
	} `json:"owner"`

	owner principal.Owner
	bound bound
}

// Resolve checks what the tags cannot say and works out the owner.
func (b *apiKeyBody) Resolve(wrong *problem.Fields) {
	if text := b.Key.Reveal(); text != "" {
		switch {
		case len(text) < apikey.ShortestImport:
			wrong.Add("/key", "too_short", "must have at least %d characters", apikey.ShortestImport)
		case len(text) > apikey.Longest || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
			wrong.Add("/key", "invalid", "can have at most %d printable ASCII characters and no space", apikey.Longest)
		case apikey.FormatOf(text) == apikey.Broken:
			wrong.Add("/key", "checksum", "starts like a key of this installation, and its checksum is wrong")
		}
	}
	if b.ExpiresAt != nil && !b.ExpiresAt.After(time.Now()) {
		wrong.Add("/expires_at", "out_of_range", "must be in the future")
	}
	url := b.Owner.URL
	if url == "" && b.Owner.ID == nil {
		return
	}
	if id := b.Owner.ID; id != nil && strings.Count(url, "/") == 1 {
		url = fmt.Sprintf("%s/%d", url, *id)
	}
	switch owner, ok := principal.ParseOwner(url); {
	case !ok:
		wrong.Add("/owner/url", "invalid", "must be an owner's path, such as /admin/3")
	case b.Owner.ID != nil && *b.Owner.ID != owner.ID:
		wrong.Add("/owner/id", "disagrees", "is not the id in the owner's url")
	default:
		b.owner = owner
	}
}

var keyView = pg.NewView[APIKey]("api_key_view")

func (s *Service) apiKeys() []rest.Route {
	const collection, item = "/auth/key", "/auth/key/{key_id}"
	return []rest.Route{
		rest.List[rest.None, APIKey]{Path: collection, Guard: principal.AnyKey, Summary: "List one's own API keys, and those that one may read",
			DB: s.db, View: keyView, Where: readableKeys,
			By: rest.By{Search: rest.SearchText, Sorts: []string{"name"}, Filters: map[string]string{"owner": "owner_url"}}},
		rest.Mutation[rest.NewItem[apiKeyBody], ShownKey]{Method: http.MethodPost, Path: collection, Guard: principal.AnyKey, Summary: "Create an API key",
			Effect: rest.Effect{Logs: rest.LogsItem, Again: rest.AgainAnother, Shows: item}, Example: `{"name": "billing"}`,
			Allow: mayCreateKey, Do: s.createKey},
		rest.Read[rest.None, APIKey]{Path: "/auth/key/current", Guard: principal.AnyKey, Summary: "View the key of this request", Extension: true,
			Do: func(ctx context.Context, _ rest.None) (APIKey, error) {
				return keyView.Get(ctx, s.db, principal.From(ctx).Principal.KeyID)
			}},
		rest.Read[rest.Item, APIKey]{Path: item, Guard: principal.AnyKey, Summary: "View an API key",
			Do: func(ctx context.Context, req rest.Item) (APIKey, error) {
				key, err := keyView.Get(ctx, s.db, req.ID)
				if err == nil && !mayRead(ctx, key.owner()) {
					return APIKey{}, pgx.ErrNoRows
				}
				return key, err
			}},
		rest.Mutation[rest.EditItem[apiKeyBody], ShownKey]{Method: http.MethodPatch, Path: item, Guard: principal.AnyKey, Summary: "Edit an API key",
			Effect: rest.Effect{Logs: rest.LogsItem, Again: rest.AgainSame, Shows: item}, Example: `{"name": "shop"}`,
			Allow: allowed[rest.EditItem[apiKeyBody]], Do: s.editKey},
		rest.Mutation[rest.DeleteItem, rest.Message]{Method: http.MethodDelete, Path: item, Guard: principal.AnyKey, Summary: "Delete an API key",
			Effect: rest.Effect{Logs: rest.LogsItem, Again: rest.AgainRefused}, Allow: allowed[rest.DeleteItem], Do: s.deleteKey},
	}
}

// mayRead tells whether the caller may know of the keys of this owner.
func mayRead(ctx context.Context, owner principal.Owner) bool {
	caller := principal.From(ctx).Principal
	return caller.Owner == owner || caller.May(owner.Type.Permission(), principal.Read)
}

// readableKeys are written so that a list of one owner's keys, and one of all keys, finds them in order.
func readableKeys(ctx context.Context, _ rest.None) ([]pg.Condition, error) {
	caller := principal.From(ctx).Principal
	types := []principal.OwnerType{principal.Admin, principal.Client, principal.Integration}
	readable := slices.DeleteFunc(slices.Clone(types), func(t principal.OwnerType) bool { return !caller.May(t.Permission(), principal.Read) })
	own := pg.Condition{SQL: "owner_type = $1 AND owner_id = $2", Args: []any{caller.Owner.Type, caller.Owner.ID}}
	switch len(readable) {
	case 0:
		return []pg.Condition{own}, nil
	case len(types):
		return nil, nil
	default:
		return []pg.Condition{{SQL: own.SQL + " OR owner_type = ANY($3)", Args: append(own.Args, readable)}}, nil
	}
}

// newKey is the key that a request asks for; its owner is the caller where it names none.
func newKey(ctx context.Context, req rest.NewItem[apiKeyBody]) (*apiKeyBody, error) {
	body, err := req.Body.New()
	if body.owner == (principal.Owner{}) {
		body.owner = principal.From(ctx).Principal.Owner
	}
	return body, err
}

func mayCreateKey(ctx context.Context, tx *pg.Tx, req rest.NewItem[apiKeyBody]) error {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return err
	}
	body, _ := newKey(ctx, req) // what is wrong with it is said where there is no earlier answer
	if err := c.mayOwn(ctx, tx, body.owner); err != nil {
		return err
	}
	return c.mayImport(body)
}

// mayImport tells whether the caller may bring a value along: an installation with such keys looks more of them up.
func (c caller) mayImport(body *apiKeyBody) error {
	if permission := body.owner.Type.Permission(); !body.Key.IsZero() && !c.grants.Holds(permission.Grant(principal.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write, without which none can be brought along.", permission)
	}
	return nil
}

func (s *Service) createKey(ctx context.Context, tx *pg.Tx, req rest.NewItem[apiKeyBody]) (ShownKey, error) {
	body, err := newKey(ctx, req)
	if err != nil {
		return ShownKey{}, err
	}
	c, err := callerOf(ctx, tx)
	if err != nil {
		return ShownKey{}, err
	}
	if body.ExpiresAt == nil && c.expires != nil {
		body.ExpiresAt = &rest.Timestamp{Time: *c.expires}
	}
	if err := c.mayLast(body.ExpiresAt); err != nil {
		return ShownKey{}, err
	}
	if err := s.mayHaveAnother(ctx, tx, body.owner); err != nil {
		return ShownKey{}, err
	}
	body.bound = c.boundOf(nil, body.owner, true)
	if body.Key.IsZero() {
		body.Key = apikey.New()
	} else {
		s.revoke(tx, announced(body.Key)...)
	}
	return insertKey(ctx, tx, body)
}

// announced are the entries of a value that was no key so far.
func announced(value secret.String) []string {
	hash := apikey.Hash(value.Reveal())
	names := []string{keyName(hash[:])}
	if apikey.FormatOf(value.Reveal()) == apikey.Imported {
		names = append(names, keycache.ImportsName)
	}
	return names
}

// insertKey writes a new key, records it, and shows its value.
func insertKey(ctx context.Context, tx *pg.Tx, body *apiKeyBody) (ShownKey, error) {
	value := body.Key.Reveal()
	hash := apikey.Hash(value)
	var id int64
	err := tx.QueryRow(ctx, "INSERT INTO api_key (name, hash, imported, owner_type, owner_id, expires_at, bound) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id",
		body.Name, hash[:], apikey.FormatOf(value) == apikey.Imported, body.owner.Type, body.owner.ID, body.ExpiresAt, boundNames(body.bound)).Scan(&id)
	if err != nil {
		return ShownKey{}, fmt.Errorf("create an API key: %w", err)
	}
	key, err := keyView.Get(ctx, tx, id)
	if err != nil {
		return ShownKey{}, fmt.Errorf("read API key %d after it was created: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Created, Targets: key.targets(), After: secret.Marked(recordedKey{key, body.bound}, "key")})
	return ShownKey{key, value}, nil
}

// recordedKey is a key as the log has it.
type recordedKey struct {
	APIKey
	Bound bound `json:"bound,omitempty"`
}

func (k *APIKey) targets() []pg.Target {
	return []pg.Target{{Type: "auth/key", Noun: "API key", ID: k.ID, Name: k.Name}}
}

// mayOwn tells whether the caller may make a key for this owner. Accounts of clients and integrations are not there
// yet, so nobody of that kind exists but the caller.
func (c caller) mayOwn(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	if c.owner == owner {
		return nil
	}
	exists := false
	if owner.Type == principal.Admin {
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin WHERE id = $1)", owner.ID).Scan(&exists); err != nil {
			return fmt.Errorf("look for %s: %w", owner.URL(), err)
		}
	}
	if !exists {
		if !mayRead(ctx, owner) {
			return problem.New(problem.Forbidden, "The key lacks %s write.", owner.Type.Permission())
		}
		return problem.Member("/owner/url", "not_found", "names something that does not exist")
	}
	return c.mayWrite(ctx, tx, owner)
}

// heldKey is a key that is being written to.
type heldKey struct {
	recordedKey
	hash []byte
}

// holdKey reads a key that the caller may write to, and keeps other writers off it.
func (c caller) holdKey(ctx context.Context, tx *pg.Tx, id int64, match rest.IfMatch) (key heldKey, err error) {
	var limits *[]string
	if err := tx.QueryRow(ctx, "SELECT hash, bound FROM api_key WHERE id = $1 FOR UPDATE", id).Scan(&key.hash, &limits); err != nil {
		return key, err
	}
	key.Bound = parseBound(limits)
	if key.APIKey, err = keyView.Get(ctx, tx, id); err != nil {
		return key, err
	}
	if !mayRead(ctx, key.owner()) {
		return key, pgx.ErrNoRows
	}
	if err := c.mayWriteKeys(ctx, tx, key.owner()); err != nil {
		return key, err
	}
	return key, match.Check(key.Version)
}

func (s *Service) editKey(ctx context.Context, tx *pg.Tx, req rest.EditItem[apiKeyBody]) (ShownKey, error) {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return ShownKey{}, err
	}
	before, err := c.holdKey(ctx, tx, req.ID, req.Match)
	if err != nil {
		return ShownKey{}, err
	}
	body, err := req.Body.Over(&apiKeyBody{Name: before.Name}) // an expiry that is not sent may be past, and stays
	if err != nil {
		return ShownKey{}, err
	}
	if !req.Body.Sent("/expires_at") {
		body.ExpiresAt = before.ExpiresAt
	}
	if body.owner == (principal.Owner{}) {
		body.owner = before.owner()
	}
	if err := s.mayEditKey(ctx, tx, c, before, body); err != nil {
		return ShownKey{}, err
	}
	body.bound = c.boundOf(before.Bound, body.owner, body.gives(before))
	hash, imported, stale := before.hash, false, []string{keyName(before.hash)}
	if !body.Key.IsZero() {
		sum := apikey.Hash(body.Key.Reveal())
		hash, imported = sum[:], apikey.FormatOf(body.Key.Reveal()) == apikey.Imported
		stale = append(stale, announced(body.Key)...)
	}
	_, err = tx.Exec(ctx, `
		UPDATE api_key SET version = version + 1, name = $2, owner_type = $3, owner_id = $4, expires_at = $5, bound = $6,
			hash = $7, imported = CASE WHEN $7 = hash THEN imported ELSE $8 END
		WHERE id = $1`,
		req.ID, body.Name, body.owner.Type, body.owner.ID, body.ExpiresAt, boundNames(body.bound), hash, imported)
	if err != nil {
		return ShownKey{}, fmt.Errorf("edit API key %d: %w", req.ID, err)
	}
	after, err := keyView.Get(ctx, tx, req.ID)
	if err != nil {
		return ShownKey{}, fmt.Errorf("read API key %d after it was edited: %w", req.ID, err)
	}
	s.revoke(tx, stale...)
	was, is := req.Body.Secrets(body, body)
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Edited, Targets: after.targets(),
		Before: secret.Marked(before.recordedKey, was...), After: secret.Marked(recordedKey{after, body.bound}, is...)})
	return ShownKey{after, body.Key.Reveal()}, nil
}

// gives tells whether an edit gives an account a key that it did not have: by another value, or by another owner.
func (b *apiKeyBody) gives(before heldKey) bool { return !b.Key.IsZero() || b.owner != before.owner() }

func sameMoment(a, b *rest.Timestamp) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b.Time)
}

func (s *Service) mayEditKey(ctx context.Context, tx *pg.Tx, c caller, before heldKey, body *apiKeyBody) error {
	if body.owner != before.owner() {
		if err := c.mayOwn(ctx, tx, body.owner); err != nil {
			return err
		}
		if err := s.mayHaveAnother(ctx, tx, body.owner); err != nil {
			return err
		}
	}
	if body.gives(before) || !sameMoment(body.ExpiresAt, before.ExpiresAt) {
		if err := c.mayLast(body.ExpiresAt); err != nil {
			return err
		}
	}
	return c.mayImport(body)
}

func (s *Service) deleteKey(ctx context.Context, tx *pg.Tx, req rest.DeleteItem) (rest.Message, error) {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return rest.Message{}, err
	}
	before, err := c.holdKey(ctx, tx, req.ID, req.Match)
	if err != nil {
		return rest.Message{}, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM api_key WHERE id = $1", req.ID); err != nil {
		return rest.Message{}, fmt.Errorf("delete API key %d: %w", req.ID, err)
	}
	s.revoke(tx, keyName(before.hash))
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Deleted, Targets: before.targets(), Before: before.recordedKey})
	return rest.Deleted("API key", req.ID), nil
}

func keyHashes(ctx context.Context, tx *pg.Tx, owner principal.Owner) ([][]byte, error) {
	rows, err := tx.Query(ctx, "SELECT hash FROM api_key WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID)
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s: %w", owner.URL(), err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]byte])
}
