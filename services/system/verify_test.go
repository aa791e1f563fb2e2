package system_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/audit"
)

// verify verifies the log. Errors other than *audit.IntegrityError end the test.
func (s *fixture) verify(earlier audit.Anchor) (audit.Verification, *audit.IntegrityError) {
	s.t.Helper()
	found, err := s.log.Verify(s.t.Context(), s.db, earlier)
	bad, ok := errors.AsType[*audit.IntegrityError](err)
	if err != nil && !ok {
		s.t.Fatal(err)
	}
	return found, bad
}

// fill logs ten changes, some of them in a batch.
func (s *fixture) fill() {
	for i := range 5 {
		s.write("network", newEdit(int64(i+1), `{"name": "x"}`, `{"name": "y"}`))
	}
	s.write(
		"pxe",
		newEdit(6, `{}`, `{}`),
		newEdit(7, `{}`, `{}`),
		events.Event{Type: "log.cut", Kind: "log", Action: "cut"},
		newEdit(9, `{}`, `{}`),
		newEdit(10, `{}`, `{}`),
	)
}

// Verify detects direct changes of the database, and names the first altered item.
func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	// put inserts an item with a mac that does not match.
	const put = `INSERT INTO log SELECT %d, at, source, 99, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac FROM log WHERE id = 5`
	for name, test := range map[string]struct {
		sql string
		bad int64
	}{
		"nothing":               {"", -1},
		"altered time":          {"UPDATE log SET at = at + interval '1 microsecond' WHERE id = 4", 4},
		"altered description":   {"UPDATE log SET description = 'x' WHERE id = 4", 4},
		"altered type":          {"UPDATE log SET type = 'x' WHERE id = 4", 4},
		"altered user":          {"UPDATE log SET user_url = '/admin/3' WHERE id = 4", 4},
		"altered user's name":   {"UPDATE log SET user_name = 'x' WHERE id = 4", 4},
		"no user":               {"UPDATE log SET user_url = NULL, user_name = NULL, user_key = NULL WHERE id = 1", 1},
		"another key":           {"UPDATE log SET user_key = 8 WHERE id = 4", 4},
		"another address":       {"UPDATE log SET ip = '192.0.2.8' WHERE id = 4", 4},
		"no address":            {"UPDATE log SET ip = NULL WHERE id = 4", 4},
		"another request":       {"UPDATE log SET request_id = '' WHERE id = 4", 4},
		"another service":       {"UPDATE log SET source = 'x' WHERE id = 4", 4},
		"another number":        {"UPDATE log SET seq = 77 WHERE id = 4", 4},
		"altered changes":       {`UPDATE log SET changes = '{"name":{"before":"x","after":"z"}}' WHERE id = 4`, 4},
		"changes respelled":     {`UPDATE log SET changes = (changes::text || ' ')::json WHERE id = 10`, 10},
		"altered targets":       {`UPDATE log SET targets = '[]' WHERE id = 4`, 4},
		"altered signature":     {"UPDATE log SET mac = set_byte(mac, 20, get_byte(mac, 20) # 1) WHERE id = 4", 4},
		"altered key's id":      {"UPDATE log SET mac = set_byte(mac, 0, get_byte(mac, 0) # 1) WHERE id = 4", 4},
		"removed":               {"DELETE FROM log WHERE id = 4", 4},
		"removed first":         {"DELETE FROM log WHERE id = 1", 1},
		"removed, gap closed":   {"DELETE FROM log WHERE id = 4; UPDATE log SET id = id - 1 WHERE id > 4", 4},
		"removed at the end":    {"DELETE FROM log WHERE id >= 9", 9},
		"removed, all":          {"DELETE FROM log", 1},
		"removed with its head": {"DELETE FROM log WHERE id = 10; UPDATE log_head SET id = 9, mac = (SELECT mac FROM log WHERE id = 9)", 0},
		"swapped":               {"UPDATE log SET id = -id WHERE id IN (4, 5); UPDATE log SET id = 9 + id WHERE id < 0", 4},
		"inserted at the end":   {fmt.Sprintf(put, 11), 11},
		"inserted far behind":   {fmt.Sprintf(put, 20), 20},
		"inserted before":       {fmt.Sprintf(put, 0), 0},
		"inserted in between":   {"UPDATE log SET id = -id WHERE id >= 4; UPDATE log SET id = 1 - id WHERE id < 0; " + fmt.Sprintf(put, 4), 4},
		"twice":                 {"ALTER TABLE log DROP CONSTRAINT log_pkey; " + fmt.Sprintf(put, 5), 5},
		"forged head":           {"UPDATE log_head SET signature = set_byte(signature, 20, get_byte(signature, 20) # 1)", 0},
		"forged checkpoint": {"DELETE FROM log WHERE id <= 4; DELETE FROM log_target " +
			"WHERE log_id <= 4; INSERT INTO log_checkpoint SELECT id - 1, mac, now(), mac FROM log WHERE id = 5", 0},
		"hidden from its target":  {"DELETE FROM log_target WHERE log_id = 4", 4},
		"found by another target": {"INSERT INTO log_target SELECT 'admin', 1, at, log_id FROM log_target WHERE log_id = 4", 4},
		"found by another user":   {"UPDATE log_target SET user_url = '/admin/4' WHERE log_id = 4", 4},
		"found by no user":        {"UPDATE log_target SET user_url = NULL WHERE log_id = 4", 4},
		"found at another time":   {"UPDATE log_target SET at = now() + interval '1 day' WHERE log_id = 4", 4},
		"orphaned target":         {"INSERT INTO log_target SELECT type, target_id, at, 12 FROM log_target WHERE log_id = 4", 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.fill()
			for _, sql := range strings.Split(test.sql, "; ") {
				if sql != "" {
					s.execute(sql)
				}
			}
			found, bad := s.verify(audit.Anchor{})
			switch {
			case test.bad < 0 && (bad != nil || found.First != 1 || found.Last != 10):
				t.Errorf("got %+v, %v, want the items 1 to 10", found, bad)
			case test.bad >= 0 && bad == nil:
				t.Errorf("got a log that verifies, want an error at %d", test.bad)
			case test.bad >= 0 && bad.ID != test.bad:
				t.Errorf("got %v, want an error at %d", bad, test.bad)
			}
		})
	}
}

