// Package openid lets admins sign in with their company's identity provider, by OpenID Connect.
package openid

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
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
	Issuer      string   `json:"issuer" db:"issuer"`
	ClientID    string   `json:"client_id" db:"client_id"`
	Domains     []string `json:"domains" db:"domains" doc:"an admin is found, once, by a verified address of one of these"`
	MakesAdmins bool     `json:"makes_admins" db:"makes_admins" doc:"whether who has such an address and is no admin becomes one"`
	Permissions []string `json:"permissions" db:"permissions" doc:"what these hold"`
	Disabled    bool     `json:"disabled" db:"disabled"`
}

type openIDProviderBody struct {
	Name         string         `json:"name" db:"name" required:"create" max:"100" example:"Example Inc." doc:"what panels call it; no other provider has it"`
	Issuer       string         `json:"issuer" db:"issuer" required:"create" max:"500" example:"https://login.example.com" doc:"as its tokens name it; https://, or http:// in networks that IRONPLANE_ALLOWED_NETWORKS names"`
	ClientID     string         `json:"client_id" db:"client_id" required:"create" max:"500" example:"ironplane"`
	ClientSecret *secret.String `json:"client_secret" db:"client_secret" max:"1000" example:"what the provider has given out" doc:"kept sealed and never shown; on edit, empty: unchanged"`
	Domains      []string       `json:"domains" db:"domains" example:"[\"example.com\"]" doc:"an admin is found, once, by a verified address of one of these"`
	MakesAdmins  bool           `json:"makes_admins" db:"makes_admins" example:"false" doc:"whether who has such an address and is no admin becomes one"`
	Permissions  []string       `json:"permissions" db:"permissions" example:"[\"network.groups read\"]" doc:"what these hold"`
	Disabled     bool           `json:"disabled" db:"disabled" example:"false" doc:"nobody signs in by it"`
}

const maxDomains = 100

var domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}$`)

// Resolve checks what the tags cannot say.
func (b *openIDProviderBody) Resolve(invalid *problem.Fields) {
	if u, err := url.Parse(
		b.Issuer,
	); b.Issuer != "" &&
		(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		invalid.Add("/issuer", "invalid", "must be an address such as https://login.example.com")
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
		invalid.Add("/makes_admins", "out_of_range", "takes domains, whose addresses become admins")
	}
}

// lists tells whether an email address is of one of the provider's domains.
func (p *OpenIDProvider) lists(email string) bool {
	var invalid problem.Fields
	if account.CheckEmail(email, &invalid); len(invalid) > 0 {
		return false
	}
	return slices.Contains(p.Domains, strings.ToLower(email[strings.LastIndexByte(email, '@')+1:]))
}

// everything lets callers through that hold every permission. Whoever names a provider decides who each admin is.
type everything struct{}

func (everything) String() string { return "every permission" }

func (everything) Check(c *principal.Call, a permission.Access, id int64) error {
	if err := guard.AnyKey.Check(c, a, id); err != nil {
		return err
	}
	if !c.Principal.Grants.Holds(principal.All) {
		return problem.New(problem.Forbidden, "The key lacks some of every permission, without which nobody says who admins are.")
	}
	return nil
}

func (s *Service) providerRoutes() []rest.Route {
	return rest.Resource[OpenIDProvider, openIDProviderBody]{
		Path:      "/auth/provider",
		ID:        "provider_id",
		Noun:      "identity provider",
		Guard:     everything{},
		ReadGuard: guard.Has(permission.UsersAdmins),
		Additions: rest.Listing | rest.Creating | rest.Viewing | rest.Editing | rest.Deleting,
		Table:     "openid_provider",
		Box:       s.Box,
		Again:     rest.AgainRefused,
		Edited:    `{"domains": ["example.com", "example.net"]}`,
		Lock: func(ctx context.Context, tx *pg.Tx, _ ...*openIDProviderBody) error {
			return mayWriteProviders(ctx, tx)
		},
		Check: checkProvider,
	}.Routes()
}

// mayWriteProviders checks that the caller still holds every permission.
func mayWriteProviders(ctx context.Context, tx *pg.Tx) error {
	c, err := access.Locked(ctx, tx)
	if err != nil {
		return err
	}
	return guard.MayGive(c.Grants, principal.All, "An admin can hold")
}

// checkPermissions refuses names that are no permissions. A name that is stored already is one that a newer version knows.
func (b *openIDProviderBody) checkPermissions(stored []string, invalid *problem.Fields) {
	grants := principal.ParseGrants(b.Permissions)
	known := append(grants.Names(), stored...)
	if slices.ContainsFunc(b.Permissions, func(name string) bool { return !slices.Contains(known, name) }) {
		invalid.Add("/permissions", "invalid", "must be permissions such as network.groups read")
	} else if b.Permissions != nil {
		b.Permissions = grants.Rewrite(b.Permissions)
	}
}

// checkProvider refuses to keep the secret when the issuer changes, names that are no permissions, and null for a list.
func checkProvider(_ context.Context, _ *pg.Tx, _ int64, before, b *openIDProviderBody) error {
	var invalid problem.Fields
	if before == nil {
		b.Domains, b.Permissions = append([]string{}, b.Domains...), append([]string{}, b.Permissions...)
		b.checkPermissions(nil, &invalid)
		return invalid.Err()
	}
	b.checkPermissions(before.Permissions, &invalid)
	if b.Domains == nil {
		invalid.Add("/domains", "required", "cannot be null: none is []")
	}
	if b.Permissions == nil {
		invalid.Add("/permissions", "required", "cannot be null: none is []")
	}
	if kept := b.ClientSecret != nil && b.ClientSecret.IsZero(); kept && b.Issuer != before.Issuer {
		invalid.Add("/client_secret", "required", "is required where the issuer is another one")
	}
	return invalid.Err()
}
