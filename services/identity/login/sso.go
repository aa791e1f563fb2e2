package login

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/openid"
	"github.com/ironplane/ironplane/services/identity/person"
	"github.com/ironplane/ironplane/services/identity/session"
)

// maxOpenLinks bounds the unused links of a key.
const maxOpenLinks = 1000

// Links answers requests for links that sign in to a panel.
type Links struct {
	DB       *pg.DB
	Settings *settings.Follower
	Rules    *access.Rules
	People   *person.Directory
	Sessions *session.Service
	OpenID   *openid.Service
}

// linkQuery is the query of a request for a link.
type linkQuery struct {
	Owner    string `query:"owner" max:"100" doc:"The path of the account to sign in to, such as /client/5. Left out: the owner of the calling key."`
	ViewType string `query:"view_type" max:"100" doc:"The type of the item that the panel shows: the type of a target in the log, or server."`
	ViewID   int64  `query:"view_id" min:"1" doc:"The id of the item that the panel shows."`
	Embed    bool   `query:"embed" doc:"Whether the panel is embedded in another page."`
	Redirect string `query:"redirect" max:"2000" doc:"The path of the panel's page that is shown. Other hosts are refused."`
}

// check refuses values that must not be sent to a panel.
func (q *linkQuery) check() error {
	var invalid problem.Fields
	if q.Redirect != "" && !isPath(q.Redirect) {
		invalid.Add("?redirect", "invalid", "must be a path of the panel, such as /servers/7")
	}
	if _, ok := principal.ParseOwner(q.Owner); q.Owner != "" && !ok {
		invalid.Add("?owner", "invalid", "must be an account's path, such as /client/5")
	}
	if len(invalid) == 0 {
		return nil
	}
	refused := problem.New(problem.BadRequest, "The query is invalid.")
	refused.Fields = invalid
	return refused
}

// isPath reports whether browsers read a text as a path of the page's own host. Browsers read a backslash as a slash, and skip
// control characters.
func isPath(text string) bool {
	to, err := url.Parse(text)
	return err == nil && to.Scheme == "" && to.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f })
}

// fragment returns the part of the link behind the #, which the panel reads.
func (q *linkQuery) fragment(code secret.String) string {
	values := url.Values{"key": {code.Reveal()}}
	for name, value := range map[string]string{"view_type": q.ViewType, "redirect": q.Redirect} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.ViewID != 0 {
		values.Set("view_id", strconv.FormatInt(q.ViewID, 10))
	}
	if q.Embed {
		values.Set("embed", "1")
	}
	return values.Encode()
}

// exchangeRequest is a request to begin the session of a link's code.
type exchangeRequest struct {
	Body rest.Body[ssoCode]
}

// ssoCode is the body of an exchangeRequest.
type ssoCode struct {
	Code     secret.String `json:"code" required:"create" max:"255" transient:"true" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"The code behind key= in the link."`
	Verifier secret.String `json:"verifier" max:"255" transient:"true" doc:"For a sign-in by OpenID Connect: the text that its challenge was derived from."`
}

// Routes returns the operations on links to the panels.
func (s *Links) Routes() []rest.Route {
	return []rest.Route{
		rest.Read[linkQuery, session.SSOLink]{
			Path:    "/auth/sso",
			Guard:   guard.AnyKey,
			Name:    "getSSOLink",
			Summary: "Create a link that signs in to the panel",
			Writes:  true,
			Doc: "The link works once, within a minute, as long as the calling key is valid. It signs in the key's owner or, with " +
				"owner, an account that the caller may act for. An acting session's link signs in the account that it acts for, for the " +
				"same maker, and that session ends with it. Browsers are redirected to the link.",
			Do: s.makeLink,
		},
		rest.Mutation[exchangeRequest, keys.APIKey]{
			Method:    http.MethodPost,
			Path:      "/auth/sso",
			Guard:     guard.Public,
			Name:      "exchangeSSOCode",
			Summary:   "Begin a session by a link's code",
			Extension: true,
			Doc: "The session is an acting one: it is not a login, and cannot change keys, passwords or second factors. The code of a " +
				"sign-in by OpenID Connect needs the verifier, and begins a login's session.",
			Effect: rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRefused},
			Do:     s.exchangeCode,
		},
	}
}

// makeLink creates a link, and stores its code.
func (s *Links) makeLink(ctx context.Context, q linkQuery) (link session.SSOLink, err error) {
	if err := q.check(); err != nil {
		return link, err
	}
	call := principal.FromContext(ctx).Principal
	owner := call.Owner
	if q.Owner != "" {
		owner, _ = principal.ParseOwner(q.Owner)
	}
	if call.Acting && owner != call.Owner {
		return link, problem.New(problem.Forbidden, "An acting session can create links only for its own account, %s.", call.Owner.URL())
	}
	var own person.Person // a client's own link claims the account, unless somebody acts for it
	if owner == call.Owner && owner.Type == principal.Client && !call.Acting {
		if own, err = s.People.Get(ctx, owner); err != nil {
			return link, err
		}
	}
	isAbove, err := s.People.IsAbove(ctx, owner)
	if err != nil {
		return link, err
	}
	code := keys.NewToken()
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the use of the link is recorded")
		if err := access.Lock(ctx, tx); err != nil {
			return err
		}
		c, err := access.ReadCaller(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.Rules.CheckActFor(ctx, tx, c, owner, isAbove); err != nil {
			return err
		}
		panel := session.PanelURL(s.Settings.Values(), owner.Type)
		if panel == "" {
			return session.ErrNoPanel(owner.Type)
		}
		link.URL = panel + "/auth/sso#" + q.fragment(code)
		if err := storeCode(ctx, tx, c, owner, code, own.Version, &link.ExpiresAt); err != nil {
			return err
		}
		return s.People.Claim(ctx, tx, own, credentials.Linked)
	})
	return link, err
}

