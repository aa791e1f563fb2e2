package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// RecoveryCodes are the caller's, each of which is good once in place of a code.
type RecoveryCodes struct {
	Left  int      `json:"left" doc:"how many there are"`
	Codes []string `json:"recovery_codes,omitempty" doc:"in the answer that makes them, and never again"`
}

func (s *Service) recoveryCodes() []rest.Route {
	const path = "/auth/verify/recovery"
	routes := []rest.Route{
		rest.Read[rest.None, RecoveryCodes]{
			Path:      path,
			Guard:     guard.AnyKey,
			Name:      "getRecoveryCodes",
			Summary:   "Count one's recovery codes",
			Extension: true,
			Do: func(ctx context.Context, _ rest.None) (codes RecoveryCodes, err error) {
				codes.Left, err = recoveryCodesOf(ctx, s.db, principal.From(ctx).Principal.Owner)
				return codes, err
			},
		},
		rest.Mutation[rest.None, RecoveryCodes]{
			Method:    http.MethodPost,
			Path:      path,
			Guard:     guard.AnyKey,
			Name:      "createRecoveryCodes",
			Summary:   "Make other recovery codes",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsSummary, Again: rest.AgainAnother},
			Allow:     allowed[rest.None],
			Do:        s.createRecoveryCodes,
		},
	}
	for _, of := range []struct {
		owner     principal.OwnerType
		name, who string
	}{{principal.Admin, "deleteAdminVerify", "an admin"}, {principal.Client, "deleteClientVerify", "a client"}} {
		routes = append(
			routes,
			rest.Mutation[rest.Item, rest.Message]{
				Method:    http.MethodDelete,
				Path:      fmt.Sprintf("/%[1]s/{%[1]s_id}/verify", of.owner),
				Guard:     guard.Has(permissionOver(of.owner)),
				Name:      of.name,
				Summary:   fmt.Sprintf("Remove the second factors of %s who has lost them", of.who),
				Extension: true,
				Effect:    rest.Effect{Logs: rest.LogsSummary, Again: rest.AgainAnother},
				Do: func(ctx context.Context, tx *pg.Tx, req rest.Item) (rest.Message, error) {
					return s.removeSecondFactors(ctx, tx, principal.Owner{Type: of.owner, ID: req.ID})
				},
			},
		)
	}
	return routes
}

func (s *Service) createRecoveryCodes(ctx context.Context, tx *pg.Tx, _ rest.None) (RecoveryCodes, error) {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return RecoveryCodes{}, err
	}
	if err := s.mayWriteVerify(ctx, tx, c, c.owner); err != nil {
		return RecoveryCodes{}, err
	}
	_, verified, err := authenticatorsOf(ctx, tx, c.owner, 0)
	if err != nil {
		return RecoveryCodes{}, err
	}
	if verified == 0 {
		return RecoveryCodes{}, problem.New(problem.Conflict, "The account has no verified authenticator, whose codes these could stand for.")
	}
	if err := mustBeConfirmed(ctx, tx, c.key); err != nil {
		return RecoveryCodes{}, err
	}
	had, err := recoveryCodesOf(ctx, tx, c.owner)
	if err != nil {
		return RecoveryCodes{}, err
	}
	codes, err := renewRecoveryCodes(ctx, tx, c.owner)
	if err != nil {
		return RecoveryCodes{}, err
	}
	name := principal.From(ctx).Principal.Name
	tx.Record(
		pg.Record{
			Kind:    string(c.owner.Type),
			Part:    "recovery_codes",
			Action:  "renewed",
			Targets: []pg.Target{accountTarget(c.owner, &name)},
			Before:  RecoveryCodes{Left: had},
			After:   RecoveryCodes{Left: len(codes)},
		},
	)
	return RecoveryCodes{len(codes), codes}, s.tellOwner(ctx, tx, c.owner, "The recovery codes were renewed.")
}

// noItem is the error of a path that names an account, where that of a member of a body is known.
func noItem(err error) error {
	if learn, ok := errors.AsType[pg.RestartAfter](err); ok {
		return pg.RestartAfter(func(ctx context.Context) error { return noItem(learn(ctx)) })
	}
	if problem.Is(err, problem.Invalid) {
		return pgx.ErrNoRows
	}
	return err
}

// removeSecondFactors removes the authenticators of an account, with their codes. One's own take a confirmation, as each by itself does.
func (s *Service) removeSecondFactors(ctx context.Context, tx *pg.Tx, of principal.Owner) (rest.Message, error) {
	c, err := lockedCaller(ctx, tx)
	if err != nil {
		return rest.Message{}, err
	}
	if err := s.holdOwner(ctx, tx, of); err != nil {
		return rest.Message{}, noItem(err)
	}
	if err := s.mayWrite(ctx, tx, c, of); err != nil {
		return rest.Message{}, err
	}
	_, verified, err := authenticatorsOf(ctx, tx, of, 0)
	if err != nil {
		return rest.Message{}, err
	}
	if c.owner == of && verified > 0 {
		if err := mustBeConfirmed(ctx, tx, c.key); err != nil {
			return rest.Message{}, err
		}
	}
	n, err := endSecondFactors(ctx, tx, of)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Unrecorded("there was no authenticator")
	if n > 0 {
		var name *string
		if err := tx.QueryRow(ctx, "SELECT coalesce((SELECT username FROM admin WHERE $1 = 'admin' AND id = $2), (SELECT name FROM ref WHERE type = $1 AND id = $2))", of.Type, of.ID).
			Scan(&name); err != nil {
			return rest.Message{}, fmt.Errorf("read the name of %s: %w", of.URL(), err)
		}
		tx.Record(
			pg.Record{
				Kind:    string(of.Type),
				Part:    "authenticators",
				Action:  "removed",
				Targets: []pg.Target{accountTarget(of, name)},
				Before:  map[string]int64{"authenticators": n},
				After:   struct{}{},
			},
		)
		if verified > 0 {
			err = s.tellOwner(ctx, tx, of, "The authenticators, by which sign-ins were confirmed, were removed.")
		}
	}
	return rest.Message{Message: fmt.Sprintf("Authenticators removed: %d.", n)}, err
}
