package identity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// What is tried with an account.
const (
	refusedLogin = "login"
	askedReset   = "reset"
)

// attempt is what somebody tried with an account that need not be his. It is noted in one way whether there is such an account, and logged
// a
// moment later, when nobody waits for it who could tell the difference.
type attempt struct {
	what    string
	of      person     // nobody: the name is unknown
	expires *time.Time // of a link
}

func noteAttempt(ctx context.Context, tx *pg.Tx, a attempt) error {
	tx.Unrecorded("it is recorded a moment later")
	call := principal.From(ctx)
	caller := principal.Call{IP: call.IP, RequestID: call.RequestID}
	if p := call.Principal; p != nil {
		caller.Principal = &principal.Principal{KeyID: p.KeyID, Owner: p.Owner, Name: p.Name}
	}
	_, err := tx.Exec(ctx, "INSERT INTO attempt (what, owner_type, owner_id, name, expires_at, caller) VALUES ($1, $2, $3, $4, $5, $6)",
		a.what, a.of.owner.Type, a.of.owner.ID, a.of.Name, a.expires, caller)
	if err != nil {
		return fmt.Errorf("note an attempt: %w", err)
	}
	return nil
}

// logAttempts logs what was noted: of a known account each by itself, and among those of a minute those by names that nobody has.
func (s *Service) logAttempts(ctx context.Context) error {
	for {
		switch err := s.logAttempt(ctx); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("log an attempt: %w", err)
		}
	}
}

func (s *Service) logAttempt(ctx context.Context) error {
	var caller principal.Call
	ctx = principal.With(ctx, &caller)
	return s.db.InTx(ctx, func(tx *pg.Tx) error {
		var a attempt
		caller = principal.Call{}
		err := tx.QueryRow(ctx, `
			DELETE FROM attempt WHERE id = (SELECT id FROM attempt ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING what, owner_type, owner_id, name, expires_at, caller`).Scan(&a.what, &a.of.owner.Type, &a.of.owner.ID, &a.of.Name, &a.expires, &caller)
		if err != nil {
			return err
		}
		a.of.ID = a.of.owner.ID
		switch record := (pg.Record{Kind: string(a.of.owner.Type), Targets: []pg.Target{a.of.target()}}); {
		case !a.of.exists():
			tx.Unrecorded("it is counted")
			return countUnknownName(ctx, tx, networkOf(ctx))
		case a.what == askedReset:
			record.Part, record.Action, record.Before, record.After = resetKind, "asked", struct{}{}, map[string]any{
				"expires_at": a.expires.UTC().Format(time.RFC3339),
			}
			tx.Record(record)
		default:
			record.Part, record.Action, record.After = "password", "refused", map[string]string{"member": "password"}
			tx.Record(record)
		}
		return nil
	})
}

// countUnknownName counts a name that nobody has.
func countUnknownName(ctx context.Context, tx *pg.Tx, network netip.Prefix) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO unknown_name (network, minute) VALUES ($1, date_trunc('minute', clock_timestamp()))
		ON CONFLICT (minute, network) DO UPDATE SET tried = unknown_name.tried + 1`, network)
	return err
}

// mostCounted is how many networks' attempts by unknown names are logged at a time.
const mostCounted = 1000

// logUnknownNames logs the counts of minutes that are over.
func (s *Service) logUnknownNames(ctx context.Context) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("there was none")
		rows, err := tx.Query(ctx, `
			DELETE FROM unknown_name WHERE (minute, network) IN (
				SELECT minute, network FROM unknown_name WHERE minute < date_trunc('minute', clock_timestamp()) ORDER BY minute, network LIMIT $1 FOR UPDATE SKIP LOCKED)
			RETURNING network, minute, tried`, mostCounted)
		if err != nil {
			return err
		}
		var network netip.Prefix
		var minute time.Time
		var tried int64
		_, err = pgx.ForEachRow(rows, []any{&network, &minute, &tried}, func() error {
			tx.Record(
				pg.Record{
					Kind:   "auth.login",
					Action: "refused",
					After:  map[string]any{"network": network.String(), "minute": minute.UTC().Format(time.RFC3339), "unknown_names": tried},
				},
			)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("log attempts by unknown names: %w", err)
	}
	return nil
}
