package identity

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/openid"
)

const (
	// openIDTime is how long somebody may take to sign in at a provider, and mostOpenID how many do so at a time, mostOpenIDFrom of them from
	// one network. Beyond that those end that began first.
	openIDTime     = 10 * time.Minute
	mostOpenID     = 10_000
	mostOpenIDFrom = 100
	callbackPath   = "/auth/openid/callback"
)

var providerView = pg.NewView[OpenIDProvider]("openid_provider")

// OpenIDChoice is a provider as somebody sees it who is to sign in.
type OpenIDChoice struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
}

type openIDLogin struct {
	Body rest.Body[openIDLoginBody]

	url      string
	sent     *openIDLoginBody
	state    secret.String
	attempt  openid.Attempt
	settings openid.Settings
}

type openIDLoginBody struct {
	Provider  rest.RefID `json:"provider" required:"create" example:"1" doc:"one of GET /auth/openid"`
	Challenge string     `json:"challenge" required:"create" max:"100" example:"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU" doc:"the SHA-256, in base64url without =, of what the panel makes at random, keeps, and sends as verifier with the code: so nobody is signed in by a link that another one has begun"`

	hash []byte
}

// Resolve checks what the tags cannot say.
func (b *openIDLoginBody) Resolve(wrong *problem.Fields) {
	var err error
	if b.hash, err = base64.RawURLEncoding.DecodeString(b.Challenge); b.Challenge != "" && (err != nil || len(b.hash) != sha256.Size) {
		wrong.Add("/challenge", "invalid", "must be a SHA-256 in base64url without =")
	}
}

// OpenIDPage is where a browser is sent.
type OpenIDPage struct {
	URL string `json:"url" doc:"the provider's, where the admin signs in"`
}

// callback is how a provider sends a browser back.
type callback struct {
	State  secret.String `query:"state" max:"255" doc:"which sign-in it is"`
	Code   secret.String `query:"code" max:"4096" doc:"what the provider tells who has signed in for"`
	Error  string        `query:"error" max:"255" doc:"why the provider has not signed anybody in"`
	Issuer string        `query:"iss" max:"500" doc:"who sends it, where the provider says so"`
}

func (s *Service) openIDLogins() []rest.Route {
	return []rest.Route{
		rest.List[rest.None, OpenIDChoice]{
			DB:        s.db,
			Path:      "/auth/openid",
			View:      "openid_provider",
			Guard:     guard.Public,
			Name:      "listOpenIDChoices",
			Summary:   "List by which providers one can sign in",
			Extension: true,
			By:        rest.By{Sorts: map[string]string{"name": "name"}},
			Where: func(context.Context, rest.None) ([]pg.Condition, error) {
				return []pg.Condition{{SQL: "NOT disabled"}}, nil
			},
		},
		rest.Mutation[openIDLogin, OpenIDPage]{
			Method:    http.MethodPost,
			Path:      "/auth/openid",
			Guard:     guard.Public,
			Name:      "beginOpenIDLogin",
			Summary:   "Begin to sign in with a company's identity provider",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsEach, Again: rest.AgainAnother},
			Prepare:   s.prepareOpenID,
			Do:        s.beginOpenID,
		},
		rest.Read[callback, SSOLink]{
			Path:      callbackPath,
			Guard:     guard.Public,
			Name:      "finishOpenIDLogin",
			Summary:   "Come back from an identity provider",
			Extension: true,
			Writes:    true,
			Doc:       "The provider sends browsers here, and from here they are sent to the panel, with a code that is good once, for a minute.",
			Do:        s.comeBack,
		},
	}
}

// settingsOf reads a provider that may be used.
func (s *Service) settingsOf(ctx context.Context, id int64) (p OpenIDProvider, client openid.Settings, err error) {
	if p, err = providerView.Get(ctx, s.db, id); err == nil && p.Disabled {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return p, client, err
	}
	values := s.settings.Values()
	api := strings.TrimRight(settings.APIURL.In(values), "/")
	if api == "" || panelOf(values, principal.Admin) == "" {
		return p, client, problem.New(
			problem.Invalid,
			"Nobody can be sent back: IRONPLANE_API_URL says where callers reach the API, and IRONPLANE_ADMIN_URL where the panel is.",
		)
	}
	client = openid.Settings{Issuer: p.Issuer, ClientID: p.ClientID, Callback: api + callbackPath}
	var sealed []byte
	if err := s.db.QueryRow(ctx, "SELECT client_secret FROM openid_provider WHERE id = $1", id).Scan(&sealed); err != nil {
		return p, client, fmt.Errorf("read the secret of identity provider %d: %w", id, err)
	}
	if sealed != nil {
		client.ClientSecret, err = s.box.Open(seal.Place{Table: "openid_provider", Column: "client_secret", ID: id}, sealed)
	}
	return p, client, err
}

