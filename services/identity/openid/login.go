package openid

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

const (
	// loginTTL is how long a sign-in at a provider may take. At most maxLogins are open, and
	// maxLoginsFrom of one network. A further one ends the oldest.
	loginTTL      = 10 * time.Minute
	maxLogins     = 10_000
	maxLoginsFrom = 100
	callbackPath  = "/auth/openid/callback"
)

// OpenIDChoice is a provider as the sign-in page shows it.
type OpenIDChoice struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
}

// openIDLogin is a request to begin a sign-in. prepare fills the unexported fields.
type openIDLogin struct {
	Body rest.Body[openIDLoginBody]

	url      string
	body     *openIDLoginBody
	state    secret.String
	attempt  Attempt
	settings Settings
}

// openIDLoginBody is the body of an openIDLogin.
type openIDLoginBody struct {
	Provider  rest.RefID `json:"provider" required:"create" example:"1" doc:"One of GET /auth/openid."`
	Challenge string     `json:"challenge" required:"create" max:"100" example:"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU" doc:"The SHA-256, in base64url without =, of a random text that the panel keeps, and sends as verifier with the code. Nobody can then be signed in by a link that somebody else has begun."`

	hash []byte
}

// Resolve checks what the tags cannot express.
func (b *openIDLoginBody) Resolve(invalid *problem.Fields) {
	var err error
	if b.hash, err = base64.RawURLEncoding.DecodeString(b.Challenge); b.Challenge != "" && (err != nil || len(b.hash) != sha256.Size) {
		invalid.Add("/challenge", "invalid", "must be a SHA-256 in base64url without =")
	}
}

// OpenIDPage is the page that the browser is sent to.
type OpenIDPage struct {
	URL string `json:"url" doc:"The provider's page where the admin signs in."`
}

// loginRoutes returns the operations by which admins sign in at a provider.
func (s *Service) loginRoutes() []rest.Route {
	return []rest.Route{
		rest.List[rest.None, OpenIDChoice]{
			Path:      "/auth/openid",
			View:      "openid_provider",
			Guard:     guard.Public,
			Name:      "listOpenIDChoices",
			Summary:   "List the identity providers to sign in with",
			Extension: true,
			Options:   rest.ListOptions{Sorts: map[string]string{"name": "name"}},
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
			Effect:    rest.Effect{Logs: rest.LogsEach, Retry: rest.RetryRepeats},
			Prepare:   s.prepare,
			Do:        s.begin,
		},
		rest.Read[callback, session.SSOLink]{
			Path:      callbackPath,
			Guard:     guard.Public,
			Name:      "finishOpenIDLogin",
			Summary:   "Return from an identity provider",
			Extension: true,
			Writes:    true,
			Doc:       "Providers redirect browsers to this address. It redirects them to the panel, with a code that works once, within a minute.",
			Do:        s.finish,
		},
	}
}

// readProvider reads a provider and its settings. The error is pgx.ErrNoRows if the provider is disabled.
func (s *Service) readProvider(ctx context.Context, id int64) (p OpenIDProvider, client Settings, err error) {
	if p, err = ProviderView.Get(ctx, s.DB, id); err == nil && p.Disabled {
		err = pgx.ErrNoRows
	}
	if err != nil {
		return p, client, err
	}
	values := s.Settings.Values()
	api := strings.TrimRight(settings.APIURL.In(values), "/")
	if api == "" || session.PanelURL(values, principal.Admin) == "" {
		return p, client, problem.New(
			problem.Invalid,
			"Sign-ins need the addresses of the API and of the admin panel. Set IRONPLANE_API_URL and IRONPLANE_ADMIN_URL.",
		)
	}
	client = Settings{Issuer: p.Issuer, ClientID: p.ClientID, Callback: api + callbackPath}
	var sealed []byte
	if err := s.DB.QueryRow(ctx, "SELECT client_secret FROM openid_provider WHERE id = $1", id).Scan(&sealed); err != nil {
		return p, client, fmt.Errorf("read the secret of identity provider %d: %w", id, err)
	}
	if sealed != nil {
		client.ClientSecret, err = s.Box.Open(seal.Location{Table: "openid_provider", Column: "client_secret", ID: id}, sealed)
	}
	return p, client, err
}

// prepare asks the provider for the address of its sign-in page.
func (s *Service) prepare(ctx context.Context, req *openIDLogin) (err error) {
	if req.body, err = req.Body.New(); err != nil {
		return err
	}
	_, req.settings, err = s.readProvider(ctx, int64(req.body.Provider))
	if errors.Is(err, pgx.ErrNoRows) {
		return problem.Member("/provider", "not_found", "names no enabled identity provider")
	}
	if err != nil {
		return err
	}
	req.state, req.attempt = keys.NewToken(), NewAttempt()
	if req.url, err = s.Client.SignInURL(ctx, req.settings, req.state, req.attempt); err != nil {
		return errProviderUnavailable(err)
	}
	return nil
}

// errProviderUnavailable returns the error for a provider that does not answer.
func errProviderUnavailable(cause error) error {
	return problem.New(problem.Unavailable, "The identity provider does not respond. Try again later.").Because(cause)
}

func verifierLocation(id int64) seal.Location {
	return seal.Location{Table: "openid_login", Column: "verifier", ID: id}
}

// begin stores that a browser is sent to a provider.
func (s *Service) begin(ctx context.Context, tx *pg.Tx, req openIDLogin) (OpenIDPage, error) {
	tx.Unrecorded("the sign-in is recorded")
	var id int64
	err := tx.QueryRow(ctx, "INSERT INTO openid_login (provider_id, hash, challenge, nonce, network, expires_at) "+
		"VALUES ($1, $2, $3, $4, $5, now() + $6) RETURNING id",
		int64(req.body.Provider), keys.HashToken(req.state.Reveal()), req.body.hash, req.attempt.Nonce, access.Network(ctx), loginTTL).
		Scan(&id)
	if err != nil {
		return OpenIDPage{}, fmt.Errorf("store a pending sign-in: %w", err)
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE openid_login SET verifier = $2 WHERE id = $1",
		id,
		s.Box.Seal(verifierLocation(id), req.attempt.Verifier),
	); err != nil {
		return OpenIDPage{}, fmt.Errorf("store a pending sign-in: %w", err)
	}
	_, err = tx.Exec(
		ctx,
		"DELETE FROM openid_login WHERE id <= $1 OR id IN (SELECT id FROM openid_login WHERE network = $2 ORDER BY id DESC OFFSET $3)",
		id-maxLogins,
		access.Network(ctx),
		maxLoginsFrom,
	)
	if err != nil {
		return OpenIDPage{}, fmt.Errorf("end the sign-ins that began first: %w", err)
	}
	return OpenIDPage{req.url}, nil
}

// errNoSignIn returns the refusal of a browser that comes back without a pending sign-in.
func errNoSignIn() error {
	return problem.New(problem.Unauthenticated, "The sign-in does not exist, was completed, or has expired. Begin again.")
}
