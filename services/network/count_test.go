package network_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// The counts of groups are right at every moment, during concurrent changes and between folds.
func TestCountsStayExact(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	service := network.New(db, box, agreeing{})
	c := testkit.NewClient(
		t,
		testkit.As(rest.NewHandler(network.Name, db, slog.New(slog.DiscardHandler), service.Routes()), testkit.AdminWith(principal.All)),
	)
	for _, name := range []string{"here", "there", "busy", "busier", "never used"} {
		c.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	const movers, workers, rounds = 4, 4, 20
	for i := range movers {
		c.Do("POST", "/entity", entity(1, fmt.Sprint("192.0.2.", i), int64(i)+1)).Want(200)
	}
	working, stop := context.WithCancel(t.Context())
	var watching, all sync.WaitGroup
	watching.Go(func() {
		for working.Err() == nil {
			if err := service.FoldCounts(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	watching.Go(func() { // each mover is in one of two groups, with a server of its own
		for working.Err() == nil {
			groups := testkit.Decode[[]network.IPGroup](c.Do("GET", "/group", nil))
			if n, m := groups[0].EntitiesCount+groups[1].EntitiesCount, groups[0].Servers.Count+groups[1].Servers.Count; n != movers || m != movers {
				t.Errorf("got %d entities and %d servers, want %d of each: %+v", n, m, movers, groups[:2])
				return
			}
		}
	})
	for i := range movers {
		all.Go(func() {
			for round := range rounds {
				c.Do("PATCH", fmt.Sprint("/entity/", i+1), map[string]any{"group": 1 + (round+1)%2}).Want(200)
			}
		})
	}
	for i := range workers {
		all.Go(func() { change(c, rand.New(rand.NewPCG(uint64(i), 0)), i, rounds) })
	}
	all.Wait()
	stop()
	watching.Wait()

	counted := rows(
		t,
		db,
		`SELECT concat_ws(' ', g.id, coalesce(c.entities, 0), coalesce(c.servers, 0)) FROM ip_group g LEFT JOIN ip_group_counted c ON c.group_id = g.id`,
	)
	if shown := rows(t, db, `SELECT concat_ws(' ', id, entities_count, servers_count) FROM ip_group_view`); shown != counted {
		t.Errorf("got the counts\n%s\nwant\n%s", shown, counted)
	}
	if err := service.FoldCounts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for count, recounted := range map[string]string{"ip_group_count": "ip_group_counted", "ip_group_server_count": "ip_group_server_counted",
		"ip_free_count": "ip_free_counted", "ip_free_chunk": "ip_free_chunked"} {
		if a, b := rows(t, db, "SELECT r::text FROM "+count+" r"), rows(t, db, "SELECT r::text FROM "+recounted+" r"); a != b {
			t.Errorf("%s: got\n%s\nwant, as in %s,\n%s", count, a, recounted, b)
		}
	}
	if left := rows(
		t,
		db,
		"SELECT id::text FROM ip_group_delta UNION ALL SELECT id::text FROM ip_group_server_delta UNION ALL SELECT id::text FROM ip_free_delta",
	); left != "" {
		t.Errorf("got the changes %s left, want all folded", left)
	}
}

// change creates, edits, assigns, moves and deletes entities in two groups, beside others that do the same.
func change(c *testkit.Client, r *rand.Rand, worker, rounds int) {
	var own []int64
	for round := range rounds {
		group, server := 3+r.Int64N(2), r.Int64N(4) // 0 stands for no server
		address := fmt.Sprintf("198.18.%d.%d", worker, round*4)
		switch {
		case len(own) == 0 || r.IntN(4) == 0:
			own = append(own, c.Do("POST", "/entity", entity(group, address, server)).Want(200).ID())
		case r.IntN(4) == 0:
			var csv strings.Builder
			csv.WriteString("group,address,owner.id,owner.server.id\n")
			for i := range 3 {
				fmt.Fprintf(&csv, "%d,198.18.%d.%d,1,%d\n", 3+r.Int64N(2), worker, round*4+i, 1+r.Int64N(3))
			}
			created := testkit.Decode[rest.Bulk](c.Do("POST", "/entity", csv.String(), "Content-Type", "text/csv").Want(200))
			own = append(own, created.First, created.Last)
		case r.IntN(3) == 0:
			c.Do("POST", fmt.Sprintf("/entity/%d/release", own[0]), nil).Want(200)
			c.Do("PATCH", fmt.Sprint("/entity/", own[0]), `{"status": "available"}`).Want(200)
			c.Do("DELETE", fmt.Sprint("/entity/", own[0]), nil).Want(200)
			own = own[1:]
		default:
			body := entity(group, address, server)
			delete(body, "address")
			c.Do("PATCH", fmt.Sprint("/entity/", own[r.IntN(len(own))]), body).Want(200)
		}
	}
}

func entity(group int64, address string, server int64) map[string]any {
	body := map[string]any{"group": group, "address": address, "owner": nil}
	if server > 0 {
		body["owner"] = map[string]any{"id": 1, "server": map[string]any{"id": server}}
	}
	return body
}

// rows returns the sorted results of a query for one text column.
func rows(t *testing.T, db *pg.DB, sql string) string {
	t.Helper()
	found, err := db.Query(t.Context(), sql+" ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(texts, "\n")
}
