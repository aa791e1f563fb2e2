package system_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/audit"
)

// cut cuts items that are older than this many days.
func (s *fixture) cut(days int) error {
	return s.log.Cut(s.t.Context(), s.db, time.Now().AddDate(0, 0, -days))
}

// fillHistory gives the log a history. It holds items 4 to 10 and was cut twice. The tables backup_… are a copy from before
// the second cut, when it held items 3 to 7.
func (s *fixture) fillHistory() {
	s.t.Helper()
	for _, days := range []int{50, 49, 45, 40} {
		e := newEdit(1, `{"name": "x"}`, `{"name": "y"}`)
		e.At = time.Now().AddDate(0, 0, -days)
		s.write("network", e)
	}
	s.write("pxe", newEdit(1, `{}`, `{}`), newEdit(2, `{}`, `{}`), newEdit(3, `{}`, `{}`))
	if err := s.cut(47); err != nil {
		s.t.Fatal(err)
	}
	for _, table := range []string{"log", "log_target", "log_head", "log_checkpoint", "consumer"} {
		s.execute("CREATE TABLE backup_" + table + " AS TABLE " + table)
	}
	if err := s.cut(43); err != nil {
		s.t.Fatal(err)
	}
	s.write("network", newEdit(2, `{}`, `{}`), newEdit(2, `{}`, `{}`))
	s.write("pxe", newEdit(3, `{}`, `{}`))
}

