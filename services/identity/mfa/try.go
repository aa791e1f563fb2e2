package mfa

import (
	"context"
	"errors"
	"fmt"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// try takes one of a code's tries to look at an answer, and records a wrong one.
func (s *Service) try(ctx context.Context, o *openCode, look func() error) error {
	var wrong *wrongAnswer
	right, err := s.Lockouts.TryCode(ctx, o.owner.URL(), func() (bool, error) {
		if err := s.takeTry(ctx, o); err != nil {
			return false, err
		}
		err := look()
		if errors.As(err, &wrong) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil || right {
		return err
	}
	if err := s.DB.InTx(ctx, func(tx *pg.Tx) error {
		after := map[string]any{"auth": o.auth, "code": o.id}
		if wrong.reason != "" {
			after["reason"] = wrong.reason
		}
		tx.Record(o.record("refused", after))
		if !wrong.copied {
			return nil
		}
		return s.People.NotifyOwner(
			ctx,
			tx,
			o.owner,
			"A security key was refused, because it has signed less often than it had before: there may be a copy of it.",
		)
	}); err != nil {
		return fmt.Errorf("note a wrong answer: %w", err)
	}
	return wrong.field
}

// takeTry takes one of a code's tries. Concurrent answers cannot take more than there are.
func (s *Service) takeTry(ctx context.Context, o *openCode) error {
	return s.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what comes of it is")
		taken, err := tx.Exec(
			ctx,
			"UPDATE verify_code SET tries = tries + 1 WHERE id = $1 AND tries < $2 AND confirmed_at IS NULL AND expires_at > clock_timestamp()",
			o.id,
			maxTries,
		)
		if err != nil {
			return fmt.Errorf("count an answer: %w", err)
		}
		if taken.RowsAffected() == 0 {
			return o.errOver()
		}
		return nil
	})
}

// wrongAnswer is the error of an answer that does not count.
type wrongAnswer struct {
	field  error  // for the caller
	reason string // for the log, of security keys
	copied bool
}

func (w *wrongAnswer) Error() string { return w.field.Error() }

func errWrongCode() error {
	return &wrongAnswer{field: problem.Member("/token", "wrong", "is not the code")}
}
