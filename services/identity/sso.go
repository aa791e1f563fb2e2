package identity

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
)

const (
	// codeTime is how long a link signs in, and mostCodes how many of them a key has at a time.
	codeTime  = time.Minute
	mostCodes = 1000
)

// SSOLink signs in who follows it, once.
type SSOLink struct {
	URL       string         `json:"url" doc:"of the panel; the code stands behind the #, which no server gets"`
	ExpiresAt rest.Timestamp `json:"expires_at"`
}

// RedirectTo sends a browser to the panel.
func (l SSOLink) RedirectTo() string { return l.URL }

type askForLink struct {
	Owner    string `query:"owner" max:"100" doc:"whom it signs in, as a path: /client/5; none: the owner of the calling key"`
	ViewType string `query:"view_type" max:"100" doc:"what the panel shows: the type of a target as in the log, or server"`
	ViewID   int64  `query:"view_id" min:"1" doc:"and which one"`
	Embed    bool   `query:"embed" doc:"whether the panel is shown inside of another page"`
	Redirect string `query:"redirect" max:"2000" doc:"the path of the panel that is shown; never another host's"`
}

type exchange struct {
	Body rest.Body[ssoCode]
}

type ssoCode struct {
	Code     secret.String `json:"code" required:"create" max:"255" kept:"false" example:"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" doc:"that stands behind key= in the link"`
	Verifier secret.String `json:"verifier" max:"255" kept:"false" doc:"of a sign-in by OpenID Connect: what its challenge was made of"`
}

func (s *Service) ssoLinks() []rest.Route {
	return []rest.Route{
		rest.Read[askForLink, SSOLink]{
			Path:    "/auth/sso",
			Guard:   guard.AnyKey,
			Name:    "getSSOLink",
			Summary: "Make a link that signs in to the panel",
			Writes:  true,
			Doc:     "The link is good once, for a minute, while the calling key is. It signs in the key's owner or, with owner, whom the caller may act for. A browser is sent there, where keys are taken from the query.",
			Do:      s.makeLink,
		},
		rest.Mutation[exchange, APIKey]{
			Method:    http.MethodPost,
			Path:      "/auth/sso",
			Guard:     guard.Public,
			Name:      "exchangeSSOCode",
			Summary:   "Begin a session by a link's code",
			Extension: true,
			Doc:       "The session is an acting one: it counts as no login, and writes no keys, passwords and the like. A code that a sign-in by OpenID Connect has led to begins a login's session; it takes the verifier.",
			Effect:    rest.Effect{Logs: rest.LogsEach, Again: rest.AgainRefused},
			Do:        s.exchangeCode,
		},
	}
}

// check refuses what a panel is not to be sent.
func (q *askForLink) check() error {
	var wrong problem.Fields
	if q.Redirect != "" && !isPath(q.Redirect) {
		wrong.Add("?redirect", "invalid", "must be a path of the panel, such as /servers/7")
	}
	if _, ok := principal.ParseOwner(q.Owner); q.Owner != "" && !ok {
		wrong.Add("?owner", "invalid", "must be an owner's path, such as /client/5")
	}
	if len(wrong) == 0 {
		return nil
	}
	refused := problem.New(problem.BadRequest, "The query is wrong.")
	refused.Fields = wrong
	return refused
}

// isPath tells whether a browser takes a text for a path of the page's own host: it takes a backslash for a slash, and leaves control
// characters out.
func isPath(text string) bool {
	to, err := url.Parse(text)
	return err == nil && to.Scheme == "" && to.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f })
}

// fragment is what the panel is told.
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

func (s *Service) makeLink(ctx context.Context, q askForLink) (link SSOLink, err error) {
	if err := q.check(); err != nil {
		return link, err
	}
	call := principal.From(ctx).Principal
	if call.Acting {
		return link, errActing()
	}
	of := call.Owner
	if q.Owner != "" {
		of, _ = principal.ParseOwner(q.Owner)
	}
	var own person // a client's own link claims the account
	if of == call.Owner && of.Type == principal.Client {
		if own, err = s.personOf(ctx, of); err != nil {
			return link, err
		}
	}
	code := newToken()
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("that it is used is recorded")
		c, err := lockedCaller(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.mayActFor(ctx, tx, c, of); err != nil {
			return err
		}
		panel := panelOf(s.settings.Values(), of.Type)
		if panel == "" {
			return noPanel(of.Type)
		}
		link.URL = panel + "/auth/sso#" + q.fragment(code)
		if err := keepCode(ctx, tx, c, of, code, own.Version, &link.ExpiresAt); err != nil {
			return err
		}
		return s.tellClaimed(ctx, tx, own, credentials.Linked)
	})
	return link, err
}

func noPanel(t principal.OwnerType) error {
	at, has := panels[t]
	if !has {
		return problem.New(problem.Invalid, "Integrations have no panel.")
	}
	return problem.New(
		problem.Invalid,
		"There is no panel to lead to: the setting %s is empty, which IRONPLANE_%s says.",
		at.Slug,
		strings.ToUpper(at.Slug),
	)
}

// keepCode keeps a code that signs in an account, and answers until when.
func keepCode(
	ctx context.Context,
	tx *pg.Tx,
	c caller,
	of principal.Owner,
	code secret.String,
	version int64,
	until *rest.Timestamp,
) error {
	var has int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM sso_code WHERE key_id = $1 AND expires_at > now()", c.key).Scan(&has); err != nil {
		return fmt.Errorf("count a key's codes: %w", err)
	}
	if has >= mostCodes {
		refused := problem.New(problem.TooManyRequests, "The key has %d links that are good for a minute, and can have no more.", has)
		refused.RetryAfter = codeTime
		return refused
	}
	hash := sha256.Sum256([]byte(code.Reveal()))
	var ends *time.Time
	if c.ends != nil {
		ends = &c.ends.Time
	}
	err := tx.QueryRow(
		ctx,
		`
		INSERT INTO sso_code (hash, owner_type, owner_id, key_id, actor_type, actor_id, actor_name, bound, credentials, expires_at)
		VALUES (@hash, @owner_type, @owner_id, @key_id, @actor_type, @actor_id, @actor_name, @bound, @credentials,
			least(now() + @ttl, @latest::timestamptz))
		RETURNING expires_at`,
		pgx.StrictNamedArgs{
			"hash": hash[:], "owner_type": of.Type, "owner_id": of.ID, "key_id": c.key,
			"actor_type": c.owner.Type, "actor_id": c.owner.ID, "actor_name": principal.From(ctx).Principal.Name,
			"bound": boundNames(c.bound), "credentials": version, "ttl": codeTime, "latest": ends,
		},
	).Scan(&until.Time)
	if err != nil {
		return fmt.Errorf("keep a code: %w", err)
	}
	return nil
}

// exchangeCode begins the session that a code is good for.
func (s *Service) exchangeCode(ctx context.Context, tx *pg.Tx, req exchange) (APIKey, error) {
	body, err := req.Body.New()
	if err != nil {
		return APIKey{}, err
	}
	if err := lockAccounts(ctx, tx); err != nil {
		return APIKey{}, err
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
		return s.finishOpenID(ctx, tx, hash[:], body.Verifier)
	}
	if err != nil {
		return APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	begun, err := s.beginActing(
		ctx,
		tx,
		newSession{owner: owner, actor: &actor, madeWith: &key, bound: parseBound(limits), credentials: version},
		name,
		ends,
	)
	return begun, err
}
