package scale

import (
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestInterruptedList cuts the database connection during a list, and checks that the response is not a complete list.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	var role string
	i := start(t, "", 40_000, func(_ *installation, service *pgx.ConnConfig) { role = service.User }) // more than the buffers hold
	response := i.list(t)
	defer response.Body.Close()
	begin := make([]byte, 1<<20)
	_, err := io.ReadFull(response.Body, begin)
	testkit.Must(t, err)
	_, err = i.conn.Exec(t.Context(), "ALTER ROLE "+pgx.Identifier{role}.Sanitize()+" NOLOGIN")
	testkit.Must(t, err)
	var ended int64
	i.query(t, "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1) ended", &ended, role)
	rest, err := io.ReadAll(response.Body)
	if err == nil {
		t.Error("got the end of the list without an error, want it cut off")
	}
	if text := string(begin) + string(rest); strings.HasSuffix(strings.TrimSpace(text), "]") || ended == 0 {
		t.Errorf("got %d bytes after %d cuts, which end with %q, want an incomplete list", len(rest), ended, text[len(text)-20:])
	}
}
