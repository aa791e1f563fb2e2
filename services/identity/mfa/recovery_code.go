package mfa

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/person"
)

// RecoveryCodes are the caller's recovery codes. Each can be used once in place of a code.
type RecoveryCodes struct {
	Left  int      `json:"left" doc:"The number of unused recovery codes."`
	Codes []string `json:"recovery_codes,omitempty" doc:"The codes. Only the response that creates them has them."`
}

// recoveryRoutes returns the operations on recovery codes, and those that remove all second factors of an account.
func (s *Service) recoveryRoutes() []rest.Route {
	const path = "/auth/verify/recovery"
	routes := []rest.Route{
		rest.Read[rest.None, RecoveryCodes]{
			Path:      path,
			Guard:     guard.AnyKey,
			Name:      "getRecoveryCodes",
			Summary:   "Count one's recovery codes",
			Extension: true,
			Do: func(ctx context.Context, _ rest.None) (codes RecoveryCodes, err error) {
				codes.Left, err = countRecoveryCodes(ctx, s.DB, principal.FromContext(ctx).Principal.Owner)
				return codes, err
			},
		},
		rest.Mutation[rest.None, RecoveryCodes]{
			Method:    http.MethodPost,
			Path:      path,
			Guard:     guard.ForCredentials(guard.AnyKey),
			Name:      "createRecoveryCodes",
			Summary:   "Replace one's recovery codes",
			Extension: true,
			Effect:    rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Allow:     access.AllowMutation[rest.None],
			Do:        s.createRecoveryCodes,
		},
	}
	for _, route := range []struct {
		owner      principal.OwnerType
		name, noun string
	}{{principal.Admin, "deleteAdminVerify", "an admin"}, {principal.Client, "deleteClientVerify", "a client"}} {
		routes = append(
			routes,
			rest.Mutation[rest.Item, rest.Message]{
				Method:    http.MethodDelete,
				Path:      fmt.Sprintf("/%[1]s/{%[1]s_id}/verify", route.owner),
				Guard:     guard.ForCredentials(guard.Has(access.PermissionFor(route.owner))),
				Name:      route.name,
				Summary:   fmt.Sprintf("Remove the second factors of %s who has lost them", route.noun),
				Extension: true,
				Effect:    rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
				Do: func(ctx context.Context, tx *pg.Tx, req rest.Item) (rest.Message, error) {
					return s.removeSecondFactors(ctx, tx, principal.Owner{Type: route.owner, ID: req.ID})
				},
			},
		)
	}
	return routes
}

// createRecoveryCodes replaces the caller's recovery codes. It takes a verified authenticator and a recent confirmation.
func (s *Service) createRecoveryCodes(ctx context.Context, tx *pg.Tx, _ rest.None) (RecoveryCodes, error) {
	c, err := access.LockCaller(ctx, tx)
	if err != nil {
		return RecoveryCodes{}, err
	}
	if err := s.checkWrite(ctx, tx, c, c.Owner); err != nil {
		return RecoveryCodes{}, err
	}
	_, verified, err := countAuthenticators(ctx, tx, c.Owner, 0)
	if err != nil {
		return RecoveryCodes{}, err
	}
	if verified == 0 {
		return RecoveryCodes{}, problem.New(problem.Conflict, "The account has no verified authenticator, so it has no use for recovery codes.")
	}
	if err := requireConfirmation(ctx, tx, c.KeyID); err != nil {
		return RecoveryCodes{}, err
	}
	before, err := countRecoveryCodes(ctx, tx, c.Owner)
	if err != nil {
		return RecoveryCodes{}, err
	}
	codes, err := renewRecoveryCodes(ctx, tx, c.Owner)
	if err != nil {
		return RecoveryCodes{}, err
	}
	name := principal.FromContext(ctx).Principal.Name
	tx.Record(
		pg.Record{
			Kind:    string(c.Owner.Type),
			Part:    "recovery_codes",
			Action:  "renewed",
			Targets: []pg.Target{person.Target(c.Owner, &name)},
			Before:  RecoveryCodes{Left: before},
			After:   RecoveryCodes{Left: len(codes)},
		},
	)
	return RecoveryCodes{len(codes), codes}, s.People.NotifyOwner(ctx, tx, c.Owner, "The recovery codes were renewed.")
}

// recoveryCodeCount is the number of recovery codes that an account gets. Each has recoveryCodeBytes random bytes, shown in groups
// of four characters.
const recoveryCodeCount, recoveryCodeBytes = 10, 15

// renewRecoveryCodes replaces an account's recovery codes.
func renewRecoveryCodes(ctx context.Context, tx *pg.Tx, owner principal.Owner) (codes []string, err error) {
	if err := deleteRecoveryCodes(ctx, tx, owner); err != nil {
		return nil, err
	}
	var hashes [][]byte
	for range recoveryCodeCount {
		var bits [recoveryCodeBytes]byte
		rand.Read(bits[:])
		text := strings.ToLower(base32.StdEncoding.EncodeToString(bits[:]))
		hashes = append(hashes, keys.HashToken(text))
		codes = append(codes, string(bytes.Join(slices.Collect(slices.Chunk([]byte(text), 4)), []byte("-"))))
	}
	if _, err := tx.Exec(
		ctx,
		"INSERT INTO recovery_code (hash, owner_type, owner_id) SELECT unnest($1::bytea[]), $2, $3",
		hashes,
		owner.Type,
		owner.ID,
	); err != nil {
		return nil, fmt.Errorf("store the recovery codes of %s: %w", owner.URL(), err)
	}
	return codes, nil
}

func deleteRecoveryCodes(ctx context.Context, tx *pg.Tx, owner principal.Owner) error {
	if _, err := tx.Exec(ctx, "DELETE FROM recovery_code WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID); err != nil {
		return fmt.Errorf("delete the recovery codes of %s: %w", owner.URL(), err)
	}
	return nil
}

// countRecoveryCodes returns how many unused recovery codes an account has.
func countRecoveryCodes(ctx context.Context, q pg.Querier, owner principal.Owner) (left int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM recovery_code WHERE owner_type = $1 AND owner_id = $2", owner.Type, owner.ID).Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("count the recovery codes of %s: %w", owner.URL(), err)
	}
	return left, nil
}