// An anchor detects a log that was rolled back as a whole, even if it was continued after that.
func TestVerifyByAnchor(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.fill()
	before, _ := s.verify(audit.Anchor{})
	s.execute("CREATE TABLE saved AS SELECT * FROM log_head")
	s.fill()
	now, bad := s.verify(before.Anchor)
	if bad != nil || !now.Compared || now.Last != 20 {
		t.Fatalf("got %+v, %v, want it compared, up to 20", now, bad)
	}
	s.execute("DELETE FROM log WHERE id > 10")
	s.execute("DELETE FROM log_target WHERE log_id > 10")
	s.execute("UPDATE log_head SET (id, mac, seqs, signature) = (SELECT id, mac, seqs, signature FROM saved)")
	s.execute("UPDATE consumer SET seq = 5")
	if _, bad := s.verify(audit.Anchor{}); bad != nil {
		t.Fatal(bad)
	}
	if _, bad := s.verify(now.Anchor); bad == nil || bad.ID != 11 {
		t.Errorf("got %v, want an error at 11", bad)
	}
	s.seq["network"], s.seq["pxe"] = 5, 5
	s.write("pxe", newEdit(1, `{}`, `{}`))
	for range 9 {
		s.write("network", newEdit(1, `{}`, `{}`))
	}
	if _, bad := s.verify(now.Anchor); bad == nil || bad.ID != 20 {
		t.Errorf("got %v, want an error at 20", bad)
	}
	var parsed audit.Anchor
	if err := parsed.UnmarshalText(
		[]byte(now.Anchor.String()),
	); err != nil || parsed.ID != now.Anchor.ID ||
		!bytes.Equal(parsed.MAC, now.Anchor.MAC) {
		t.Errorf("got %+v, %v, want %+v", parsed, err, now.Anchor)
	}
	for _, invalid := range []string{"x", "7", "7:", "0:00", ":00", "7:xx"} {
		if parsed.UnmarshalText([]byte(invalid)) == nil {
			t.Errorf("got %s accepted as an anchor, want an error", invalid)
		}
	}
}

