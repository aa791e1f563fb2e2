package system_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/services/system/audit"
)

// downgrade signs head and checkpoints like a version that did not sign change numbers.
func (s *fixture) downgrade() {
	s.t.Helper()
	signer := s.box.Signer("audit log")
	id, mac, _, _ := s.readHead()
	s.execute(
		"UPDATE log_head SET checkpoint = '', seqs = '{}', signature = $1",
		signer.Sign(newSignedMessage("head").putNumber(id).putBytes(mac)),
	)
	for _, id := range s.queryIDs("SELECT id FROM log_checkpoint") {
		var mac []byte
		var at time.Time
		if err := s.db.QueryRow(s.t.Context(), "SELECT mac, at FROM log_checkpoint WHERE id = $1", id).Scan(&mac, &at); err != nil {
			s.t.Fatal(err)
		}
		s.execute(
			"UPDATE log_checkpoint SET seqs = '{}', signature = $2 WHERE id = $1",
			id,
			signer.Sign(newSignedMessage("checkpoint").putNumber(id).putBytes(mac).putNumber(at.UnixMicro())),
		)
	}
}

// leaveOut makes a gap in the changes of a service. In that version, skipping changes did.
func (s *fixture) leaveOut(source string, changes int64) {
	s.t.Helper()
	s.signHeadWith(s.box, map[string]int64{source: s.seq[source] + changes})
	s.seq[source] += changes
}

// The log of a version that did not sign change numbers is upgraded when the service starts or first writes. Head and
// checkpoints are signed again, and items account for skipped changes.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *fixture){
		"at the start": (*fixture).signHead,
		"by a write":   func(s *fixture) { s.write("pxe", newEdit(1, `{}`, `{}`)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			e := newEdit(1, `{}`, `{}`)
			e.At = time.Now().AddDate(0, 0, -60)
			s.write("clients", e, e) // all these items are cut below
			s.fillHistory()
			s.leaveOut("network", 1)
			s.write("network", newEdit(1, `{}`, `{}`))
			s.leaveOut("network", 3)
			s.leaveOut("pxe", 2)
			s.write("pxe", newEdit(1, `{}`, `{}`))
			s.write("network", newEdit(1, `{}`, `{}`))
			s.downgrade()
			if _, bad := s.verify(audit.Anchor{}); bad == nil || !strings.Contains(bad.Error(), "the head was written by an earlier version") {
				t.Errorf("before: got %v, want an error that names an earlier version", bad)
			}
			change(s)
			found, bad := s.verify(audit.Anchor{})
			if bad != nil || found.Skipped != 6 || found.Changes["network"] != 12 || found.Changes["clients"] != 2 {
				t.Errorf("after: got %+v, %v, want 6 skipped, 12 changes of network and 2 of clients", found, bad)
			}
			var accounted []string
			for _, id := range s.queryIDs("SELECT id FROM log WHERE type = 'event.skipped' ORDER BY id") {
				item := decodeItem(t, s.Do("GET", fmt.Sprint("/log/", id), nil).Want(200).Text)
				accounted = append(accounted, fmt.Sprintf("%s from %v", item.Targets[0].Name, item.Data.Changes["first"]["after"]))
			}
			if want := []string{"network:7 from 7", "pxe:6 from 5", "network:11 from 9"}; !slices.Equal(accounted, want) {
				t.Errorf("got %q accounted for, want %q", accounted, want)
			}
			for _, source := range []string{"network", "pxe", "clients"} {
				s.write(source, newEdit(1, `{}`, `{}`))
			}
			if _, bad := s.verify(audit.Anchor{}); bad != nil {
				t.Error(bad)
			}
			s.execute("DELETE FROM log_checkpoint WHERE id = (SELECT min(id) FROM log_checkpoint)")
			if _, bad := s.verify(audit.Anchor{}); bad == nil {
				t.Error("got a log that verifies without an early checkpoint, want an error")
			}
		})
	}
}

// The log can be cut between a gap of an earlier version and the item that accounts for it.
func TestCutAfterUpgrade(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for _, days := range []int{60, 50} {
		e := newEdit(1, `{}`, `{}`)
		e.At = time.Now().AddDate(0, 0, -days)
		s.write("network", e)
		s.leaveOut("network", 1)
	}
	s.write("network", newEdit(1, `{}`, `{}`))
	s.downgrade()
	s.signHead()
	for _, days := range []int{55, 45, 1} {
		if err := s.cut(days); err != nil {
			t.Fatal(err)
		}
		s.write("network", newEdit(1, `{}`, `{}`))
		if found, bad := s.verify(audit.Anchor{}); bad != nil || found.Skipped != 2 {
			t.Errorf("cut at %d days: got %+v, %v, want 2 skipped", days, found, bad)
		}
	}
	if left := s.queryIDs("SELECT min(id) FROM log"); !slices.Equal(left, []int64{3}) {
		t.Errorf("got a log that begins with %v, want 3", left)
	}
}

// A log that was altered before the upgrade is neither upgraded nor written to.
func TestUpgradeVerifies(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"UPDATE log SET description = 'x' WHERE id = 6",
		"DELETE FROM log WHERE id = 10",
		"DELETE FROM log WHERE id = 4",
		"DELETE FROM log_checkpoint WHERE id = 3",
		"UPDATE log_checkpoint SET at = now() WHERE id = 2",
		"INSERT INTO log SELECT 11, at, source, 99, type, description, user_url, user_name, user_key, ip, request_id, targets, changes, mac " +
			"FROM log WHERE id = 5",
		"UPDATE log_head SET id = 9, mac = (SELECT mac FROM log WHERE id = 9)",
	} {
		s := newFixture(t)
		s.fillHistory()
		s.downgrade()
		s.execute(sql)
		if err := s.log.SignHead(t.Context(), s.db); !isAltered(err) {
			t.Errorf("%s: got %v for the upgrade, want an error that the log was altered", sql, err)
		}
		if err := s.tryWrite("network", newEdit(1, `{}`, `{}`)); !isAltered(err) {
			t.Errorf("%s: got %v for a change, want an error that the log was altered", sql, err)
		}
		if _, bad := s.verify(audit.Anchor{}); bad == nil {
			t.Errorf("%s: got a log that verifies, want an error", sql)
		}
	}
}
