package login

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/person"
)

// The kinds of attempts.
const (
	refusedLogin = "login"
	askedReset   = "reset"
)

// attempt is a login or a password reset that a caller tried. It is stored in the same way whether or not the account exists. It
// is logged later, when no caller waits that could tell the difference by the time.
type attempt struct {
	kind    string
	person  person.Person // the zero Person: the name is unknown
	expires *time.Time    // when a link expires
}

// storeAttempt stores an attempt with its caller, and wakes LogAttempts.
func storeAttempt(ctx context.Context, tx *pg.Tx, a attempt) error {
	tx.Unrecorded("LogAttempts records it")
	tx.Wake(Attempted)
	call := principal.FromContext(ctx)
	caller := principal.Call{IP: call.IP, RequestID: call.RequestID}
	if p := call.Principal; p != nil {
		caller.Principal = &principal.Principal{KeyID: p.KeyID, Owner: p.Owner, Name: p.Name}
	}
	_, err := tx.Exec(ctx, "INSERT INTO attempt (what, owner_type, owner_id, name, expires_at, caller) VALUES ($1, $2, $3, $4, $5, $6)",
		a.kind, a.person.Owner.Type, a.person.Owner.ID, a.person.Name, a.expires, caller)
	if err != nil {
		return fmt.Errorf("store an attempt: %w", err)
	}
	return nil
}

const (
	// Attempted is the wake-up that the service sends itself when an attempt was stored.
	Attempted = "attempts"
	// attemptDelay is how long LogAttempts waits, so that callers have their responses by then.
	attemptDelay = time.Second
	// CountInterval is how often LogUnknownNames runs.
	CountInterval = 15 * time.Second
)

// LogAttempts logs the stored attempts after attemptDelay. Attempts with an unknown name are counted by the minute instead.
func (s *Logins) LogAttempts(ctx context.Context) error {
	select {
	case <-time.After(attemptDelay):
	case <-ctx.Done():
		return nil
	}
	for {
		switch err := s.logAttempt(ctx); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("log an attempt: %w", err)
		}
	}
}

// logAttempt logs the oldest stored attempt, and deletes it. The error is pgx.ErrNoRows if there is none.
func (s *Logins) logAttempt(ctx context.Context) error {
	var caller principal.Call
	ctx = principal.NewContext(ctx, &caller)
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		var a attempt
		caller = principal.Call{}
		err := tx.QueryRow(ctx, `
			DELETE FROM attempt WHERE id = (SELECT id FROM attempt ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
			RETURNING what, owner_type, owner_id, name, expires_at, caller`).Scan(&a.kind, &a.person.Owner.Type, &a.person.Owner.ID, &a.person.Name, &a.expires, &caller)
		if err != nil {
			return err
		}
		a.person.ID = a.person.Owner.ID
		switch record := (pg.Record{Kind: string(a.person.Owner.Type), Targets: []pg.Target{a.person.Target()}}); {
		case !a.person.Exists():
			tx.Unrecorded("LogUnknownNames records the count")
			return countUnknownName(ctx, tx, access.Network(ctx))
		case a.kind == askedReset:
			record.Part, record.Action, record.Before, record.After = resetKind, "asked", struct{}{}, map[string]any{
				"expires_at": a.expires.UTC().Format(time.RFC3339),
			}
			tx.Record(record)
		default:
			record.Part, record.Action, record.After = "password", "refused", map[string]string{"member": "password"}
			tx.Record(record)
			return s.People.CountFailure(ctx, tx, a.person.Owner, person.FailedPassword)
		}
		return nil
	})
}

// countUnknownName counts an attempt with an unknown name.
func countUnknownName(ctx context.Context, tx *pg.Tx, network netip.Prefix) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO unknown_name (network, minute) VALUES ($1, date_trunc('minute', clock_timestamp()))
		ON CONFLICT (minute, network) DO UPDATE SET tried = unknown_name.tried + 1`, network)
	return err
}

// maxCounted bounds the counts that are logged at a time.
const maxCounted = 1000

// LogUnknownNames logs how many unknown names each network has tried, once the minute is over.
func (s *Logins) LogUnknownNames(ctx context.Context) error {
	err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("there was none")
		rows, err := tx.Query(ctx, `
			DELETE FROM unknown_name WHERE (minute, network) IN (
				SELECT minute, network FROM unknown_name WHERE minute < date_trunc('minute', clock_timestamp()) ORDER BY minute, network LIMIT $1 FOR UPDATE SKIP LOCKED)
			RETURNING network, minute, tried`, maxCounted)
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