// Verify detects what an attacker with the service's database role, but without the master key, can do to a log.
func TestAttacks(t *testing.T) {
	t.Parallel()
	const (
		empty    = "UPDATE log_head SET id = 0, mac = '', seqs = '{}', checkpoint = '', signature = ''; "
		restored = "DELETE FROM log_head; INSERT INTO log_head SELECT * FROM backup_log_head; "
	)
	for name, test := range map[string]struct{ sql, found string }{
		"nothing":                          {"", ""},
		"head emptied":                     {empty, "head of the log is not signed"},
		"head and log emptied":             {empty + "TRUNCATE log, log_target, log_checkpoint", "head of the log is not signed"},
		"all emptied":                      {empty + "TRUNCATE log, log_target, log_checkpoint, consumer", "head of the log is not signed"},
		"head of a backup":                 {restored, "the last checkpoint is not the one that the head names"},
		"head and checkpoints of a backup": {restored + "DELETE FROM log_checkpoint WHERE id = 3", "item 3 is missing"},
		"end cut off, with a head of before": {restored + "DELETE FROM log_checkpoint WHERE id = 3; DELETE FROM log; DELETE " +
			"FROM log_target; INSERT INTO log SELECT * FROM backup_log; INSERT INTO log_target SELECT * FROM backup_log_target",
			"the consumer of network is at change 6, but the log ends at its change 4"},
		"numbers in the head altered": {`UPDATE log_head SET seqs = seqs || '{"network": 5}'`, "head of the log was " +
			"altered"},
		"a service more in the head": {`UPDATE log_head SET seqs = seqs || '{"identity": 5}'`, "head of the log was " +
			"altered"},
		"no numbers in the head": {"UPDATE log_head SET seqs = 'null'", "head of the log was altered"},
		"checkpoint in the head altered": {
			"UPDATE log_head SET checkpoint = (SELECT signature FROM log_checkpoint WHERE id = 2)", "head of the log was altered",
		},
		"last checkpoint dropped": {"DELETE FROM log_checkpoint WHERE id = 3", "the last checkpoint is not the one that " +
			"the head names"},
		"first checkpoint dropped": {"DELETE FROM log_checkpoint WHERE id = 2", "the checkpoint after item 3"},
		"all checkpoints dropped":  {"TRUNCATE log_checkpoint", "the last checkpoint is not the one that the head names"},
		"last checkpoint dropped, items put back": {"DELETE FROM log_checkpoint WHERE id = 3; INSERT INTO log SELECT * " +
			"FROM backup_log WHERE id = 3", "the last checkpoint is not the one that the head names"},
		"items put back": {"INSERT INTO log SELECT * FROM backup_log WHERE id = 3", "item 3 was inserted where the log was cut"},
		"checkpoint moved": {"DELETE FROM log WHERE id <= 8; DELETE FROM log_target " +
			"WHERE log_id <= 8; UPDATE log_checkpoint SET id = 8 WHERE id = 3", "the checkpoint after item 8"},
		"checkpoint moved, with the item's mac": {"UPDATE log_checkpoint SET id = 8, mac = (SELECT mac FROM log WHERE id = 8) " +
			"WHERE id = 3; DELETE FROM log WHERE id <= 8", "the checkpoint after item 8"},
		"checkpoint there twice": {"INSERT INTO log_checkpoint SELECT 4, mac, at, signature, seqs " +
			"FROM log_checkpoint WHERE id = 3", "the checkpoint after item 4"},
		"checkpoints swapped": {
			"UPDATE log_checkpoint SET id = -id; UPDATE log_checkpoint SET id = 5 + id", "the checkpoint after item 2",
		},
		"time of a checkpoint altered":    {"UPDATE log_checkpoint SET at = at - interval '1 day' WHERE id = 3", "the checkpoint after item 3"},
		"numbers in a checkpoint altered": {`UPDATE log_checkpoint SET seqs = '{"network": 4}' WHERE id = 3`, "the checkpoint after item 3"},
		"a checkpoint's signature for the head's": {"DELETE FROM log; DELETE FROM log_target; UPDATE log_head h " +
			"SET (id, mac, seqs, signature) = (SELECT id, mac, seqs, signature FROM log_checkpoint c WHERE c.id = 3)",
			"head of the log was altered"},
		"the head's signature for a checkpoint's": {"DELETE FROM log; DELETE FROM log_target; UPDATE log_checkpoint " +
			"SET (id, mac, seqs, signature) = (SELECT id, mac, seqs, signature FROM log_head) WHERE id = 3", "the checkpoint after item 10"},
		"an item's mac for the head's signature": {"UPDATE log_head SET signature = mac", "head of the log was altered"},
		"a checkpoint's signature for an item's": {
			"UPDATE log SET mac = (SELECT signature FROM log_checkpoint WHERE id = 3) WHERE id = 4", "item 4 was altered",
		},
		"changes pulled from further on": {
			"UPDATE consumer SET seq = 8 WHERE source = 'network'",
			"the consumer of network is at change 8, but the log ends at its change 6",
		},
		"changes pulled again": {
			"UPDATE consumer SET seq = 2 WHERE source = 'network'",
			"the consumer of network is at change 2, but the log ends at its change 6",
		},
		"all changes pulled again": {
			"DELETE FROM consumer WHERE source = 'network'",
			"the consumer of network is at change 0, but the log ends at its change 6",
		},
		"changes of a new service pulled too late": {
			"INSERT INTO consumer (source, seq) VALUES ('identity', 3)", "the consumer of identity is at change 3, but the log ends at its change 0",
		},
		"an item there again at the end": {"INSERT INTO log SELECT 11, at, source, 7, type, description, user_url, user_name, " +
			"user_key, ip, request_id, targets, changes, mac FROM log WHERE id = 9", "item 11 was added after the end of the log"},
		"time of a fresh item altered": {"UPDATE log SET at = at - interval '1 year' WHERE id = 5", "item 5 was altered"},
		"the end signed with the mac of a cut item": {
			"UPDATE log_head SET id = 3, mac = (SELECT mac FROM log_checkpoint WHERE id = 3)", "head of the log was altered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.fillHistory()
			for _, sql := range strings.Split(test.sql, "; ") {
				if sql != "" {
					s.execute(sql)
				}
			}
			switch found, bad := s.verify(audit.Anchor{}); {
			case test.found == "" && (bad != nil || found.First != 4 || found.Last != 10 ||
				found.Changes["network"] != 6 || found.Changes["pxe"] != 4):
				t.Errorf("got %+v, %v, want the items 4 to 10, 6 of network and 4 of pxe", found, bad)
			case test.found != "" && bad == nil:
				t.Errorf("got a log that verifies, want %q", test.found)
			case test.found != "" && !strings.Contains(bad.Error(), test.found):
				t.Errorf("got %v, want %q", bad, test.found)
			}
		})
	}
}

// The signatures cannot detect a log that was rolled back as a whole. An anchor detects it, and so does the next change of a
// service, whose number does not follow.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"to a backup": "INSERT INTO log SELECT * FROM backup_log; INSERT INTO log_target SELECT * FROM backup_log_target; " +
			"INSERT INTO log_head SELECT * FROM backup_log_head; INSERT INTO log_checkpoint SELECT * " +
			"FROM backup_log_checkpoint; INSERT INTO consumer SELECT * FROM backup_consumer",
		"to nothing": "INSERT INTO log_head (id, mac, signature) VALUES (0, '', '')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.fillHistory()
			now, _ := s.verify(audit.Anchor{})
			s.execute("TRUNCATE log, log_target, log_head, log_checkpoint, consumer")
			for _, sql := range strings.Split(sql, "; ") {
				s.execute(sql)
			}
			s.signHead()
			if _, bad := s.verify(audit.Anchor{}); bad != nil {
				t.Errorf("without an anchor: got %v, want a log that verifies", bad)
			}
			if _, bad := s.verify(now.Anchor); bad == nil || !strings.Contains(bad.Error(), "the anchor is of item 10") {
				t.Errorf("with an anchor: got %v, want an error that names the anchor's item 10", bad)
			}
			if err := s.tryWrite(
				"network",
				newEdit(1, `{}`, `{}`),
			); err == nil ||
				!strings.Contains(err.Error(), "got change 7 of network, but the log ends at") {
				t.Errorf("the next change: got %v, want a refusal of change 7", err)
			}
		})
	}
}

