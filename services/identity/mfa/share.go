package mfa

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/auth/throttle"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/identity/access"
)

const (
	// maxOpenCodes bounds the open challenges of an account and origin.
	maxOpenCodes = 20
	// maxMailedCodes bounds the codes that are mailed within CodeTTL for an account and origin.
	maxMailedCodes = 60
)

// maxMailedFrom bounds the mailed codes for requests from a network, for each of throttle.Networks.
var maxMailedFrom = [throttle.Levels]int{10, 10, 20, 20}

// origin is how a challenge was asked for. Challenges, mailed codes and wrong answers are counted by account and origin. So somebody
// who knows only the password uses up the share of logins, and not that of the owner's known devices and sessions.
type origin string

const (
	fromLogin   origin = "login"
	fromDevice  origin = "device" // a login from a known device
	fromSession origin = "session"
)

// guessName returns the name by which wrong answers to an account's challenges are counted.
func (o origin) guessName(owner principal.Owner) string {
	if o == fromLogin {
		return owner.URL()
	}
	return owner.URL() + " from a " + string(o)
}

// readAddresses reads the ids and callers of an account's challenges that meet a condition, the oldest first. An older version stored
// neither origin nor address: the challenge then counts for logins, and for the unknown address.
func readAddresses(ctx context.Context, tx *pg.Tx, o *challengeOptions, condition string) (ids []int64, from []netip.Addr, err error) {
	owner := o.person.Owner
	rows, err := tx.Query(
		ctx,
		"SELECT id, address FROM verify_code WHERE owner_type = $1 AND owner_id = $2 AND origin = $3 AND "+condition+" ORDER BY id",
		owner.Type,
		owner.ID,
		o.origin,
	)
	if err != nil {
		return nil, nil, fmt.Errorf("read the challenges of %s: %w", owner.URL(), err)
	}
	var id int64
	var address *netip.Addr
	_, err = pgx.ForEachRow(rows, []any{&id, &address}, func() error {
		if address == nil {
			address = &netip.Addr{}
		}
		ids, from = append(ids, id), append(from, *address)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the challenges of %s: %w", owner.URL(), err)
	}
	return ids, from, nil
}

// countNetworks counts the networks of addresses.
func countNetworks(from []netip.Addr) map[netip.Prefix]int {
	counts := map[netip.Prefix]int{}
	for _, address := range from {
		for _, network := range throttle.Networks(address) {
			counts[network]++
		}
	}
	return counts
}

// dropOldest makes room for a challenge if maxOpenCodes are open. It drops one of those whose networks have the most, the oldest one.
// So a network drops its own challenges first. The account's challenges are locked.
func dropOldest(ctx context.Context, tx *pg.Tx, o *challengeOptions) error {
	// now() is when this unit of work began, and others may have dropped challenges since.
	ids, from, err := readAddresses(ctx, tx, o, "expires_at > clock_timestamp() AND confirmed_at IS NULL")
	if err != nil || len(ids) < maxOpenCodes {
		return err
	}
	counts := countNetworks(append(from, access.Address(ctx)))
	var oldest int64
	maxWeight := -1.0
	for i, id := range ids {
		var open [throttle.Levels]int
		for level, network := range throttle.Networks(from[i]) {
			open[level] = counts[network]
		}
		if weight := throttle.Weight(open); weight > maxWeight {
			oldest, maxWeight = id, weight
		}
	}
	_, err = tx.Exec(
		ctx,
		"UPDATE verify_code SET version = version + 1, expires_at = clock_timestamp(), token = NULL WHERE id = $1 AND confirmed_at IS NULL",
		oldest,
	)
	if err != nil {
		return fmt.Errorf("drop a challenge of %s: %w", o.person.Owner.URL(), err)
	}
	return nil
}

// checkMailed refuses to mail another code if the caller's networks, or all together, had too many. Dropped codes count, too: nobody
// can flood the owner's mailbox. The account's challenges are locked.
func checkMailed(ctx context.Context, tx *pg.Tx, o *challengeOptions) error {
	_, from, err := readAddresses(ctx, tx, o, fmt.Sprintf("mailed_at > now() - interval '%d seconds'", int(CodeTTL.Seconds())))
	if err != nil {
		return err
	}
	counts := countNetworks(from)
	tooMany := len(from) >= maxMailedCodes
	for level, network := range throttle.Networks(access.Address(ctx)) {
		tooMany = tooMany || counts[network] >= maxMailedFrom[level]
	}
	if !tooMany {
		return nil
	}
	refused := problem.New(problem.TooManyRequests, "Too many codes were mailed to the account. Try again later.")
	refused.RetryAfter = CodeTTL
	return refused
}
