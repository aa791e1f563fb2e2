// Package clientstest has checks that tests of the clients service share with tests of several services.
package clientstest

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// CheckReach compares the stored pairs of clients that read one another with the links and accounts that they are derived from.
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
		t.Errorf("got %d cycles, %d differing pairs and the error %v, want none", cycles, differences, err)
	}
}
