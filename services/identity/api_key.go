package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// APIKey is a key. Its value is in the answer that sets it alone.
type APIKey struct {
	rest.Versioned
	ID        int64           `json:"id" db:"id"`
	Name      string          `json:"name" db:"name"`
	Key       string          `json:"key,omitempty" doc:"the key's value, in the answer to the request that set it and never again"`
	Owner     KeyOwner        `json:"owner" db:"owner_"`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" db:"expires_at"`
	Networks  []string        `json:"allowed_cidrs" db:"allowed_cidrs" ext:"true" doc:"the networks that it is good from; none: all"`
	LastUsed  *rest.Timestamp `json:"last_used_at,omitempty" db:"last_used_at" recorded:"false" ext:"true" doc:"right within a few minutes, and no change of the key"`
	Bound     *[]string       `json:"bound,omitempty" db:"bound" doc:"what it can do at most, whatever its owner holds: what its maker held; left out where it has no such bound"`
}

// KeyOwner is the account that a key belongs to.
type KeyOwner struct {
	ID   int64               `json:"id" db:"id"`
	Name *string             `json:"name,omitempty" db:"name"`
	URL  string              `json:"url" db:"url"`
	Type principal.OwnerType `json:"-" db:"type"`
}

type apiKeyBody struct {
	Name      string          `json:"name" db:"name" required:"edit" example:"billing"`
	Key       secret.String   `json:"key" doc:"the value of a key made elsewhere, at least 32 characters; none: a new one is made" example:"this-is-no-key-but-the-form-of-one"`
	ExpiresAt *rest.Timestamp `json:"expires_at" db:"expires_at" future:"true" doc:"none: never, or when the calling key expires" example:"{\"iso_8601\":\"2099-12-31T00:00:00Z\",\"unix\":4102358400}"`
	Networks  []string        `json:"allowed_cidrs" db:"allowed_cidrs" ext:"true" doc:"the networks that it is good from; none: all" example:"[\"192.0.2.0/24\", \"127.0.0.0/8\"]"`
	Owner     struct {
		ID   *int64  `json:"id" also:"owner_id" min:"1" doc:"where url has none" example:"1"`
		Type *string `json:"type" also:"owner_type" ext:"true" doc:"admin, client or integration, where url has none" example:"admin"`
		URL  string  `json:"url" doc:"/admin/3, or /admin with an id; none: the caller" example:"/admin/1"`
	} `json:"owner"`
	Type *string `json:"type" ext:"true" doc:"as in owner" example:"admin"`

	Kind      string              `db:"kind"`
	OwnerType principal.OwnerType `db:"owner_type"`
	OwnerID   int64               `db:"owner_id"`
	Hash      []byte              `db:"hash"`
	Imported  bool                `db:"imported"`
	Bound     *[]string           `db:"bound"`
}

func (b *apiKeyBody) owner() principal.Owner {
	return principal.Owner{Type: b.OwnerType, ID: b.OwnerID}
}

// Resolve checks what the tags cannot say and works out the owner.
func (b *apiKeyBody) Resolve(wrong *problem.Fields) {
	b.checkNetworks(wrong)
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
	url, where := b.Owner.URL, "/owner/url"
	ofType := "/owner/type"
	if b.Type != nil {
		if b.Owner.Type != nil && *b.Owner.Type != *b.Type {
			wrong.Add("/type", "disagrees", "is not the type in owner")
		}
		b.Owner.Type, b.Type, ofType = b.Type, nil, "/type"
	}
	switch {
	case url != "":
	case b.Owner.Type != nil:
		url, where = "/"+*b.Owner.Type, ofType
	case b.Owner.ID != nil: // of the type that it is
		url = "/" + string(b.OwnerType)
	default:
		return
	}
	id := b.Owner.ID
	if id == nil && b.OwnerID > 0 { // the one that it is
		id = &b.OwnerID
	}
	if id != nil && strings.Count(url, "/") == 1 {
		url = fmt.Sprintf("%s/%d", url, *id)
	}
	switch owner, ok := principal.ParseOwner(url); {
	case !ok:
		wrong.Add(where, "invalid", "must be an owner's path, such as /admin/3, or the type of one with an id")
	case b.Owner.ID != nil && *b.Owner.ID != owner.ID:
		wrong.Add("/owner/id", "disagrees", "is not the id in the owner's url")
	case b.Owner.Type != nil && *b.Owner.Type != string(owner.Type):
		wrong.Add(ofType, "disagrees", "is not the type in the owner's url")
	default:
		b.OwnerType, b.OwnerID = owner.Type, owner.ID
		b.Owner.ID, b.Owner.Type, b.Owner.URL = nil, nil, ""
	}
}

