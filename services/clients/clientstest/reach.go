// Package clientstest has what tests of the clients service, and of installations with it, share.
package clientstest

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// CheckReach compares what is kept of whom clients reach with what the links and the accounts say.
func CheckReach(t testing.TB, db *pg.DB) {
	t.Helper()
	var cycles, differences int
	err := db.QueryRow(t.Context(), `
		WITH RECURSIVE way AS (
			SELECT client_id AS ancestor, child_id AS descendant, 1 AS length FROM sub_link WHERE kind <> 'named'
			UNION ALL SELECT w.ancestor, l.child_id, w.length + 1 FROM way w JOIN sub_link l ON l.client_id = w.descendant AND l.kind <> 'named' WHERE w.length < 20),
		counted AS (SELECT ancestor, descendant, count(*)::numeric AS ways, c.name, c.search FROM way JOIN client c ON c.id = descendant GROUP BY 1, 2, c.name, c.search)
		SELECT (SELECT count(*) FROM way WHERE ancestor = descendant),
			(SELECT count(*) FROM ((TABLE counted EXCEPT TABLE client_reach) UNION ALL (TABLE client_reach EXCEPT TABLE counted)) differs)`).Scan(&cycles, &differences)
	if err != nil || cycles > 0 || differences > 0 {
		t.Errorf("got %d cycles, %d wrong pairs, %v; want none", cycles, differences, err)
	}
}
