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

// Anchor is where a log ended once, to be kept where nobody can alter it who can alter the log.
type Anchor struct {
	ID  int64 // 0: none
	MAC []byte
}

func (a Anchor) String() string { return fmt.Sprintf("%d:%x", a.ID, a.MAC) }

// UnmarshalText reads what String wrote, or nothing.
func (a *Anchor) UnmarshalText(text []byte) error {
	*a = Anchor{}
	if len(text) == 0 {
		return nil
	}
	number, digits, _ := strings.Cut(string(text), ":")
	id, err := strconv.ParseInt(number, 10, 64)
	mac, decodeErr := hex.DecodeString(digits)
	if err != nil || decodeErr != nil || id < 1 || len(mac) == 0 {
		return errors.New("it is not what verify printed: a number, a colon and hexadecimal digits")
	}
	a.ID, a.MAC = id, mac
	return nil
}

// Verification is what Verify found to be as it was written.
type Verification struct {
	First, Last int64  // the items; Last is before First where there is none
	Anchor      Anchor // of now
	// Compared is false where the earlier anchor's item has been cut off since.
	Compared bool
	// Changes are by service: the number of the last one. All up to there are in the log, or were when it was cut.
	Changes map[string]int64
	Skipped int64 // how many of them were given up, with an item that says so
	// Restoration are the services that were restored from a backup since the first item.
	Restored []Restoration
}

// Restoration is a service that was restored from a backup, as an item says.
type Restoration struct {
	Item        int64
	Source      string
	First, Last int64 // the changes that are in the log, and lost to the service; 0, 0: none
	Kept        int   // how many of them it has all the same
}

// Verify reads the whole log and tells, as a *Bad, the first thing in it that is not as it was written. earlier is an
// anchor of before; the zero Anchor where there is none.
func (l *Log) Verify(ctx context.Context, db *pg.DB, earlier Anchor) (found Verification, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		w, err := l.verifyAll(ctx, tx, earlier, nil)
		if err == nil {
			found = Verification{
				First:    w.first,
				Last:     w.id,
				Anchor:   Anchor{w.id, w.mac},
				Compared: w.compared,
				Changes:  w.seqs,
				Skipped:  w.skipped,
				Restored: w.restored,
			}
		}
		return err
	})
	return found, err
}

// verifyAll walks through the whole log in a transaction of its own. It notes there, where that is not nil, what is signed
// with an older master key.
func (l *Log) verifyAll(ctx context.Context, tx *pg.Tx, earlier Anchor, ranges *[]rangeHash) (*verifier, error) {
	w := l.newVerifier(tx)
	w.earlier, w.toCountersign = earlier, ranges
	tx.Unrecorded("nothing is changed")
	if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil { // it is written to meanwhile
		return w, fmt.Errorf("begin to verify: %w", err)
	}
	h, err := readHead(ctx, tx, "")
	if err != nil {
		return w, err
	}
	err = h.check(w.signer)
	switch {
	case err != nil && h.isOldFormat(w.signer):
		return w, &IntegrityError{0, "its head is that of an earlier version; the service brings it up to date when it starts"}
	case err != nil:
		return w, &IntegrityError{0, err.Error()}
	}
	return w, w.verify(ctx, &h)
}

// verify verifies all, up to a head that is checked.
func (w *verifier) verify(ctx context.Context, h *head) error {
	if err := w.verifyCheckpoints(ctx, h); err != nil {
		return err
	}
	if err := w.expectNoItem(ctx, "was put where the log is cut", "SELECT min(id) FROM log WHERE id < $1", w.first); err != nil {
		return err
	}
	if err := w.verifyTo(ctx, h.id); err != nil {
		return err
	}
	if err := w.verifyEnd(ctx, h); err != nil {
		return err
	}
	if w.id >= w.first && h.age > w.age {
		return &IntegrityError{0, "the head is signed with an earlier master key than the last item"}
	}
	if w.earlier.ID > w.id {
		return &IntegrityError{w.id + 1, fmt.Sprintf("is missing: the log went up to item %d once", w.earlier.ID)}
	}
	if err := w.verifyComplete(); err != nil {
		return err
	}
	if err := w.verifyHeadNumbers(ctx, h); err != nil {
		return err
	}
	if err := w.expectNoItem(
		ctx,
		"is there twice",
		"SELECT min(id) FROM (SELECT id FROM log GROUP BY id HAVING count(*) > 1) twice",
	); err != nil {
		return err
	}
	return w.expectNoItem(
		ctx,
		"is not there, and is found by a target",
		"SELECT min(log_id) FROM log_target WHERE log_id < $1 OR log_id > $2",
		w.first,
		w.id,
	)
}

// verifyHeadNumbers verifies that the head has the number of each service's last change, and the cursor from where the next ones
// are pulled stands there, too.
func (w *verifier) verifyHeadNumbers(ctx context.Context, h *head) error {
	if !maps.Equal(w.seqs, h.seqs) {
		return &IntegrityError{0, "the head does not have the numbers of the services' last changes"}
	}
	cursors, err := readCursors(ctx, w.tx)
	if err != nil {
		return err
	}
	for _, source := range slices.Sorted(maps.Keys(w.seqs)) {
		if _, exists := cursors[source]; !exists {
			cursors[source] = 0
		}
	}
	for _, source := range slices.Sorted(maps.Keys(cursors)) {
		if cursors[source] != w.seqs[source] {
			return &IntegrityError{
				0,
				fmt.Sprintf("the changes of %s are pulled from behind %d on, and logged up to %d", source, cursors[source], w.seqs[source]),
			}
		}
	}
	return nil
}

// readCursors tells, by service, up to which change its changes have been pulled.
func readCursors(ctx context.Context, tx *pg.Tx) (map[string]int64, error) {
	cursors := map[string]int64{}
	rows, err := tx.Query(ctx, "SELECT source, seq FROM consumer WHERE name = ''")
	if err != nil {
		return nil, fmt.Errorf("read the cursors: %w", err)
	}
	var source string
	var seq int64
	if _, err = pgx.ForEachRow(rows, []any{&source, &seq}, func() error {
		cursors[source] = seq
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the cursors: %w", err)
	}
	return cursors, nil
}