func (s *Service) apiKeys() []rest.Route {
	current := rest.Read[rest.None, APIKey]{
		Path:      "/auth/key/current",
		Guard:     guard.AnyKey,
		Name:      "getCurrentAPIKey",
		Summary:   "View the key of this request",
		Extension: true,
		Do:        s.currentKey,
	}
	return slices.Concat([]rest.Route{current, s.keyLists()}, s.keyRequests(), rest.Resource[APIKey, apiKeyBody]{
		DB:      s.db,
		Path:    "/auth/key",
		ID:      "key_id",
		Noun:    "API key",
		Guard:   guard.AnyKey,
		Scope:   readableKeys,
		Without: rest.Creating | rest.Listing,
		Table:   "api_key",
		View:    "api_key_view",
		Edited:  `{"name": "shop"}`,
		Lock:    func(ctx context.Context, tx *pg.Tx, _ ...*apiKeyBody) error { return allow(ctx, tx) },
		Check:   s.checkKey,
		Delete:  s.deleteKey,
		Reveal:  func(key *APIKey, b *apiKeyBody) { key.Key = b.Key.Reveal() },
	}.Routes())
}

func (s *Service) currentKey(ctx context.Context, _ rest.None) (APIKey, error) {
	return keyView.Get(ctx, s.db, principal.From(ctx).Principal.KeyID)
}

var keyView = pg.NewView[APIKey]("api_key_view")

// readableKeys are the caller's own, and those of owners whose permission the caller may read. They are written so that a
// list of one owner's keys, and one of all keys, finds them in order.
func readableKeys(ctx context.Context) []pg.Condition {
	return append(readableOwners(ctx), pg.Condition{SQL: "kind <> 'acting'"})
}

func readableOwners(ctx context.Context) []pg.Condition {
	caller := principal.From(ctx).Principal
	types := []principal.OwnerType{principal.Admin, principal.Client, principal.Integration}
	readable := slices.DeleteFunc(
		slices.Clone(types),
		func(t principal.OwnerType) bool { return !caller.May(permissionOver(t), permission.Read) },
	)
	own := pg.Condition{SQL: "owner_type = $1 AND owner_id = $2", Args: []any{caller.Owner.Type, caller.Owner.ID}}
	switch len(readable) {
	case 0:
		return []pg.Condition{own}
	case len(types):
		return nil
	default:
		return []pg.Condition{{SQL: own.SQL + " OR owner_type = ANY($3)", Args: append(own.Args, readable)}}
	}
}

func (s *Service) mayCreateKey(ctx context.Context, tx *pg.Tx, b *apiKeyBody) error {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return err
	}
	b.belongTo(c.owner)
	if err := s.mayOwn(ctx, tx, c, b.owner()); err != nil {
		return err
	}
	return c.mayImport(b)
}

// belongTo says whose key it is where the body does not.
func (b *apiKeyBody) belongTo(owner principal.Owner) {
	if b.OwnerType == "" {
		b.OwnerType, b.OwnerID = owner.Type, owner.ID
		b.Owner.ID, b.Owner.URL = nil, ""
	}
}

// mayImport tells whether the caller may bring a value along: an installation with such keys looks more of them up.
func (c caller) mayImport(body *apiKeyBody) error {
	if needed := permissionOver(body.owner().Type); !body.Key.IsZero() && !c.grants.Holds(principal.Grant(needed, permission.Write)) {
		return problem.New(problem.Forbidden, "The key lacks %s write, without which none can be brought along.", needed)
	}
	return nil
}

