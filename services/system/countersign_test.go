package system_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system/audit"
)

func (s *fixture) countOldSignatures() int64 {
	s.t.Helper()
	n, err := s.log.Older(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *fixture) rotateKeys(masterKeys ...string) {
	s.t.Helper()
	s.box = mustBox(s.t, strings.Join(masterKeys, ","))
	s.log = audit.New(s.box)
}

func (s *fixture) resign() {
	s.t.Helper()
	if err := s.log.Resign(s.t.Context(), s.db); err != nil {
		s.t.Fatal(err)
	}
}

// After Resign, the log can be verified without the earlier master keys, and compared with an earlier anchor.
func TestResign(t *testing.T) {
	t.Parallel()
	first, second, third := seal.NewMasterKey().Reveal(), seal.NewMasterKey().Reveal(), seal.NewMasterKey().Reveal()
	s := newFixtureWithKey(t, secret.New(first))
	s.fillHistory()
	before, bad := s.verify(audit.Anchor{})
	if bad != nil || s.countOldSignatures() != 0 {
		t.Fatalf("got %v and %d older signatures, want none", bad, s.countOldSignatures())
	}
	for _, keys := range [][]string{{second, first}, {third, second}} {
		s.rotateKeys(keys...)
		s.signHead()
		s.write("network", newEdit(1, `{}`, `{}`))
		if n := s.countOldSignatures(); n == 0 {
			t.Error("got no signatures with the earlier key, want some")
		}
		s.resign()
		if n := s.countOldSignatures(); n != 0 {
			t.Errorf("got %d signatures with the earlier key, want 0", n)
		}
		s.write("network", newEdit(1, `{}`, `{}`))
		s.rotateKeys(keys[0])
		found, bad := s.verify(before.Anchor)
		if bad != nil || !found.Compared || found.First != before.First {
			t.Fatalf("got %+v, %v, want it compared, from %d on", found, bad, before.First)
		}
	}
	// A cut does not divide a countersigned range.
	if err := s.cut(42); err != nil {
		t.Fatal(err)
	}
	found, bad := s.verify(audit.Anchor{})
	if bad != nil || found.First != before.First {
		t.Fatalf("got %+v, %v, want items from %d on", found, bad, before.First)
	}
	if err := s.log.Cut(t.Context(), s.db, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if found, bad = s.verify(audit.Anchor{}); bad != nil || found.First <= before.Last {
		t.Fatalf("got %+v, %v, want items after %d", found, bad, before.Last)
	}
}

// Alterations of countersigned items are detected, although the process no longer has the key that signed them.
func TestAlteredCountersigned(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"altered item":              "UPDATE log SET description = 'x' WHERE id = 4",
		"altered mac":               "UPDATE log SET mac = set_byte(mac, 20, get_byte(mac, 20) # 1) WHERE id = 4",
		"altered first":             "UPDATE log SET description = 'x' WHERE id = 1",
		"removed item":              "DELETE FROM log WHERE id = 4",
		"removed, gap closed":       "DELETE FROM log WHERE id = 4; UPDATE log SET id = id - 1 WHERE id > 4",
		"nothing countersigns":      "DELETE FROM log_countersigned",
		"digest":                    "UPDATE log_countersigned SET digest = set_byte(digest, 20, get_byte(digest, 20) # 1)",
		"moved":                     "UPDATE log_countersigned SET first = first + 1",
		"shortened":                 "UPDATE log_countersigned SET last = last - 1",
		"signature":                 "UPDATE log_countersigned SET signature = set_byte(signature, 20, get_byte(signature, 20) # 1)",
		"signed by a key of before": "UPDATE log SET mac = (SELECT mac FROM log WHERE id = 10) WHERE id = 11",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := seal.NewMasterKey().Reveal(), seal.NewMasterKey().Reveal()
			s := newFixtureWithKey(t, secret.New(first))
			s.fill()
			s.rotateKeys(second, first)
			s.resign()
			s.write("network", newEdit(1, `{}`, `{}`))
			s.rotateKeys(second)
			if _, bad := s.verify(audit.Anchor{}); bad != nil {
				t.Fatal(bad)
			}
			for _, statement := range strings.Split(sql, "; ") {
				s.execute(statement)
			}
			if _, bad := s.verify(audit.Anchor{}); bad == nil {
				t.Error("got a log that verifies, want an error")
			}
		})
	}
}