// prepareOpenID finds out where the provider has people sign in.
func (s *Service) prepareOpenID(ctx context.Context, req *openIDLogin) (err error) {
	if req.sent, err = req.Body.New(); err != nil {
		return err
	}
	_, req.settings, err = s.settingsOf(ctx, int64(req.sent.Provider))
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.Member("/provider", "not_found", "names no provider by which one can sign in")
	}
	if err != nil {
		return err
	}
	req.state, req.attempt = newToken(), openid.NewAttempt()
	if req.url, err = s.openID.SignInAt(ctx, req.settings, req.state, req.attempt); err != nil {
		return errProviderAway(err)
	}
	return nil
}

func errProviderAway(cause error) error {
	return problem.New(problem.Unavailable, "The identity provider cannot be asked right now.").Because(cause)
}

func verifierPlace(id int64) seal.Place {
	return seal.Place{Table: "openid_login", Column: "verifier", ID: id}
}

// beginOpenID notes that somebody is sent to a provider.
func (s *Service) beginOpenID(ctx context.Context, tx *pg.Tx, req openIDLogin) (OpenIDPage, error) {
	tx.Unrecorded("that somebody signs in is recorded")
	var id int64
	err := tx.QueryRow(ctx, "INSERT INTO openid_login (provider_id, hash, challenge, nonce, network, expires_at) VALUES ($1, $2, $3, $4, $5, now() + $6) RETURNING id",
		int64(req.sent.Provider), hashOf(req.state.Reveal()), req.sent.hash, req.attempt.Nonce, networkOf(ctx), openIDTime).
		Scan(&id)
	if err != nil {
		return OpenIDPage{}, fmt.Errorf("note who is sent to a provider: %w", err)
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE openid_login SET verifier = $2 WHERE id = $1",
		id,
		s.box.Seal(verifierPlace(id), req.attempt.Verifier),
	); err != nil {
		return OpenIDPage{}, fmt.Errorf("note who is sent to a provider: %w", err)
	}
	_, err = tx.Exec(
		ctx,
		"DELETE FROM openid_login WHERE id <= $1 OR id IN (SELECT id FROM openid_login WHERE network = $2 ORDER BY id DESC OFFSET $3)",
		id-mostOpenID,
		networkOf(ctx),
		mostOpenIDFrom,
	)
	if err != nil {
		return OpenIDPage{}, fmt.Errorf("end the sign-ins that began first: %w", err)
	}
	return OpenIDPage{req.url}, nil
}

func errNotBegun() error {
	return problem.New(problem.Unauthenticated, "There is no such sign-in: it has ended, or its time is over. Begin again.")
}

// comeBack finds out who has signed in at a provider, and sends him to the panel. It works once, whatever comes of it.
func (s *Service) comeBack(ctx context.Context, req callback) (link SSOLink, err error) {
	var id, provider int64
	var attempt openid.Attempt
	var sealed []byte
	code := newToken() // the row is nobody's any more who knows the state
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("that somebody signs in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET hash = $2, came_back = true WHERE hash = $1 AND NOT came_back AND expires_at > clock_timestamp() RETURNING id, provider_id, nonce, verifier",
			hashOf(req.State.Reveal()), hashOf(code.Reveal())).
			Scan(&id, &provider, &attempt.Nonce, &sealed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNotBegun()
	}
	if err != nil {
		return link, fmt.Errorf("look for who comes back from a provider: %w", err)
	}
	if attempt.Verifier, err = s.box.Open(verifierPlace(id), sealed); err != nil {
		return link, err
	}
	p, settings, err := s.settingsOf(ctx, provider)
	if errors.Is(err, pgx.ErrNoRows) {
		return link, errNotBegun()
	}
	if err != nil {
		return link, err
	}
	if req.Error != "" || req.Code.IsZero() || req.Issuer != "" && req.Issuer != p.Issuer {
		return link, s.refuseOpenID(ctx, &p, openid.ErrRefused)
	}
	who, err := s.openID.Finish(ctx, settings, req.Code, attempt)
	if errors.Is(err, openid.ErrRefused) {
		return link, s.refuseOpenID(ctx, &p, err)
	}
	if err != nil {
		return link, errProviderAway(err)
	}
	err = s.db.InTx(ctx, func(tx *pg.Tx) error {
		admin, err := s.adminAt(ctx, tx, &p, who)
		if err != nil {
			return err
		}
		tx.Unrecorded("that somebody signs in is recorded")
		return tx.QueryRow(ctx, "UPDATE openid_login SET admin_id = $2, verifier = NULL, expires_at = now() + $3 WHERE id = $1 RETURNING expires_at", id, admin, codeTime).
			Scan(&link.ExpiresAt.Time)
	})
	if problem.Is(err, problem.Forbidden) {
		return link, s.refuseOpenID(ctx, &p, err)
	}
	link.URL = panelOf(s.settings.Values(), principal.Admin) + "/auth/sso#key=" + code.Reveal()
	return link, err
}