// The command verify prints what it found and a new anchor. It fails with another master key.
func TestVerifyCommand(t *testing.T) {
	t.Parallel()
	masterKey, other := seal.NewMasterKey(), seal.NewMasterKey()
	s := newFixtureWithKey(t, masterKey)
	run := func(key, anchor string) (string, error) {
		box, err := system.Definition.NewBox(secret.New(key))
		if err != nil {
			t.Fatal(err)
		}
		var screen bytes.Buffer
		err = system.Verify(t.Context(), service.Deps{DB: s.db, Box: box, Settings: service.Settings{LogAnchor: anchor}}, &screen)
		return screen.String(), err
	}
	if output, err := run(masterKey.Reveal(), ""); err != nil || !strings.Contains(output, "no items yet") {
		t.Errorf("got %s, %v, want no items yet", output, err)
	}
	s.fill()
	output, err := run(masterKey.Reveal(), "")
	if err != nil || !strings.Contains(output, "Items 1 to 10 are complete and unaltered.") ||
		!strings.Contains(output, "  network:5\n  pxe:5\n") {
		t.Fatalf("got %s, %v, want the items 1 to 10, 5 of network and 5 of pxe", output, err)
	}
	lines := strings.Fields(output)
	if _, err := run(masterKey.Reveal(), lines[len(lines)-1]); err != nil {
		t.Error(err)
	}
	if _, err := run(masterKey.Reveal(), "nonsense"); err == nil || !strings.Contains(err.Error(), "IRONPLANE_LOG_ANCHOR") {
		t.Errorf("got %v for an invalid anchor, want an error that names IRONPLANE_LOG_ANCHOR", err)
	}
	if _, err := run(other.Reveal(), ""); !isAltered(err) {
		t.Errorf("got %v with another master key, want an error that the log was altered", err)
	}
	s.log = audit.New(mustBox(t, other.Reveal()))
	if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); !isAltered(err) {
		t.Errorf("got %v for a change signed with another master key, want an error that the head was altered", err)
	}
	s.log = audit.New(mustBox(t, other.Reveal()+","+masterKey.Reveal())) // the keys are rotated
	s.seq["network"] = 5
	s.write("network", newEdit(1, `{}`, `{}`))
	if _, err := run(other.Reveal()+","+masterKey.Reveal(), ""); err != nil {
		t.Error(err)
	}
	if _, err := run(masterKey.Reveal()+","+other.Reveal(), ""); !isAltered(err) {
		t.Errorf("got %v with the keys in the wrong order, want an error that the log was altered", err)
	}
}

func mustBox(t testing.TB, masterKey string) *seal.Box {
	t.Helper()
	box, err := system.Definition.NewBox(secret.New(masterKey))
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// The chain holds for any changes, written concurrently in any order, with cuts in between. Every item that was not cut
// exists once.
func TestChain(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	old := time.Now().AddDate(0, 0, -40)
	rapid.Check(t, func(r *rapid.T) {
		s.execute("TRUNCATE log, log_target, log_checkpoint")
		s.execute("UPDATE log_head SET id = 0, mac = '', seqs = '{}', checkpoint = '', signature = ''")
		s.execute("UPDATE consumer SET seq = 0")
		s.signHead()
		s.seq = map[string]int64{}
		var all, cut int
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			if rapid.IntRange(0, 3).Draw(r, "cut") == 0 {
				if err := s.log.Cut(t.Context(), s.db, time.Now().AddDate(0, 0, -rapid.IntRange(0, 60).Draw(r, "days"))); err != nil {
					r.Fatal(err)
				}
				var left int
				if err := s.db.QueryRow(t.Context(), "SELECT count(*) FROM log").Scan(&left); err != nil {
					r.Fatal(err)
				}
				cut = all - left
			}
			var writing sync.WaitGroup
			for _, source := range rapid.SliceOfNDistinct(
				rapid.SampledFrom([]string{"network", "pxe", "identity"}), 1, 3, rapid.ID[string],
			).Draw(r, "sources") {
				batch := rapid.SliceOfN(rapid.Custom(randomEvent(old)), 1, 10).Draw(r, "batch")
				for i := range batch {
					s.seq[source]++
					batch[i].Seq = s.seq[source]
				}
				all += len(batch)
				writing.Go(func() {
					if err := s.tryBatch(source, batch); err != nil {
						t.Error(err)
					}
				})
			}
			writing.Wait()
			found, err := s.log.Verify(t.Context(), s.db, audit.Anchor{})
			if err != nil || found.Last != int64(all) || found.First != int64(cut+1) {
				r.Fatalf("got %+v, %v, want the items %d to %d", found, err, cut+1, all)
			}
		}
	})
}