// checkKey looks whether the caller may make or edit this key, and works out what else is written of it.
func (s *Service) checkKey(ctx context.Context, tx *pg.Tx, _ int64, before, b *apiKeyBody) error {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return err
	}
	if before == nil {
		err = s.checkNewKey(ctx, tx, c, b)
	} else {
		err = s.checkEditedKey(ctx, tx, c, before, b)
	}
	if err != nil || b.Key.IsZero() {
		return err
	}
	hash := apikey.Hash(b.Key.Reveal())
	b.Hash, b.Imported = hash[:], apikey.FormatOf(b.Key.Reveal()) == apikey.Imported
	return nil
}

func (s *Service) checkNewKey(ctx context.Context, tx *pg.Tx, c caller, b *apiKeyBody) error {
	b.belongTo(c.owner)
	b.Kind = lasting
	if b.ExpiresAt == nil && c.expires != nil {
		b.ExpiresAt = &rest.Timestamp{Time: *c.expires}
	}
	if err := c.mayLast(b.ExpiresAt); err != nil {
		return err
	}
	if err := c.mayComeFrom(b); err != nil {
		return err
	}
	if err := s.tellLater(ctx, tx, told{Owner: b.owner(), Changes: []string{fmt.Sprintf("An API key was made: %q.", b.Name)}}); err != nil {
		return err
	}
	b.Bound = boundNames(c.boundOf(nil, b.owner(), true))
	if b.Key.IsZero() {
		b.Key = apikey.New()
	} else {
		s.revoke(tx, announced(b.Key)...)
	}
	return s.mayHaveAnother(ctx, tx, b.owner())
}

func (s *Service) checkEditedKey(ctx context.Context, tx *pg.Tx, c caller, before, b *apiKeyBody) error {
	if err := s.mayWriteKeys(ctx, tx, c, before.owner()); err != nil {
		return err
	}
	if before.Kind != lasting {
		return problem.New(problem.Forbidden, "A session's key is not edited: it is renewed or deleted.")
	}
	moved := b.owner() != before.owner()
	if moved {
		if err := s.mayOwn(ctx, tx, c, b.owner()); err != nil {
			return err
		}
		if err := s.mayHaveAnother(ctx, tx, b.owner()); err != nil {
			return err
		}
	}
	gives := moved || !b.Key.IsZero() // an account a key that it did not have
	if gives || !sameMoment(b.ExpiresAt, before.ExpiresAt) {
		if err := c.mayLast(b.ExpiresAt); err != nil {
			return err
		}
	}
	if gives || !slices.Equal(b.Networks, before.Networks) {
		if err := c.mayComeFrom(b); err != nil {
			return err
		}
	}
	b.Bound = before.Bound
	was := parseBound(before.Bound)
	if is := c.boundOf(was, b.owner(), gives); was == nil || *is != *was { // else it keeps what only a newer version knows
		b.Bound = boundNames(is)
	}
	// The gateways forget what they believe of it: by its value as it was, and as it is.
	s.revoke(tx, append(announced(b.Key), keyName(before.Hash))...)
	return c.mayImport(b)
}

func sameMoment(a, b *rest.Timestamp) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b.Time)
}

func (s *Service) deleteKey(ctx context.Context, tx *pg.Tx, key *APIKey) error {
	c, err := callerOf(ctx, tx)
	if err != nil {
		return err
	}
	if err := s.mayWriteKeys(ctx, tx, c, principal.Owner{Type: key.Owner.Type, ID: key.Owner.ID}); err != nil {
		return err
	}
	ended, err := endKeys(ctx, tx, "id = $1", key.ID)
	s.revoke(tx, ended...)
	return err
}

// announced are the entries of a value that was no key so far, if it is one.
func announced(value secret.String) []string {
	if value.IsZero() {
		return nil
	}
	hash := apikey.Hash(value.Reveal())
	names := []string{keyName(hash[:])}
	if apikey.FormatOf(value.Reveal()) == apikey.Imported {
		names = append(names, keycache.ImportsName)
	}
	return names
}

// ownerPointer is where a body names an owner.
const ownerPointer = "/owner/url"

