package system

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system/license"
)

// License is the installation's license.
type License struct {
	rest.Versioned
	Key           string          `json:"key" doc:"The license. Empty if there is none; then all features are available."`
	HasEnterprise bool            `json:"has_enterprise" doc:"Whether the license is valid and includes themes."`
	IsActive      bool            `json:"is_active" doc:"Whether the license is valid."`
	State         string          `json:"state" ext:"true" enum:"valid,expired,not_yet,bad_signature,none" doc:"not_yet: the license starts later, or the machine's clock is wrong."`
	ExpiresAt     *rest.Timestamp `json:"expires_at,omitempty" ext:"true"`
	RefreshedAt   *rest.Timestamp `json:"refreshed_at,omitempty" ext:"true" doc:"When the license was last read."`
}

// licensing reads licenses from a source and accepts those of one signer.
type licensing struct {
	source license.Source
	signer ed25519.PublicKey
}

// newLicensing validates the configured source and signer.
func newLicensing(s service.Settings) (licensing, error) {
	l := licensing{source: license.Source(s.License)}
	if s.License == "" {
		return l, nil
	}
	if err := l.source.Check(); err != nil {
		return l, fmt.Errorf("IRONPLANE_LICENSE: %w", err)
	}
	var err error
	if l.signer, err = license.ParseSigner(s.LicenseSigner); err != nil {
		return l, fmt.Errorf("IRONPLANE_LICENSE_SIGNER: %w", err)
	}
	return l, nil
}

// refreshRequest is the request to read the license again, and the license that was read.
type refreshRequest struct {
	Body rest.Body[refreshBody]
	read string
}

// refreshBody is the body that panels send.
type refreshBody struct {
	IsWrapped bool `json:"isWrapped" example:"true" doc:"Accepted for compatibility. It has no effect."`
}

func (s *Service) licenseRoutes() []rest.Route {
	has := guard.Has(permission.SystemSettings)
	return []rest.Route{
		rest.Read[rest.None, License]{Path: "/license", Guard: has, Name: "getLicense", Summary: "View the license",
			Do: func(ctx context.Context, _ rest.None) (License, error) { return s.licensing.read(ctx, s.db) }},
		rest.Mutation[refreshRequest, License]{
			Method:  http.MethodPost,
			Path:    "/license/refresh",
			Guard:   has,
			Name:    "refreshLicense",
			Summary: "Read the license again",
			Doc:     "From the configured file or URL. If it cannot be read, the previous license stays in use.",
			Effect:  rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Prepare: func(ctx context.Context, req *refreshRequest) (err error) {
				if req.read, err = s.licensing.source.Read(ctx); err != nil {
					return problem.New(problem.Unavailable, "The license cannot be read from where it is configured. The previous license stays in use.").
						Because(err)
				}
				return nil
			},
			Do: func(ctx context.Context, tx *pg.Tx, req refreshRequest) (License, error) {
				if _, err := req.Body.New(); err != nil {
					return License{}, err
				}
				return s.licensing.store(ctx, tx, req.read)
			},
		},
	}
}

// read returns the stored license with its present state.
func (l licensing) read(ctx context.Context, q pg.Querier) (found License, err error) {
	err = q.QueryRow(ctx, "SELECT version, text, refreshed_at FROM license").Scan(&found.Version, &found.Key, &found.RefreshedAt)
	if err != nil {
		return found, fmt.Errorf("read the license: %w", err)
	}
	terms, state := license.Check(found.Key, l.signer)
	found.State, found.IsActive = state, state == license.Valid
	found.HasEnterprise = found.IsActive && terms.Enterprise
	if terms.ExpiresAt != nil {
		found.ExpiresAt = &rest.Timestamp{Time: terms.ExpiresAt.Time}
	}
	return found, nil
}

// store stores a license and records the change.
func (l licensing) store(ctx context.Context, tx *pg.Tx, text string) (License, error) {
	before, err := l.read(ctx, tx)
	if err != nil {
		return before, err
	}
	if _, err := tx.Exec(ctx, "UPDATE license SET text = $1, refreshed_at = $2, version = version + 1", text, time.Now()); err != nil {
		return before, err
	}
	after, err := l.read(ctx, tx)
	logged := after
	before.Key, logged.Key = "", "" // the log does not need the text
	tx.Record(pg.Record{Kind: "license", Action: "refreshed", Before: before, After: logged,
		Targets: []pg.Target{{Type: "license", Noun: "license", ID: 1, Name: after.State, Version: after.Version}}})
	return after, err
}

// refreshAtStart reads the license when the service starts. If it cannot be read, the previous one stays in use.
func (l licensing) refreshAtStart(ctx context.Context, d service.Deps) error {
	text, err := l.source.Read(ctx)
	if err != nil {
		d.Log.Warn("cannot read the license: using the previous one", "error", err)
		return nil
	}
	return d.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the license did not change")
		if before, err := l.read(ctx, tx); err != nil || before.Key == text {
			return err
		}
		_, err := l.store(ctx, tx, text)
		return err
	})
}
