package system

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/system/certificate"
)

// SSL are the TLS settings of the API.
type SSL struct {
	rest.Versioned
	Enabled   bool            `json:"enabled" doc:"Whether there is a certificate from ACME. Gateways without a certificate of their own use it."`
	Required  bool            `json:"required" doc:"Whether plain HTTP is refused."`
	Status    string          `json:"status" ext:"true" enum:"off,ordering,valid,renewing,failed" doc:"failed: the last attempt to obtain or renew the certificate failed and will be retried."`
	Error     *string         `json:"error,omitempty" ext:"true" doc:"Why the last attempt failed."`
	Email     *string         `json:"email,omitempty" ext:"true" doc:"The email address for messages from the certificate authority."`
	Name      *string         `json:"name,omitempty" ext:"true" doc:"The host name of the certificate."`
	ExpiresAt *rest.Timestamp `json:"expires_at,omitempty" ext:"true" doc:"When the certificate expires. It is renewed before that."`
}

// orderBody is the body that orders a certificate.
type orderBody struct {
	Email string `json:"email" required:"create" format:"email" example:"admin@example.com" doc:"The email address for messages from the certificate authority."`
}

// requiredBody is the body that requires TLS.
type requiredBody struct {
	Required bool `json:"required" example:"true" doc:"Whether plain HTTP is redirected to HTTPS. Requests with a key or a body are refused instead."`
}

type (
	orderRequest   struct{ Body rest.Body[orderBody] }
	requireRequest struct {
		Match rest.IfMatch
		Body  rest.Body[requiredBody]
	}
	disableRequest struct{ Match rest.IfMatch }
	challenge      struct {
		Token string `path:"token"`
	}
	gatewayQuery struct {
		Known string `query:"known"`
		Name  string `query:"name"`
	}
)

func (s *Service) sslRoutes() []rest.Route {
	const path = "/http/ssl"
	has := guard.Has(permission.SystemSettings)
	return []rest.Route{
		rest.Read[rest.None, SSL]{Path: path, Guard: has, Name: "getSSL", Summary: "View the SSL settings",
			Do: func(ctx context.Context, _ rest.None) (SSL, error) { return readSSL(ctx, s.db) }},
		rest.Mutation[orderRequest, SSL]{
			Method:  http.MethodPost,
			Path:    path,
			Guard:   has,
			Name:    "enableSSL",
			Summary: "Obtain a certificate by ACME",
			Doc: "For the host name of the API's configured URL. The certificate is obtained in the background and renewed automatically. " +
				"If the last attempt failed, a new one starts immediately. By sending this request, you agree to the authority's terms.",
			Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
			Do:     s.orderCertificate,
		},
		rest.Mutation[requireRequest, SSL]{
			Method:    http.MethodPatch,
			Path:      path,
			Guard:     has,
			Name:      "updateSSL",
			Summary:   "Require TLS or allow plain HTTP",
			Extension: true,
			Doc:       "TLS is only required at gateways that support it: those with a certificate or behind a trusted proxy.",
			Effect:    rest.Effect{Logs: rest.LogsItem, Retry: rest.RetrySafe, ViewPath: path},
			Do:        s.requireTLS,
		},
		rest.Mutation[disableRequest, rest.Message]{
			Method:  http.MethodDelete,
			Path:    path,
			Guard:   has,
			Name:    "disableSSL",
			Summary: "Delete the certificate",
			Doc:     "TLS is no longer required, either.",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused},
			Do:      s.disableSSL,
		},
		rest.Raw[challenge]{
			Method:    http.MethodGet,
			Path:      "/.well-known/acme-challenge/{token}",
			Guard:     guard.Public,
			Name:      "getACMEChallenge",
			Summary:   "Respond to an ACME challenge",
			Extension: true,
			Returns:   []string{"text/plain"},
			Do:        s.serveACMEChallenge,
		},
		rest.Read[gatewayQuery, certificate.GatewayState]{Path: "/internal/certificate", Guard: guard.Peers(principal.Gateway),
			Do: func(ctx context.Context, req gatewayQuery) (certificate.GatewayState, error) {
				return s.certificates.ReadForGateway(ctx, req.Known)
			}},
		rest.Read[gatewayQuery, certificate.Issued]{Path: "/internal/acme-handshake", Guard: guard.Peers(principal.Gateway),
			Do: func(ctx context.Context, req gatewayQuery) (certificate.Issued, error) {
				return s.certificates.HandshakeCertificate(ctx, req.Name)
			}},
	}
}

// readSSL returns the TLS settings.
func readSSL(ctx context.Context, q pg.Querier) (SSL, error) {
	state, err := certificate.ReadState(ctx, q)
	return newSSL(state), err
}

