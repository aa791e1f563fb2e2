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

// maxCodes bounds the links of a key that are good.
const maxCodes = 1000

// Links answers requests for links that sign in to a panel.
type Links struct {
	DB       *pg.DB
	Settings *settings.Follower
	Rules    *access.Rules
	People   *person.Directory
	Sessions *session.Service
	OpenID   *openid.Service
}

type askForLink struct {
	Owner    string `query:"owner" max:"100" doc:"whom it signs in, as a path: /client/5; none: the owner of the calling key"`
	ViewType string `query:"view_type" max:"100" doc:"what the panel shows: the type of a target as in the log, or server"`
	ViewID   int64  `query:"view_id" min:"1" doc:"and which one"`
	Embed    bool   `query:"embed" doc:"whether the panel is shown inside of another page"`
	Redirect string `query:"redirect" max:"2000" doc:"the path of the panel that is shown; never another host's"`
}

// check refuses what must not be sent to a panel.
func (q *askForLink) check() error {
	var invalid problem.Fields
	if q.Redirect != "" && !isPath(q.Redirect) {
		invalid.Add("?redirect", "invalid", "must be a path of the panel, such as /servers/7")
	}
	if _, ok := principal.ParseOwner(q.Owner); q.Owner != "" && !ok {
		invalid.Add("?owner", "invalid", "must be an owner's path, such as /client/5")
	}
	if len(invalid) == 0 {
		return nil
	}
	refused := problem.New(problem.BadRequest, "The query is wrong.")
	refused.Fields = invalid
	return refused
}

// isPath tells whether a browser reads a text as a path of the page's own host. Browsers read a backslash as a slash, and skip control
// characters.
func isPath(text string) bool {
	to, err := url.Parse(text)
	return err == nil && to.Scheme == "" && to.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f })
}

// fragment returns the part of the link behind the #, which the panel reads.
func (q *askForLink) fragment(code secret.String) string {
	told := url.Values{"key": {code.Reveal()}}
	for name, value := range map[string]string{"view_type": q.ViewType, "redirect": q.Redirect} {
		if value != "" {
			told.Set(name, value)
		}
	}
	if q.ViewID != 0 {
		told.Set("view_id", strconv.FormatInt(q.ViewID, 10))
	}
	if q.Embed {
		told.Set("embed", "1")
	}
	return told.Encode()
}

type exchange struct {
	Body rest.Body[ssoCode]
}

type ssoCode struct {
	Code     secret.String `json:"code" required:"create" max:"255" kept:"false" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"that stands behind key= in the link"`
	Verifier secret.String `json:"verifier" max:"255" kept:"false" doc:"of a sign-in by OpenID Connect: what its challenge was made of"`
}

// Routes returns the operations on links to the panels.
func (s *Links) Routes() []rest.Route {
	return []rest.Route{
		rest.Read[askForLink, session.SSOLink]{
			Path:    "/auth/sso",
			Guard:   guard.AnyKey,
			Name:    "getSSOLink",
			Summary: "Make a link that signs in to the panel",
			Writes:  true,
			Doc: "The link is good once, for a minute, while the calling key is. It signs in the key's owner or, with owner, whom the caller " +
				"may act for. A browser is sent there, where keys are taken from the query.",
			Do: s.makeLink,
		},
		rest.Mutation[exchange, keys.APIKey]{
			Method:    http.MethodPost,
			Path:      "/auth/sso",
			Guard:     guard.Public,
			Name:      "exchangeSSOCode",
			Summary:   "Begin a session by a link's code",
			Extension: true,
			Doc: "The session is an acting one: it counts as no login, and writes no keys, passwords and the like. A code that a sign-in " +
				"by OpenID Connect has led to begins a login's session; it takes the verifier.",
			Effect: rest.Effect{Logs: rest.LogsEach, Again: rest.AgainRefused},
			Do:     s.exchangeCode,
		},
	}
}

