// Package openid lets admins sign in with their company's identity provider, by OpenID Connect.
package openid

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/session"
)

// ProviderView reads identity providers.
var ProviderView = pg.NewView[OpenIDProvider]("openid_provider")

// Service answers requests about identity providers, and signs admins in by them.
type Service struct {
	DB       *pg.DB
	Box      *seal.Box
	Settings *settings.Follower
	Sessions *session.Service
	Client   *Client
}

// Routes returns the operations on identity providers and on sign-ins.
func (s *Service) Routes() []rest.Route { return append(s.providerRoutes(), s.loginRoutes()...) }

// OpenIDProvider is a company's identity provider, by which admins sign in.
type OpenIDProvider struct {
	rest.Versioned
	ID          int64    `json:"id" db:"id"`
	Name        string   `json:"name" db:"name"`
	Issuer      string   `json:"issuer" db:"issuer" doc:"The issuer, as the provider's tokens name it."`
	ClientID    string   `json:"client_id" db:"client_id" doc:"The id of this installation at the provider."`
	Domains     []string `json:"domains" db:"domains" doc:"The domains of verified addresses by which an admin is found at the first sign-in."`
	MakesAdmins bool     `json:"makes_admins" db:"makes_admins" doc:"Whether a user with such an address who is no admin yet becomes one."`
	Permissions []string `json:"permissions" db:"permissions" doc:"The permissions of admins that are created."`
	Disabled    bool     `json:"disabled" db:"disabled" doc:"Whether sign-ins by this provider are refused."`
}

// openIDProviderBody is the body by which an identity provider is created or edited.
type openIDProviderBody struct {
	Name         string         `json:"name" db:"name" required:"create" max:"100" example:"Example Inc." doc:"The name that panels show. No other provider may have it."`
	Issuer       string         `json:"issuer" db:"issuer" required:"create" max:"500" example:"https://login.example.com" doc:"The issuer, as the provider's tokens name it: https://, or http:// in the networks of IRONPLANE_ALLOWED_NETWORKS."`
	ClientID     string         `json:"client_id" db:"client_id" required:"create" max:"500" example:"ironplane" doc:"The id of this installation at the provider."`
	ClientSecret *secret.String `json:"client_secret" db:"client_secret" max:"1000" example:"what the provider has given out" doc:"The secret of this installation at the provider. It is stored encrypted and never returned. Empty on edit: unchanged."`
	Domains      []string       `json:"domains" db:"domains" example:"[\"example.com\"]" doc:"The domains of verified addresses by which an admin is found at the first sign-in."`
	MakesAdmins  bool           `json:"makes_admins" db:"makes_admins" example:"false" doc:"Whether a user with such an address who is no admin yet becomes one."`
	Permissions  []string       `json:"permissions" db:"permissions" example:"[\"network.groups read\"]" doc:"The permissions of admins that are created."`
	Disabled     bool           `json:"disabled" db:"disabled" example:"false" doc:"Whether sign-ins by this provider are refused."`
}

const maxDomains = 100

var domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}$`)

// Resolve checks what the tags cannot express.
func (b *openIDProviderBody) Resolve(invalid *problem.Fields) {
	if u, err := url.Parse(
		b.Issuer,
	); b.Issuer != "" &&
		(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		invalid.Add("/issuer", "invalid", "must be a URL such as https://login.example.com")
	}
	if len(b.Domains) > maxDomains {
		invalid.Add("/domains", "too_long", "can have at most %d domains", maxDomains)
	}
	for i, domain := range b.Domains {
		if b.Domains[i] = strings.ToLower(domain); !domainName.MatchString(b.Domains[i]) {
			invalid.Add("/domains", "invalid", "must be names of domains such as example.com")
			break
		}
	}
	if b.MakesAdmins && len(b.Domains) == 0 {
		invalid.Add("/makes_admins", "out_of_range", "requires domains: users with their addresses become admins")
	}
}

// allowsEmail reports whether an email address belongs to one of the provider's domains.
func (p *OpenIDProvider) allowsEmail(email string) bool {
	return body.IsEmail(email) && slices.Contains(p.Domains, strings.ToLower(email[strings.LastIndexByte(email, '@')+1:]))
}

// allPermissions is a guard for callers that hold every permission. An identity provider's settings decide who each admin is.
type allPermissions struct{}

func (allPermissions) String() string { return "every permission" }

// Check refuses a caller that lacks any permission.
func (allPermissions) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := guard.AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if !c.Principal.Grants.Holds(principal.All) {
		return problem.New(problem.Forbidden, "Only a key with every permission can change identity providers.")
	}
	return nil
}

// providerRoutes returns the operations on identity providers.
func (s *Service) providerRoutes() []rest.Route {
	return rest.Resource[OpenIDProvider, openIDProviderBody]{
		Path:        "/auth/provider",
		ID:          "provider_id",
		Noun:        "identity provider",
		Guard:       guard.ForCredentials(allPermissions{}),
		ReadGuard:   guard.Has(permission.UsersAdmins),
		Extensions:  rest.Listing | rest.Creating | rest.Viewing | rest.Editing | rest.Deleting,
		Table:       "openid_provider",
		Box:         s.Box,
		Retry:       rest.RetryRefused,
		EditExample: `{"domains": ["example.com", "example.net"]}`,
		Lock: func(ctx context.Context, tx *pg.Tx, _ rest.Verbs, _ ...*openIDProviderBody) error {
			return mayWriteProviders(ctx, tx)
		},
		Check: checkProvider,
	}.Routes()
}

// mayWriteProviders checks that the caller still holds every permission.
func mayWriteProviders(ctx context.Context, tx *pg.Tx) error {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return err
	}
	return guard.CheckGrantable(c.Grants, principal.All, "An admin can hold")
}

// checkPermissions refuses unknown permissions. A stored name that is unknown here belongs to a newer version, and stays.
func (b *openIDProviderBody) checkPermissions(stored []string, invalid *problem.Fields) {
	grants := principal.ParseGrants(b.Permissions)
	known := append(grants.Names(), stored...)
	if slices.ContainsFunc(b.Permissions, func(name string) bool { return !slices.Contains(known, name) }) {
		invalid.Add("/permissions", "invalid", "must be permissions such as network.groups read")
	} else if b.Permissions != nil {
		b.Permissions = grants.Rewrite(b.Permissions)
	}
}

// checkProvider refuses unknown permissions, null for a list, and another issuer that would get the stored secret.
func checkProvider(_ context.Context, _ *pg.Tx, _ int64, before, b *openIDProviderBody) error {
	var invalid problem.Fields
	if before == nil {
		b.Domains, b.Permissions = append([]string{}, b.Domains...), append([]string{}, b.Permissions...)
		b.checkPermissions(nil, &invalid)
		return invalid.Err()
	}
	b.checkPermissions(before.Permissions, &invalid)
	if b.Domains == nil {
		invalid.Add("/domains", "required", "cannot be null: send [] for none")
	}
	if b.Permissions == nil {
		invalid.Add("/permissions", "required", "cannot be null: send [] for none")
	}
	if isKept := b.ClientSecret != nil && b.ClientSecret.IsZero(); isKept && b.Issuer != before.Issuer {
		invalid.Add("/client_secret", "required", "is required when the issuer changes")
	}
	return invalid.Err()
}
