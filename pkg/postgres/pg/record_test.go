package pg_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// shelf is an item with members that change without a record.
type shelf struct {
	shelfName

	Books int64   `json:"books" recorded:"false"`
	Owner *keeper `json:"owner,omitempty"`
	Hall  struct {
		Visitors int64 `json:"visitors"`
	} `json:"room" recorded:"false"`
}

type shelfName struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes" recorded:"false"`
}

type keeper struct {
	ID      int64 `json:"id"`
	Missing bool  `json:"missing" recorded:"false"`
}

func TestRecordLeavesOutUnrecorded(t *testing.T) {
	t.Parallel()
	db := testkit.Database(t, "things", migrations)
	is := shelf{shelfName: shelfName{"north", 7}, Books: 3, Owner: &keeper{5, true}}
	orphan := is
	orphan.Owner = nil
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		for _, value := range []any{is, &orphan, secret.Marked(is, "code"), map[string]int{"books": 3}, struct{}{}} {
			tx.Record(pg.Record{Kind: "shelf", Action: pg.Created, After: value})
		}
		return nil
	})
	testkit.Must(t, err)
	var got string
	err = db.QueryRow(t.Context(), "SELECT string_agg(after::text, ' ' ORDER BY id) FROM change").Scan(&got)
	testkit.Must(t, err)
	want := `{"name": "north", "owner": {"id": 5}} {"name": "north"} {"code": {"secret": true}, "name": "north", "owner": {"id": 5}} {"books": 3} {}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