// mayOwn tells whether the caller may make a key for this owner, and keeps the owner there until it is made.
func (s *Service) mayOwn(ctx context.Context, tx *pg.Tx, c caller, owner principal.Owner) error {
	if c.owner == owner {
		return nil
	}
	if !mayRead(ctx, owner) {
		return problem.New(problem.Forbidden, "The key lacks %s write.", permissionOver(owner.Type))
	}
	if err := s.holdOwner(ctx, tx, owner); err != nil {
		return err
	}
	return s.mayWrite(ctx, tx, c, owner)
}

// holdOwner makes sure that there is such an owner, who does not go before the unit of work has ended.
func (s *Service) holdOwner(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	switch owner.Type {
	case principal.Admin:
		exists := false
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin WHERE id = $1)", owner.ID).Scan(&exists); err != nil {
			return fmt.Errorf("look for %s: %w", owner.URL(), err)
		}
		if exists {
			return nil
		}
	case principal.Integration:
		return s.integrations.Hold(ctx, tx, owner.ID, ownerPointer)
	case principal.Client:
		return s.clients.Hold(ctx, tx, owner.ID, ownerPointer)
	}
	return problem.Member(ownerPointer, "not_found", "names something that does not exist")
}

// mayRead tells whether the caller may know of the keys of this owner.
func mayRead(ctx context.Context, owner principal.Owner) bool {
	caller := principal.From(ctx).Principal
	return caller.Owner == owner || caller.May(permissionOver(owner.Type), permission.Read)
}

// insertKey makes a key without a caller: on the command line.
func insertKey(ctx context.Context, tx *pg.Tx, name string, value secret.String, owner principal.Owner) error {
	hash := apikey.Hash(value.Reveal())
	var id int64
	err := tx.QueryRow(ctx, "INSERT INTO api_key (name, owner_type, owner_id, hash) VALUES ($1, $2, $3, $4) RETURNING id", name, owner.Type, owner.ID, hash[:]).
		Scan(&id)
	if err != nil {
		return fmt.Errorf("create an API key: %w", err)
	}
	key, err := keyView.Get(ctx, tx, id)
	if err != nil {
		return fmt.Errorf("read API key %d after it was created: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "auth.key", Action: pg.Created, After: secret.Marked(key, "key"),
		Targets: []pg.Target{keyTarget(&key)}})
	return nil
}

// deleteKeysOf deletes the keys of an account that is gone, and what else is kept of it.
func (s *Service) deleteKeysOf(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	rows, err := tx.Query(
		ctx,
		"SELECT id, version, name FROM api_key WHERE owner_type = $1 AND owner_id = $2 AND kind <> 'acting'",
		owner.Type,
		owner.ID,
	)
	if err != nil {
		return fmt.Errorf("read the keys of %s: %w", owner.URL(), err)
	}
	deleted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, Version int64
		Name        string
	}])
	if err != nil {
		return fmt.Errorf("read the keys of %s: %w", owner.URL(), err)
	}
	for _, key := range deleted {
		tx.Record(
			pg.Record{
				Kind:    "auth.key",
				Action:  pg.Deleted,
				Targets: []pg.Target{{Type: "auth/key", Noun: "API key", ID: key.ID, Name: key.Name, Version: key.Version}},
				Before:  APIKey{ID: key.ID, Name: key.Name, Owner: KeyOwner{ID: owner.ID, URL: owner.URL()}},
			},
		)
	}
	names, err := endAccount(ctx, tx, owner)
	if len(names) > 0 {
		s.revoke(tx, names...)
	}
	return err
}

// endAccount deletes what is kept of an account that is gone, and answers the names of the entries that end.
func endAccount(ctx context.Context, tx *pg.Tx, owner principal.Owner) (names []string, err error) {
	if names, err = endKeys(ctx, tx, "owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return nil, err
	}
	if err = endLinks(ctx, tx, owner); err != nil {
		return nil, err
	}
	if _, err = tx.Exec(ctx, "DELETE FROM signed_in_from WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return nil, fmt.Errorf("forget where %s signed in: %w", owner.URL(), err)
	}
	_, err = endSecondFactors(ctx, tx, owner)
	return names, err
}
