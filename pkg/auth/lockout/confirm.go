package lockout

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Confirm tells whether a password is that of the calling account, whose hash db stores. A wrong password is recorded.
// Too many of them are refused with a 429.
func (l *Lockouts) Confirm(
	ctx context.Context,
	db *pg.DB,
	hasher account.Hasher,
	password secret.String,
	hash string,
) (right bool, err error) {
	call := principal.FromContext(ctx)
	owner := call.Principal.Owner
	guess := Guess{Name: owner.URL(), Address: call.IP, Key: call.Principal.KeyID}
	right, err = l.Try(ctx, guess, func() (bool, error) { return hasher.Matches(ctx, password, hash) })
	if err != nil {
		return false, fmt.Errorf("compare the current password: %w", err)
	}
	if right {
		return true, nil
	}
	return false, db.InTx(ctx, func(tx *pg.Tx) error {
		kind := string(owner.Type)
		tx.Record(
			pg.Record{
				Kind:    kind,
				Part:    "password",
				Action:  "refused",
				Targets: []pg.Target{{Type: kind, Noun: kind, ID: owner.ID, Name: call.Principal.Name}},
				After:   refused{"current_password"},
			},
		)
		return nil
	})
}

// refused is the content of the record of a wrong password.
type refused struct {
	Member string `json:"member"`
}