func randomEvent(old time.Time) func(*rapid.T) events.Event {
	return func(r *rapid.T) events.Event {
		e := newEdit(
			rapid.Int64Range(1, 5).Draw(r, "group"),
			`{"name": "a"}`,
			fmt.Sprintf(`{"name": %s}`, testkit.JSON(rapid.StringN(0, 8, -1).Draw(r, "name"))),
		)
		e.At = old.Add(time.Duration(rapid.IntRange(0, 39).Draw(r, "days")) * 24 * time.Hour)
		if rapid.Bool().Draw(r, "by the installation") {
			e.Actor, e.IP, e.RequestID = nil, netip.Addr{}, ""
		}
		return e
	}
}

func (s *fixture) tryWrite(source string, e events.Event) error {
	s.seq[source]++
	e.Seq, e.At = s.seq[source], time.Now()
	return s.tryBatch(source, []events.Event{e})
}

func (s *fixture) tryBatch(source string, batch []events.Event) error {
	return s.db.InTx(s.t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		_, err := tx.Exec(
			s.t.Context(),
			"INSERT INTO consumer (source, seq) VALUES ($1, $2) ON CONFLICT (source, name) DO UPDATE SET seq = excluded.seq",
			source,
			batch[len(batch)-1].Seq,
		)
		if err != nil {
			return err
		}
		return s.log.Write(s.t.Context(), tx, source, batch)
	})
}

// queryIDs returns the ids that a query selects.
func (s *fixture) queryIDs(sql string) (ids []int64) {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), sql)
	if err != nil {
		s.t.Fatal(err)
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// A cut removes only old items at the beginning, and is recorded.
func TestCut(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for _, days := range []int{9, 8, 3, 9, 1} {
		e := newEdit(1, `{}`, `{}`)
		e.At = time.Now().AddDate(0, 0, -days)
		s.write("network", e)
	}
	before, _ := s.verify(audit.Anchor{})
	for _, test := range []struct {
		days int
		left string
	}{{10, "[1 2 3 4 5]"}, {8, "[2 3 4 5]"}, {8, "[2 3 4 5]"}, {5, "[3 4 5]"}, {2, "[5]"}, {0, "[]"}} {
		if err := s.log.Cut(t.Context(), s.db, time.Now().AddDate(0, 0, -test.days).Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.queryIDs("SELECT id FROM log ORDER BY id")); got != test.left {
			t.Errorf("after %d days: got %s, want %s", test.days, got, test.left)
		}
		if got := fmt.Sprint(s.queryIDs("SELECT log_id FROM log_target ORDER BY 1")); got != test.left {
			t.Errorf("after %d days: got the targets of %s, want %s", test.days, got, test.left)
		}
		if _, bad := s.verify(audit.Anchor{}); bad != nil {
			t.Error(bad)
		}
	}
	if records := s.queryIDs(
		"SELECT (after->>'last')::bigint FROM change WHERE type = 'log.cut' ORDER BY id",
	); fmt.Sprint(
		records,
	) != "[1 2 4 5]" {
		t.Errorf("got the cuts %v, want [1 2 4 5]", records)
	}
	if found, bad := s.verify(before.Anchor); bad != nil || !found.Compared {
		t.Errorf("the anchor at a checkpoint: got %+v, %v, want it compared", found, bad)
	}
	s.write("network", newEdit(1, `{}`, `{}`))
	if found, bad := s.verify(audit.Anchor{}); bad != nil || found.First != 6 || found.Last != 6 {
		t.Errorf("got %+v, %v, want item 6 alone", found, bad)
	}
}
