package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// sweepInterval is how often sweep runs.
const sweepInterval = time.Minute

// sweep deletes rows that have expired, one batch of each kind at a time.
func (s *Service) sweep(ctx context.Context) error {
	for _, sql := range deleteExpired {
		err := s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("expired rows are deleted without a record")
			_, err := tx.Exec(ctx, sql)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete expired rows: %w", err)
		}
	}
	return nil
}

// deleteExpired are the statements that delete the rows which are no longer needed, of every topic.
var deleteExpired = []string{
	"DELETE FROM api_key WHERE id IN (SELECT id FROM api_key WHERE kind <> 'lasting' AND expires_at < now() - interval '1 hour' " +
		"ORDER BY expires_at LIMIT 10000)",
	"DELETE FROM session_value WHERE until < now() - interval '1 hour'",
	"DELETE FROM signed_in_from WHERE last_at < now() - interval '30 days'",
	"DELETE FROM failed_login WHERE since < now() - interval '1 day'",
	"DELETE FROM acting_logged WHERE at < now() - interval '1 hour'",
	"DELETE FROM password_reset WHERE expires_at < now()",
	"DELETE FROM sso_code WHERE expires_at < now()",
	"DELETE FROM account_mail WHERE at < now() - interval '1 hour'",
	"DELETE FROM verify_code WHERE expires_at < now() - interval '1 hour'",
	"DELETE FROM openid_login WHERE expires_at < now()",
}