func (s *Links) makeLink(ctx context.Context, q askForLink) (link session.SSOLink, err error) {
	if err := q.check(); err != nil {
		return link, err
	}
	call := principal.From(ctx).Principal
	if call.Acting {
		return link, access.ErrActing()
	}
	of := call.Owner
	if q.Owner != "" {
		of, _ = principal.ParseOwner(q.Owner)
	}
	var own person.Person // a client's own link claims the account
	if of == call.Owner && of.Type == principal.Client {
		if own, err = s.People.Of(ctx, of); err != nil {
			return link, err
		}
	}
	code := keys.NewToken()
	err = s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("that it is used is recorded")
		c, err := access.Locked(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.Rules.MayActFor(ctx, tx, c, of); err != nil {
			return err
		}
		panel := session.Panel(s.Settings.Values(), of.Type)
		if panel == "" {
			return session.ErrNoPanel(of.Type)
		}
		link.URL = panel + "/auth/sso#" + q.fragment(code)
		if err := keepCode(ctx, tx, c, of, code, own.Version, &link.ExpiresAt); err != nil {
			return err
		}
		return s.People.Claim(ctx, tx, own, credentials.Linked)
	})
	return link, err
}

// keepCode stores a code that signs in an account, and sets until to when it expires.
func keepCode(
	ctx context.Context,
	tx *pg.Tx,
	c access.Caller,
	of principal.Owner,
	code secret.String,
	version int64,
	until *rest.Timestamp,
) error {
	var has int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM sso_code WHERE key_id = $1 AND expires_at > now()", c.KeyID).Scan(&has); err != nil {
		return fmt.Errorf("count a key's codes: %w", err)
	}
	if has >= maxCodes {
		refused := problem.New(problem.TooManyRequests, "The key has %d links that are good for a minute, and can have no more.", has)
		refused.RetryAfter = session.LinkTTL
		return refused
	}
	hash := sha256.Sum256([]byte(code.Reveal()))
	var ends *time.Time
	if c.KeyExpires != nil {
		ends = &c.KeyExpires.Time
	}
	err := tx.QueryRow(
		ctx,
		`
		INSERT INTO sso_code (hash, owner_type, owner_id, key_id, actor_type, actor_id, actor_name, bound, credentials, expires_at)
		VALUES (@hash, @owner_type, @owner_id, @key_id, @actor_type, @actor_id, @actor_name, @bound, @credentials,
			least(now() + @ttl, @latest::timestamptz))
		RETURNING expires_at`,
		pgx.StrictNamedArgs{
			"hash": hash[:], "owner_type": of.Type, "owner_id": of.ID, "key_id": c.KeyID,
			"actor_type": c.Owner.Type, "actor_id": c.Owner.ID, "actor_name": principal.From(ctx).Principal.Name,
			"bound": access.BoundNames(c.Bound), "credentials": version, "ttl": session.LinkTTL, "latest": ends,
		},
	).Scan(&until.Time)
	if err != nil {
		return fmt.Errorf("keep a code: %w", err)
	}
	return nil
}

// exchangeCode begins the session of a code: of a link or, where there is none, of a sign-in by OpenID Connect.
func (s *Links) exchangeCode(ctx context.Context, tx *pg.Tx, req exchange) (keys.APIKey, error) {
	body, err := req.Body.New()
	if err != nil {
		return keys.APIKey{}, err
	}
	if err := access.Lock(ctx, tx); err != nil {
		return keys.APIKey{}, err
	}
	hash := sha256.Sum256([]byte(body.Code.Reveal()))
	var owner, actor principal.Owner
	var key, version int64
	var name string
	var limits *[]string
	var ends *rest.Timestamp
	err = tx.QueryRow(ctx, `
		DELETE FROM sso_code c USING api_key k LEFT JOIN admin a ON a.id = k.admin_id
		WHERE c.hash = $1 AND c.expires_at > clock_timestamp() AND k.id = c.key_id AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()) AND a.disabled IS NOT TRUE
		RETURNING c.owner_type, c.owner_id, c.actor_type, c.actor_id, c.key_id, c.actor_name, c.bound, c.credentials, k.expires_at`, hash[:]).
		Scan(&owner.Type, &owner.ID, &actor.Type, &actor.ID, &key, &name, &limits, &version, &ends)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.OpenID.Exchange(ctx, tx, hash[:], body.Verifier)
	}
	if err != nil {
		return keys.APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	begun, err := s.Sessions.BeginActing(
		ctx,
		tx,
		session.Options{Owner: owner, Actor: &actor, MadeWith: &key, Bound: access.ParseBound(limits), Credentials: version},
		name,
		ends,
	)
	return begun, err
}