// newSSL returns the TLS settings as callers see them.
func newSSL(s certificate.State) SSL {
	shown := SSL{
		Versioned: rest.Versioned{Version: s.Version},
		Enabled:   s.Name != nil,
		Required:  s.Required,
		Status:    s.Status(),
		Error:     s.Error,
		Email:     s.Email,
		Name:      s.Name,
	}
	if s.NotAfter != nil {
		shown.ExpiresAt = &rest.Timestamp{Time: *s.NotAfter}
	}
	return shown
}

// orderCertificate orders a certificate, or retries immediately if the last attempt failed.
func (s *Service) orderCertificate(ctx context.Context, tx *pg.Tx, req orderRequest) (none SSL, err error) {
	before, err := certificate.LockState(ctx, tx)
	if err != nil {
		return none, err
	}
	body, err := req.Body.New()
	if err != nil {
		return none, err
	}
	if !s.certificates.Public.CanBeCertified() {
		return none, problem.New(
			problem.Conflict,
			"A certificate needs the API's public name. Set IRONPLANE_API_URL to a URL such as https://api.example.com.",
		)
	}
	if before.Email != nil && *before.Email == body.Email && before.Error == nil {
		tx.Unrecorded("the certificate is already ordered")
		return newSSL(before), nil
	}
	tx.Wake(settings.CertificateChanged)
	if _, err := tx.Exec(
		ctx,
		"UPDATE ssl SET version = version + 1, email = $1, error = NULL, ordered = ordered + 1",
		body.Email,
	); err != nil {
		return none, err
	}
	after, err := recordSSL(ctx, tx, before)
	if err != nil || !after.IsDue(s.certificates.Public.Name) {
		return newSSL(after), err
	}
	return newSSL(after), s.certificates.Order(ctx, tx, after)
}

// recordSSL records the change of the settings and returns their new state.
func recordSSL(ctx context.Context, tx *pg.Tx, before certificate.State) (after certificate.State, err error) {
	if after, err = certificate.ReadState(ctx, tx); err == nil {
		tx.Record(pg.Record{Kind: certificate.Kind, Action: pg.Edited, Targets: after.Target(), Before: newSSL(before), After: newSSL(after)})
	}
	return after, err
}

// requireTLS sets whether plain HTTP is redirected or refused.
func (s *Service) requireTLS(ctx context.Context, tx *pg.Tx, req requireRequest) (none SSL, err error) {
	before, err := certificate.LockState(ctx, tx)
	if err != nil {
		return none, err
	}
	if err := req.Match.Check(before.Version); err != nil {
		return none, err
	}
	body, err := req.Body.Merge(&requiredBody{before.Required}, newSSL(before))
	if err != nil {
		return none, err
	}
	if body.Required == before.Required {
		tx.Unrecorded("the TLS settings did not change")
		return newSSL(before), nil
	}
	tx.Wake(settings.CertificateChanged)
	if _, err := tx.Exec(ctx, "UPDATE ssl SET version = version + 1, required = $1", body.Required); err != nil {
		return none, err
	}
	after, err := recordSSL(ctx, tx, before)
	return newSSL(after), err
}

// disableSSL forgets the certificate, ends its renewal, and allows plain HTTP.
func (s *Service) disableSSL(ctx context.Context, tx *pg.Tx, req disableRequest) (rest.Message, error) {
	before, err := certificate.LockState(ctx, tx)
	if err != nil {
		return rest.Message{}, err
	}
	if err := req.Match.Check(before.Version); err != nil {
		return rest.Message{}, err
	}
	if before.Email == nil && !before.Required {
		return rest.Message{}, problem.New(problem.Conflict, "There is no certificate to delete, and none is ordered.")
	}
	tx.Wake(settings.CertificateChanged)
	_, err = tx.Exec(ctx, `UPDATE ssl SET version = version + 1, edition = gen_random_uuid(), ordered = ordered + 1, required = false,
		(email, error, name, chain, key, not_after, renew_at) = (NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
	if err != nil {
		return rest.Message{}, err
	}
	before.Version++
	tx.Record(pg.Record{Kind: certificate.Kind, Action: pg.Deleted, Targets: before.Target(), Before: newSSL(before)})
	return rest.Message{Message: "Certificate deleted."}, err
}

// serveACMEChallenge proves to an authority that the installation controls the host name (HTTP-01).
func (s *Service) serveACMEChallenge(ctx context.Context, c *rest.RawCall, req challenge) error {
	text, err := s.certificates.KeyAuthorization(ctx, req.Token)
	if err != nil {
		return fmt.Errorf("find the challenge: %w", err)
	}
	c.Writer.Header().Set("Content-Type", "text/plain")
	_, err = io.WriteString(c.Writer, text)
	return err
}
