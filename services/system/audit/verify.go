package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Anchor identifies the last item of a log at some time. Operators store it where people who can change the log cannot
// change it.
type Anchor struct {
	ID  int64 // 0: none
	MAC []byte
}

func (a Anchor) String() string { return fmt.Sprintf("%d:%x", a.ID, a.MAC) }

// UnmarshalText parses the output of String. An empty text is the zero Anchor.
func (a *Anchor) UnmarshalText(text []byte) error {
	*a = Anchor{}
	if len(text) == 0 {
		return nil
	}
	number, digits, _ := strings.Cut(string(text), ":")
	id, err := strconv.ParseInt(number, 10, 64)
	mac, decodeErr := hex.DecodeString(digits)
	if err != nil || decodeErr != nil || id < 1 || len(mac) == 0 {
		return errors.New("must be what verify printed: a number, a colon and hexadecimal digits")
	}
	a.ID, a.MAC = id, mac
	return nil
}

// Verification describes a log that Verify found unaltered.
type Verification struct {
	First, Last int64  // the items' ids; in an empty log, Last is less than First
	Anchor      Anchor // of the last item
	// Compared is false if the earlier anchor's item was cut, so that the log could not be compared with it.
	Compared bool
	// Changes holds the number of the last logged change by service. All changes up to it are in the log, or were cut.
	Changes map[string]int64
	Skipped int64 // how many changes were skipped; items account for them
	// Restored lists the restores of services from a backup since the first item.
	Restored []Restoration
}

// Restoration is a restore of a service from a backup.
type Restoration struct {
	Item        int64
	Source      string
	First, Last int64 // the logged changes that the service lost; 0, 0: none
	Kept        int   // how many of them the service still has
}

// Verify reads the whole log. It returns an *IntegrityError for the first part that was altered. earlier is an anchor
// from a previous run, or the zero Anchor.
func (l *Log) Verify(ctx context.Context, db *pg.DB, earlier Anchor) (found Verification, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		v, err := l.verifyAll(ctx, tx, earlier, nil)
		if err == nil {
			found = Verification{
				First:    v.first,
				Last:     v.id,
				Anchor:   Anchor{v.id, v.mac},
				Compared: v.compared,
				Changes:  v.seqs,
				Skipped:  v.skipped,
				Restored: v.restored,
			}
		}
		return err
	})
	return found, err
}

// verifyAll verifies the whole log in a transaction of its own. Unless ranges is nil, it collects the items there that an
// older master key signed.
func (l *Log) verifyAll(ctx context.Context, tx *pg.Tx, earlier Anchor, ranges *[]rangeHash) (*verifier, error) {
	v := l.newVerifier(tx)
	v.earlier, v.toCountersign = earlier, ranges
	tx.Unrecorded("verifying changes nothing")
	if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil { // writers append at the same time
		return v, fmt.Errorf("begin to verify the log: %v", err)
	}
	h, err := readHead(ctx, tx, "")
	if err != nil {
		return v, err
	}
	err = h.check(v.signer)
	switch {
	case err != nil && h.isOldFormat(v.signer):
		return v, &IntegrityError{0, "the head was written by an earlier version: start the service to upgrade it"}
	case err != nil:
		return v, &IntegrityError{0, err.Error()}
	}
	return v, v.verify(ctx, &h)
}

// verify verifies the log up to a head whose signature is valid.
func (v *verifier) verify(ctx context.Context, h *head) error {
	if err := v.verifyCheckpoints(ctx, h); err != nil {
		return err
	}
	if err := v.expectNoItem(ctx, "was inserted where the log was cut", "SELECT min(id) FROM log WHERE id < $1", v.first); err != nil {
		return err
	}
	if err := v.verifyTo(ctx, h.id); err != nil {
		return err
	}
	if err := v.verifyEnd(ctx, h); err != nil {
		return err
	}
	if v.id >= v.first && h.age > v.age {
		return &IntegrityError{0, "the head is signed with an earlier master key than the last item"}
	}
	if v.earlier.ID > v.id {
		return &IntegrityError{v.id + 1, fmt.Sprintf("is missing: the anchor is of item %d", v.earlier.ID)}
	}
	if err := v.verifyComplete(); err != nil {
		return err
	}
	if err := v.verifyHeadNumbers(ctx, h); err != nil {
		return err
	}
	if err := v.expectNoItem(
		ctx,
		"exists twice",
		"SELECT min(id) FROM (SELECT id FROM log GROUP BY id HAVING count(*) > 1) twice",
	); err != nil {
		return err
	}
	return v.expectNoItem(
		ctx,
		"does not exist, but is listed for a target",
		"SELECT min(log_id) FROM log_target WHERE log_id < $1 OR log_id > $2",
		v.first,
		v.id,
	)
}

// verifyHeadNumbers verifies that the head has the number of each service's last change, and that the consumers that
// pull the next changes are at the same numbers.
func (v *verifier) verifyHeadNumbers(ctx context.Context, h *head) error {
	if !maps.Equal(v.seqs, h.seqs) {
		return &IntegrityError{0, "the change numbers in the head do not match the items"}
	}
	cursors, err := readCursors(ctx, v.tx)
	if err != nil {
		return err
	}
	for _, source := range slices.Sorted(maps.Keys(v.seqs)) {
		if _, exists := cursors[source]; !exists {
			cursors[source] = 0
		}
	}
	for _, source := range slices.Sorted(maps.Keys(cursors)) {
		if cursors[source] != v.seqs[source] {
			return &IntegrityError{
				0,
				fmt.Sprintf("the consumer of %s is at change %d, but the log ends at its change %d", source, cursors[source], v.seqs[source]),
			}
		}
	}
	return nil
}

// readCursors returns the number of the last change that was pulled from each service.
func readCursors(ctx context.Context, tx *pg.Tx) (map[string]int64, error) {
	cursors := map[string]int64{}
	rows, err := tx.Query(ctx, "SELECT source, seq FROM consumer WHERE name = ''")
	if err != nil {
		return nil, fmt.Errorf("read the consumers: %v", err)
	}
	var source string
	var seq int64
	if _, err = pgx.ForEachRow(rows, []any{&source, &seq}, func() error {
		cursors[source] = seq
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the consumers: %v", err)
	}
	return cursors, nil
}
