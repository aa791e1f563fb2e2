package rows

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// fillIdentity writes admins and API keys.
func fillIdentity(ctx context.Context, l *loader) error {
	admins := max(3, int(math.Sqrt(float64(l.Entities))/5))
	maxID, err := l.maxID(ctx, "admin")
	if err != nil {
		return err
	}
	first := []string{
		"anna",
		"ben",
		"chloe",
		"david",
		"elif",
		"finn",
		"greta",
		"hugo",
		"ines",
		"jonas",
		"kim",
		"lena",
		"mira",
		"noah",
		"olga",
		"paul",
	}
	family := []string{"keller", "novak", "rossi", "smith", "tanaka", "weber", "young", "zhang", "meyer", "silva"}
	r := l.random(adminSource)
	grants := principal.All.Names()
	err = l.copy(ctx, "admin", []string{"id", "username", "email", "receive_copies", "permissions"}, admins, func(i int) []any {
		id := maxID + int64(i) + 1
		username := fmt.Sprintf("%s.%s.%d", first[r.IntN(len(first))], family[r.IntN(len(family))], id)
		held := []string{}
		for _, name := range grants {
			if r.IntN(3) == 0 {
				held = append(held, name)
			}
		}
		return []any{id, username, username + "@example.net", r.IntN(4) == 0, held}
	})
	if err != nil {
		return err
	}
	if err := l.setSequence(ctx, "admin"); err != nil {
		return err
	}
	return fillKeys(ctx, l, maxID+1, admins)
}

// fillKeys writes API keys with random hashes, so nobody can use them.
func fillKeys(ctx context.Context, l *loader, firstAdmin int64, admins int) error {
	maxID, err := l.maxID(ctx, "api_key")
	if err != nil {
		return err
	}
	names := []string{"billing", "monitoring", "deploy", "backup", "laptop", "phone", "reports"}
	r := l.random(keySource)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	keys := admins*3 + l.Entities/100
	err = l.copy(ctx, "api_key", []string{"id", "name", "hash", "owner_type", "owner_id", "expires_at"}, keys, func(i int) []any {
		hash := make([]byte, 0, 32)
		for range 32 {
			hash = append(hash, byte(r.Uint32()))
		}
		owner, id := principal.Client, 1+r.Int64N(int64(l.Entities/40+1))
		switch {
		case i < admins*3:
			owner, id = principal.Admin, firstAdmin+int64(i/3)
		case r.IntN(20) == 0:
			owner, id = principal.Integration, 1+r.Int64N(20)
		}
		var expires any
		if r.IntN(3) == 0 {
			expires = begin.AddDate(0, r.IntN(36), 0)
		}
		return []any{maxID + int64(i) + 1, names[r.IntN(len(names))], hash, string(owner), id, expires}
	})
	if err != nil {
		return err
	}
	return l.setSequence(ctx, "api_key")
}
