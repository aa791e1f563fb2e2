package mfa

import (
	"context"
	"errors"
	"fmt"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/identity/person"
)

// tryAnswer counts one of a code's tries, compares an answer, and records an invalid one.
func (s *Service) tryAnswer(ctx context.Context, o *pendingCode, compare func() error) error {
	var invalid *invalidAnswer
	matches, err := s.Lockouts.TryCode(ctx, o.origin.guessName(o.owner), func() (bool, error) {
		if err := s.countTry(ctx, o); err != nil {
			return false, err
		}
		err := compare()
		if errors.As(err, &invalid) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || matches {
		return err
	}
	if err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		after := map[string]any{"auth": o.auth, "code": o.id}
		if invalid.reason != "" {
			after["reason"] = invalid.reason
		}
		tx.Record(o.record("refused", after))
		if o.login { // the caller has sent the right password
			if err := s.People.CountFailure(ctx, tx, o.owner, person.FailedCode); err != nil {
				return err
			}
		}
		if !invalid.copied {
			return nil
		}
		return s.People.NotifyOwner(
			ctx,
			tx,
			o.owner,
			"A security key was refused because its signature counter went back: there may be a copy of it.",
		)
	}); err != nil {
		return fmt.Errorf("record an invalid answer: %w", err)
	}
	return invalid.field
}

// countTry counts one of a code's tries. Concurrent answers cannot exceed maxTries.
func (s *Service) countTry(ctx context.Context, o *pendingCode) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the result is recorded")
		counted, err := tx.Exec(
			ctx,
			"UPDATE verify_code SET tries = tries + 1 WHERE id = $1 AND tries < $2 AND confirmed_at IS NULL AND expires_at > clock_timestamp()",
			o.id,
			maxTries,
		)
		if err != nil {
			return fmt.Errorf("count an answer: %w", err)
		}
		if counted.RowsAffected() == 0 {
			return o.errExpired()
		}
		return nil
	})
}

// invalidAnswer is the error of an answer that does not count.
type invalidAnswer struct {
	field  error  // for the caller
	reason string // for the log, of security keys
	copied bool
}

func (w *invalidAnswer) Error() string { return w.field.Error() }

// errInvalidCode returns the refusal of a code that does not match.
func errInvalidCode() error {
	return &invalidAnswer{field: problem.Member("/token", "wrong", "is not the code")}
}
