package identity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
)

// listKeys is a request for keys.
type listKeys struct {
	Unused int64 `query:"unused_days" min:"1" max:"36500" doc:"lasting keys that were made longer ago than so many days, and not used since"`
}

func (s *Service) keyLists() rest.Route {
	return rest.List[listKeys, APIKey]{
		DB:      s.db,
		Path:    "/auth/key",
		Guard:   guard.AnyKey,
		Name:    "listAPIKeys",
		Summary: "List API keys",
		Doc:     "There are those items that the caller may know of.",
		View:    "api_key_view",
		Where: func(ctx context.Context, q listKeys) ([]pg.Condition, error) {
			where := readableKeys(ctx)
			if q.Unused > 0 {
				where = append(
					where,
					pg.Condition{SQL: "kind = 'lasting' AND coalesce(last_used_at, created_at) < now() - $1 * interval '1 day'", Args: []any{q.Unused}},
				)
			}
			return where, nil
		},
		By: rest.By{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name"},
			Filters: map[string]string{"name": "name", "owner": "owner_url", "owner_type": "owner_type", "owner_id": "owner_id"},
		},
	}
}

// usedKeys are ids with commas between.
type usedKeys struct {
	Keys string `query:"keys" max:"20000"`
}

// usesRoute is told by gateways which keys were used of late.
func (s *Service) usesRoute() rest.Route {
	return rest.Read[usedKeys, rest.None]{
		Path:   keycache.UsesPath,
		Guard:  guard.Peers(principal.Gateway),
		Writes: true,
		Do: func(ctx context.Context, req usedKeys) (none rest.None, err error) {
			var ids []int64
			for text := range strings.SplitSeq(req.Keys, ",") {
				id, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return none, fmt.Errorf("read which keys were used: %w", err)
				}
				ids = append(ids, id)
			}
			return none, s.db.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("what was done with them is recorded")
				_, err := tx.Exec(ctx, `UPDATE api_key SET last_used_at = now() WHERE id IN (
				SELECT id FROM api_key WHERE id = ANY ($1) AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute') ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)`, ids)
				return err
			})
		},
	}
}

// mostNetworks is how many networks a key can be bound to.
const mostNetworks = 50

// checkNetworks puts the networks that a key is good from into the form in which they are kept.
func (b *apiKeyBody) checkNetworks(wrong *problem.Fields) {
	if len(b.Networks) > mostNetworks {
		wrong.Add("/allowed_cidrs", "too_long", "can have at most %d networks", mostNetworks)
		return
	}
	networks := []string{}
	for _, text := range b.Networks {
		network, err := parseNetwork(text)
		if err != nil {
			wrong.Add("/allowed_cidrs", "invalid", "must be networks such as 192.0.2.0/24 and 2001:db8::/32, or addresses")
			return
		}
		networks = append(networks, network.String())
	}
	b.Networks = networks
}

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return address.Unmap().Prefix(address.Unmap().BitLen())
	}
	network, err := netip.ParsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		err = fmt.Errorf("%s is of IPv4 addresses, and does not say so", text)
	}
	return network.Masked(), err
}

// networksOf reads what checkNetworks has kept.
func networksOf(kept []string) (all []netip.Prefix) {
	for _, text := range kept {
		network, _ := parseNetwork(text) // one that cannot be read has no addresses: without it the key might be good from anywhere
		all = append(all, network)
	}
	return all
}

// mayComeFrom keeps a key that is made or edited with one that is good from some networks alone to these.
func (c caller) mayComeFrom(b *apiKeyBody) error {
	if len(c.networks) == 0 {
		return nil
	}
	if len(b.Networks) == 0 {
		b.Networks = c.networks
	}
	if network := outside(b.Networks, c.networks); network.IsValid() {
		return problem.Member("/allowed_cidrs", "out_of_range", "has %s, from where the calling key is not good", network)
	}
	return nil
}

// outside is one of these networks that is within none of others; the zero Prefix: there is none.
func outside(networks, others []string) netip.Prefix {
	for _, network := range networksOf(networks) {
		if !slices.ContainsFunc(
			networksOf(others),
			func(o netip.Prefix) bool { return o.Bits() <= network.Bits() && o.Contains(network.Addr()) },
		) {
			return network
		}
	}
	return netip.Prefix{}
}

// told is something that the owner of an account is told by mail.
type told struct {
	Owner   principal.Owner `json:"owner"`
	Changes []string        `json:"changes,omitempty"`
	Key     string          `json:"key,omitempty"` // the name of one that ends
	Expires time.Time       `json:"expires,omitzero"`
}

// tellJob tells it: who has a client's address is another service.
func (s *Service) tellJob() service.Job {
	return service.Job{Kind: "tell-account", Attempts: 10, Do: jobs.Do(func(ctx context.Context, _ *service.Attempt, what told) error {
		p, err := s.personOf(ctx, what.Owner)
		if err != nil || !p.exists() || p.Email == "" {
			return err
		}
		return s.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("what it tells of is recorded")
			if len(what.Changes) > 0 {
				return s.tell(ctx, tx, p, what.Changes...)
			}
			return mail.Send(ctx, tx, s.outbox, p.owner.URL(), p.to(), mail.KeyExpires{Key: what.Key, Expires: what.Expires})
		})
	})}
}

// tellLater has an account told something, if the unit of work is committed. An integration has no mailbox.
func (s *Service) tellLater(ctx context.Context, tx *pg.Tx, what told) error {
	if what.Owner.Type == principal.Integration {
		return nil
	}
	job := s.tellJob()
	return jobs.Enqueue(ctx, tx, &job, what)
}

const (
	// warnPause is how often it is looked for keys that end within warnTime.
	warnPause  = 10 * time.Second
	warnTime   = 7 * 24 * time.Hour
	mostWarned = 100
)

// warn tells the owners of keys that these end soon. Of those that were made for a shorter time, they know.
func (s *Service) warn(ctx context.Context) error {
	err := s.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is changed that callers see")
		rows, err := tx.Query(ctx, `
			UPDATE api_key SET warned_for = expires_at WHERE id IN (
				SELECT id FROM api_key WHERE kind = 'lasting' AND expires_at BETWEEN now() AND now() + $1 AND expires_at - created_at > $1 AND warned_for IS DISTINCT FROM expires_at
				ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)
			RETURNING owner_type, owner_id, name, expires_at`, warnTime, mostWarned)
		if err != nil {
			return err
		}
		ending, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k told, err error) {
			return k, row.Scan(&k.Owner.Type, &k.Owner.ID, &k.Key, &k.Expires)
		})
		if err != nil {
			return err
		}
		for _, key := range ending {
			key.Expires = key.Expires.UTC()
			if err := s.tellLater(ctx, tx, key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("warn of keys that expire: %w", err)
	}
	return nil
}
