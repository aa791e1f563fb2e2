package admin

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// AdminsWrite is the grant that lets an admin change other admins' permissions.
var AdminsWrite = principal.Grant(permission.UsersAdmins, permission.Write)

// IsLast reports whether no other enabled admin holds AdminsWrite. It is called under access.Lock.
func IsLast(ctx context.Context, tx *pg.Tx, id int64) (last bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT permissions @> ARRAY[$2] AND NOT disabled AND NOT EXISTS (SELECT FROM admin o WHERE o.id <> $1 AND o.permissions @> ARRAY[$2] AND NOT o.disabled)
		FROM admin WHERE id = $1`, id, AdminsWrite.Names()[0]).Scan(&last)
	if err != nil {
		return false, fmt.Errorf("find other admins: %w", err)
	}
	return last, nil
}