// refuseOpenID logs, and answers, that somebody who comes from a provider is not signed in.
func (s *Service) refuseOpenID(ctx context.Context, p *OpenIDProvider, cause error) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Record(
			pg.Record{
				Kind:    "auth.openid",
				Action:  "refused",
				After:   struct{}{},
				Targets: []pg.Target{{Type: "auth/provider", Noun: "identity provider", ID: p.ID, Name: p.Name}},
			},
		)
		return nil
	})
	if err != nil {
		return fmt.Errorf("note a refused sign-in: %w", err)
	}
	return problem.New(problem.Unauthenticated, "The identity provider has signed in nobody who is an admin here.").Because(cause)
}

// adminAt is the admin who somebody at a provider is: as it was found before, by a verified address of a listed domain, or made now.
func (s *Service) adminAt(ctx context.Context, tx *pg.Tx, p *OpenIDProvider, who openid.Person) (id int64, err error) {
	if err := lockAccounts(ctx, tx); err != nil {
		return 0, err
	}
	nobody := problem.New(problem.Forbidden, "Nobody is this person.")
	err = tx.QueryRow(ctx, "SELECT admin_id FROM openid_subject WHERE issuer = $1 AND subject = $2", p.Issuer, who.Subject).Scan(&id)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	if !p.lists(who.Email) {
		return 0, nobody
	}
	err = tx.QueryRow(ctx, "SELECT id FROM admin WHERE lower(email) = lower($1)", who.Email).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && p.MakesAdmins:
		if id, err = makeAdmin(ctx, tx, who.Email, p.Permissions); err != nil {
			return 0, err
		}
	case errors.Is(err, pgx.ErrNoRows):
		return 0, nobody
	case err != nil:
		return 0, fmt.Errorf("look for an admin by address: %w", err)
	}
	linked, err := tx.Exec(
		ctx,
		"INSERT INTO openid_subject (issuer, subject, admin_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
		p.Issuer,
		who.Subject,
		id,
	)
	if err != nil {
		return 0, fmt.Errorf("note who somebody at a provider is: %w", err)
	}
	if linked.RowsAffected() == 0 { // the admin is somebody else there
		return 0, nobody
	}
	return id, nil
}

// lists tells whether an address is of one of the provider's domains.
func (p *OpenIDProvider) lists(email string) bool {
	var wrong problem.Fields
	if account.CheckEmail(email, &wrong); len(wrong) > 0 {
		return false
	}
	return slices.Contains(p.Domains, strings.ToLower(email[strings.LastIndexByte(email, '@')+1:]))
}

// makeAdmin makes an admin who has no password.
func makeAdmin(ctx context.Context, tx *pg.Tx, email string, permissions []string) (id int64, err error) {
	username, err := freeUsername(ctx, tx, email)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "INSERT INTO admin (username, email, permissions) VALUES ($1, $2, $3) RETURNING id", username, email, permissions).
		Scan(&id); err != nil {
		return 0, fmt.Errorf("make an admin: %w", err)
	}
	admin, err := adminView.Get(ctx, tx, id)
	if err != nil {
		return 0, fmt.Errorf("read admin %d: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "admin", Action: pg.Created, After: admin, Targets: []pg.Target{adminTarget(&admin)}})
	return id, nil
}

// finishOpenID begins the session of who has come back from a provider, for the panel that had sent him there.
func (s *Service) finishOpenID(ctx context.Context, tx *pg.Tx, hash []byte, verifier secret.String) (APIKey, error) {
	p := person{owner: principal.Owner{Type: principal.Admin}}
	err := tx.QueryRow(ctx, "DELETE FROM openid_login WHERE hash = $1 AND challenge = $2 AND admin_id IS NOT NULL AND expires_at > clock_timestamp() RETURNING admin_id", hash, hashOf(verifier.Reveal())).
		Scan(&p.owner.ID)
	if errors.Is(err, pgx.ErrNoRows) {
		return APIKey{}, problem.New(problem.Unauthenticated, "There is no such code: it was used, or its time is over.")
	}
	if err != nil {
		return APIKey{}, fmt.Errorf("use a code: %w", err)
	}
	if p.Account, err = readAdmin(ctx, tx, "id = $1", p.owner.ID); err != nil {
		return APIKey{}, fmt.Errorf("read who signs in: %w", err)
	}
	return s.signIn(ctx, tx, p)
}