// storeCode stores a code that signs in to an account, and sets expiresAt. The code of an acting session passes on the actor, and
// the version of the credentials that the session ends with.
func storeCode(
	ctx context.Context,
	tx *pg.Tx,
	c access.Caller,
	owner principal.Owner,
	code secret.String,
	version int64,
	expiresAt *rest.Timestamp,
) error {
	var count int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM sso_code WHERE key_id = $1 AND expires_at > now()", c.KeyID).Scan(&count); err != nil {
		return fmt.Errorf("count a key's codes: %w", err)
	}
	if count >= maxOpenLinks {
		refused := problem.New(problem.TooManyRequests, "The key has %d unused links, and may have no more. Links expire after a minute.", count)
		refused.RetryAfter = session.LinkTTL
		return refused
	}
	hash := sha256.Sum256([]byte(code.Reveal()))
	var latest *time.Time
	if c.KeyExpires != nil {
		latest = &c.KeyExpires.Time
	}
	err := tx.QueryRow(
		ctx,
		`
		INSERT INTO sso_code (hash, owner_type, owner_id, key_id, actor_type, actor_id, actor_name, bound, credentials, expires_at)
		SELECT @hash, @owner_type, @owner_id, k.id, coalesce(k.actor_type, k.owner_type), coalesce(k.actor_id, k.owner_id),
			CASE WHEN k.actor_id IS NULL THEN @name ELSE coalesce(s.actor_name, '') END, @bound,
			CASE WHEN k.actor_id IS NULL THEN @credentials::bigint ELSE coalesce(k.credentials, 0) END, least(now() + @ttl, @latest::timestamptz)
		FROM api_key k LEFT JOIN session_view s ON s.id = k.id
		WHERE k.id = @key_id
		RETURNING expires_at`,
		pgx.StrictNamedArgs{
			"hash": hash[:], "owner_type": owner.Type, "owner_id": owner.ID, "key_id": c.KeyID,
			"name":  principal.FromContext(ctx).Principal.Name,
			"bound": access.BoundNames(c.Bound), "credentials": version, "ttl": session.LinkTTL, "latest": latest,
		},
	).Scan(&expiresAt.Time)
	if err != nil {
		return fmt.Errorf("store a code: %w", err)
	}
	return nil
}

// exchangeCode begins the session of a link's code, or of a sign-in by OpenID Connect. A link's code with a verifier is refused: a panel
// sends one for a sign-in that it has begun itself, and need not ask the person. Anybody can have made the link.
func (s *Links) exchangeCode(ctx context.Context, tx *pg.Tx, req exchangeRequest) (keys.APIKey, error) {
	body, err := req.Body.New()
	if err != nil {
		return keys.APIKey{}, err
	}
	if err := access.Lock(ctx, tx); err != nil {
		return keys.APIKey{}, err
	}
	hash := sha256.Sum256([]byte(body.Code.Reveal()))
	if !body.Verifier.IsZero() {
		return s.OpenID.Exchange(ctx, tx, hash[:], body.Verifier)
	}
	var owner, actor principal.Owner
	var key, version int64
	var name string
	var boundNames *[]string
	var latest *rest.Timestamp
	err = tx.QueryRow(ctx, `
		DELETE FROM sso_code c USING api_key k
		WHERE c.hash = $1 AND c.expires_at > clock_timestamp() AND k.id = c.key_id AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
			AND NOT EXISTS (SELECT FROM admin a WHERE c.actor_type = 'admin' AND a.id = c.actor_id AND a.disabled)
		RETURNING c.owner_type, c.owner_id, c.actor_type, c.actor_id, c.key_id, c.actor_name, c.bound, c.credentials, k.expires_at`, hash[:]).
		Scan(&owner.Type, &owner.ID, &actor.Type, &actor.ID, &key, &name, &boundNames, &version, &latest)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.OpenID.Exchange(ctx, tx, hash[:], body.Verifier)
	}
	if err != nil {
		return keys.APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	newKey, err := s.Sessions.BeginActing(
		ctx,
		tx,
		session.Options{
			Owner:       owner,
			Actor:       &actor,
			ParentKey:   &key,
			Bound:       access.ParseBound(boundNames),
			Credentials: version,
			Network:     access.Network(ctx),
		},
		name,
		latest,
	)
	return newKey, err
}