// A service does not start a new log if its log was emptied while it was stopped.
func TestEmptiedLogDoesNotBegin(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"log", "log_checkpoint", "consumer"} {
		s := newFixture(t)
		s.fillHistory()
		for _, table := range []string{"log", "log_target", "log_checkpoint", "consumer"} {
			if table != left {
				s.execute("TRUNCATE " + table)
			}
		}
		s.execute("UPDATE log_head SET id = 0, mac = '', seqs = '{}', checkpoint = '', signature = ''")
		const want = "the head of the log is not signed"
		if err := s.log.SignHead(t.Context(), s.db); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("left %s: got %v for a new start, want %q", left, err, want)
		}
		if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("left %s: got %v for a change, want %q", left, err, want)
		}
	}
}

// isAltered reports whether an error says that the log, or its head, was altered.
func isAltered(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "the log was altered") || strings.Contains(err.Error(), "the head of the log"))
}

// Altered items are not cut, because the cut would hide the alteration.
func TestCutVerifies(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"times altered":                  "UPDATE log SET at = at - interval '1 year' WHERE id BETWEEN 4 AND 7",
		"time of one altered":            "UPDATE log SET at = at - interval '1 year' WHERE id = 5",
		"description altered":            "UPDATE log SET description = 'x' WHERE id = 4",
		"item removed":                   "DELETE FROM log WHERE id = 5; UPDATE log SET at = at - interval '1 year' WHERE id = 6",
		"what comes next removed":        "DELETE FROM log WHERE id = 5",
		"what comes next altered":        "UPDATE log SET description = 'x' WHERE id = 5",
		"all removed but what is old":    "DELETE FROM log WHERE id > 4",
		"another item in its place":      "UPDATE log l SET (at, seq, mac) = (SELECT at, -1, mac FROM backup_log b WHERE b.id = 3) WHERE id = 4",
		"head emptied":                   "UPDATE log_head SET id = 0, mac = '', seqs = '{}', checkpoint = '', signature = ''",
		"last checkpoint dropped":        "DELETE FROM log_checkpoint WHERE id = 3",
		"last checkpoint dropped, again": "DELETE FROM log_checkpoint WHERE id = 3; INSERT INTO log SELECT * FROM backup_log WHERE id = 3",
		"numbers in checkpoint altered":  `UPDATE log_checkpoint SET seqs = '{"network": 4}' WHERE id = 3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.fillHistory()
			for _, sql := range strings.Split(sql, "; ") {
				s.execute(sql)
			}
			before := s.queryIDs("SELECT id FROM log UNION ALL SELECT id FROM log_checkpoint ORDER BY 1")
			if err := s.cut(30); !isAltered(err) {
				t.Errorf("got %v, want an error that the log was altered", err)
			}
			if after := s.queryIDs("SELECT id FROM log UNION ALL SELECT id FROM log_checkpoint ORDER BY 1"); !slices.Equal(after, before) {
				t.Errorf("got %v, want %v", after, before)
			}
		})
	}
	s := newFixture(t)
	s.fillHistory()
	if err := s.cut(30); err != nil {
		t.Fatal(err)
	}
	if left := s.queryIDs("SELECT id FROM log ORDER BY id"); !slices.Equal(left, []int64{5, 6, 7, 8, 9, 10}) {
		t.Errorf("nothing altered: got %v, want 5 to 10", left)
	}
	if found, bad := s.verify(audit.Anchor{}); bad != nil || found.First != 5 {
		t.Errorf("got %+v, %v, want items from 5 on", found, bad)
	}
}

// An anchor is also compared with checkpoints.
func TestOtherAnchorAtCheckpoint(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.fillHistory()
	for _, id := range []int64{2, 3, 4, 10} {
		if _, bad := s.verify(audit.Anchor{ID: id, MAC: []byte("wrong")}); bad == nil || bad.ID != id {
			t.Errorf("another anchor: got %v, want an error at %d", bad, id)
		}
	}
	if found, bad := s.verify(audit.Anchor{ID: 1, MAC: []byte("cut off")}); bad != nil || found.Compared {
		t.Errorf("an anchor before the checkpoints: got %+v, %v, want it not compared", found, bad)
	}
}

// A service's changes must follow its last logged change, even if that was cut.
func TestNumbersFollow(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.fillHistory()
	for _, seq := range []int64{1, 3, 6, 8, 100} {
		s.seq["network"] = seq - 1
		if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); err == nil || !strings.Contains(err.Error(), "the log ends at its change 6") {
			t.Errorf("change %d: got %v, want an error that names 6", seq, err)
		}
	}
	batch := []events.Event{newEdit(1, `{}`, `{}`), newEdit(1, `{}`, `{}`)}
	for i := range batch {
		batch[i].Seq, batch[i].At = int64(7+2*i), time.Now()
	}
	if err := s.tryBatch("network", batch); err == nil || !strings.Contains(err.Error(), "got change 9 of network") {
		t.Errorf("a batch without change 8: got %v, want an error that names change 9", err)
	}
	s.seq["network"] = 6
	s.write("network", newEdit(1, `{}`, `{}`))
	s.write("identity", newEdit(1, `{}`, `{}`))
	if found, bad := s.verify(audit.Anchor{}); bad != nil || found.Changes["network"] != 7 || found.Changes["identity"] != 1 {
		t.Errorf("got %+v, %v, want 7 changes of network and 1 of identity", found, bad)
	}
}

// stopConsumer marks a consumer as stopped at a change that it cannot apply.
func (s *fixture) stopConsumer(source string, seq int64) {
	s.t.Helper()
	s.execute("UPDATE consumer SET stopped_at = $2 WHERE source = $1", source, seq)
}

func (s *fixture) skipChange(source string, seq int64) error {
	return host.SkipChange(
		s.t.Context(),
		system.Definition,
		service.Deps{DB: s.db, Box: s.box},
		events.Span{Source: source, First: seq, Last: seq},
	)
}

// Skipping a change appends an item that accounts for it, so that the numbers have no gap. Only the holder of the master key
// can append it.
func TestSkippedChangeIsAccountedFor(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.fillHistory()
	if err := s.skipChange("network", 7); !errors.Is(err, host.ErrNotStopped) {
		t.Errorf("got %v, want %v", err, host.ErrNotStopped)
	}
	s.stopConsumer("network", 7)
	if err := s.skipChange("network", 7); err != nil {
		t.Fatal(err)
	}
	s.stopConsumer("pxe", 9) // the service no longer has changes 5 to 9
	if err := s.skipChange("pxe", 9); err != nil {
		t.Fatal(err)
	}
	s.seq["network"], s.seq["pxe"] = 7, 9
	s.write("network", newEdit(1, `{}`, `{}`))
	s.write("pxe", newEdit(1, `{}`, `{}`))
	found, bad := s.verify(audit.Anchor{})
	if bad != nil || found.Skipped != 6 || found.Changes["network"] != 8 || found.Changes["pxe"] != 10 {
		t.Errorf("got %+v, %v, want 6 skipped, 8 changes of network and 10 of pxe", found, bad)
	}
	item := decodeItem(t, s.Do("GET", "/log/12", nil).Want(200).Text)
	if item.Type != "event.skipped" || item.User != nil || item.Data.Changes["first"]["after"] != 5.0 ||
		item.Data.Changes["last"]["after"] != 9.0 {
		t.Errorf("got %+v, want event.skipped without a user, first 5, last 9", item)
	}
	if n := s.queryIDs("SELECT id FROM change WHERE type = 'event.skipped'"); len(n) != 0 {
		t.Errorf("got %d changes that record the skip, want 0", len(n))
	}
	s.stopConsumer("network", 5)
	if err := s.skipChange("network", 5); err == nil || !strings.Contains(err.Error(), "the log already has the changes of network up to 8") {
		t.Errorf("got %v, want an error that names change 8", err)
	}
	// A service's own record of a skip does not account for any change.
	s.write(
		"network",
		events.Event{Type: "event.skipped", Kind: "event", Action: "skipped", After: json.RawMessage(`{"first": 9, "last": 20}`)},
	)
	s.seq["network"] = 20
	if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); err == nil || !strings.Contains(err.Error(), "the log ends at its change 9") {
		t.Errorf("after a service's own record of a skip: got %v, want an error that names change 9", err)
	}
	if found, bad := s.verify(audit.Anchor{}); bad != nil || found.Changes["network"] != 9 || found.Skipped != 6 {
		t.Errorf("got %+v, %v, want 9 changes of network and 6 skipped", found, bad)
	}
	s.execute("DELETE FROM log WHERE id = 12")
	if _, bad := s.verify(audit.Anchor{}); bad == nil || bad.ID != 12 {
		t.Errorf("without the item: got %v, want an error at 12", bad)
	}
}

func decodeItem(t *testing.T, text string) (item logItemView) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &item); err != nil {
		t.Fatal(err)
	}
	return item
}

// signedMessage builds a message as the log signs it.
type signedMessage []byte

func newSignedMessage(kind string) signedMessage { return signedMessage{}.putText(kind) }

func (m signedMessage) putText(value string) signedMessage { return m.putBytes([]byte(value)) }

func (m signedMessage) putBytes(value []byte) signedMessage {
	return append(binary.BigEndian.AppendUint64(m, uint64(len(value))), value...)
}

func (m signedMessage) putNumber(value int64) signedMessage {
	return m.putBytes(binary.BigEndian.AppendUint64(nil, uint64(value)))
}

func (m signedMessage) putNumbers(values map[string]int64) signedMessage {
	m = binary.BigEndian.AppendUint64(m, uint64(len(values)))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		m = m.putText(name).putNumber(values[name])
	}
	return m
}

// readHead returns the columns of the head.
func (s *fixture) readHead() (id int64, mac, checkpoint []byte, seqs map[string]int64) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), "SELECT id, mac, checkpoint, seqs FROM log_head").Scan(&id, &mac, &checkpoint, &seqs); err != nil {
		s.t.Fatal(err)
	}
	return id, mac, checkpoint, seqs
}

// signHeadWith changes the numbers in the head and signs it with the box.
func (s *fixture) signHeadWith(box *seal.Box, numbers map[string]int64) {
	s.t.Helper()
	id, mac, checkpoint, seqs := s.readHead()
	maps.Copy(seqs, numbers)
	message := newSignedMessage("head 2").putNumber(id).putBytes(mac).putBytes(checkpoint).putNumbers(seqs)
	s.execute("UPDATE log_head SET seqs = $1, signature = $2", seqs, box.Signer("audit log").Sign(message))
}

// Verify also detects gaps and duplicates that a writer with the master key makes.
func TestVerifyCounts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		last  int64 // the number in the head before the next change is written
		next  int64
		found string
	}{
		{6, 7, ""},
		{8, 9, "item 11 comes after a gap: changes 7 to 8 of network are not logged"},
		{5, 6, "item 11 is change 6 of network, which was logged before"},
		{3, 4, "item 11 is change 4 of network, which was logged before"},
	} {
		s := newFixture(t)
		s.fillHistory()
		s.signHeadWith(s.box, map[string]int64{"network": test.last})
		s.execute("ALTER TABLE log DROP CONSTRAINT log_source_seq_key")
		s.seq["network"] = test.next - 1
		s.write("network", newEdit(1, `{}`, `{}`))
		if _, bad := s.verify(audit.Anchor{}); (bad == nil) != (test.found == "") || bad != nil && !strings.Contains(bad.Error(), test.found) {
			t.Errorf("change %d: got %v, want %q", test.next, bad, test.found)
		}
	}
	s := newFixture(t)
	s.fillHistory()
	s.signHeadWith(s.box, map[string]int64{"identity": 3})
	if _, bad := s.verify(audit.Anchor{}); bad == nil || !strings.Contains(bad.Error(), "the change numbers in the head do not match") {
		t.Errorf("got %v, want an error that the head lacks the numbers", bad)
	}
}

// An earlier master key cannot sign a head or a checkpoint that is accepted.
func TestEarlierMasterKey(t *testing.T) {
	t.Parallel()
	earlier, later := seal.NewMasterKey(), seal.NewMasterKey()
	for _, written := range []bool{true, false} {
		s := newFixtureWithKey(t, earlier)
		s.fillHistory()
		s.box = mustBox(t, later.Reveal()+","+earlier.Reveal())
		s.log = audit.New(s.box)
		if written {
			s.write("network", newEdit(1, `{}`, `{}`))
		} else if err := s.cut(30); err != nil {
			t.Fatal(err)
		}
		if _, bad := s.verify(audit.Anchor{}); bad != nil {
			t.Error(bad)
		}
		s.signHeadWith(mustBox(t, earlier.Reveal()), nil)
		if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); err == nil || !strings.Contains(err.Error(), "earlier master key") {
			t.Errorf("a change below a head with an earlier key: got %v, want an error that names an earlier master key", err)
		}
		if _, bad := s.verify(audit.Anchor{}); bad == nil || !strings.Contains(bad.Error(), "earlier master key") {
			t.Errorf("got %v, want an error that names an earlier master key", bad)
		}
	}
}
