package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
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
	mac, wrong := hex.DecodeString(digits)
	if err != nil || wrong != nil || id < 1 || len(mac) == 0 {
		return errors.New("it is not what verify printed: a number, a colon and hexadecimal digits")
	}
	a.ID, a.MAC = id, mac
	return nil
}

// Verified is what Verify found to be as it was written.
type Verified struct {
	First, Last int64  // the items; Last is before First where there is none
	Anchor      Anchor // of now
	// Compared is false where the earlier anchor's item has been cut off since.
	Compared bool
}

// Bad says what is wrong with a log, and where it begins.
type Bad struct {
	ID     int64 // of the first item that is not as it was written; 0: it is not an item
	Reason string
}

func (b *Bad) Error() string {
	if b.ID == 0 {
		return "the log is not as it was written: " + b.Reason
	}
	return fmt.Sprintf("the log is not as it was written: item %d %s", b.ID, b.Reason)
}

// stretch is how many items are read at a time.
const stretch = 5000

// Verify reads the whole log and tells, as a *Bad, the first thing in it that is not as it was written. earlier is an
// anchor of before; the zero Anchor where there is none.
func (l *Log) Verify(ctx context.Context, db *pg.DB, earlier Anchor) (found Verified, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is changed")
		if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"); err != nil { // it is written to meanwhile
			return fmt.Errorf("begin to verify: %w", err)
		}
		v := verification{signer: l.signer(), tx: tx, earlier: earlier}
		head, err := readEnd(ctx, tx, "")
		if err != nil {
			return err
		}
		if err := l.checkEnd(&head); err != nil {
			return &Bad{0, err.Error()}
		}
		if err := v.run(ctx, &head); err != nil {
			return err
		}
		found = Verified{First: v.first, Last: v.at, Anchor: Anchor{v.at, v.mac}, Compared: v.compared}
		return nil
	})
	return found, err
}

// verification walks the log: up to the item at, whose mac is mac, all is well.
type verification struct {
	signer   *secret.Signer
	tx       *pg.Tx
	earlier  Anchor
	compared bool
	first    int64
	at       int64
	mac      []byte
	age      int // of the master key that signed it
}

func (v *verification) run(ctx context.Context, head *end) error {
	if err := v.checkpoints(ctx); err != nil {
		return err
	}
	v.first = v.at + 1
	if err := v.none(ctx, "was put where the log is cut", "SELECT min(id) FROM log WHERE id < $1", v.first); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = v.stretch(ctx, head.id); err != nil {
			return err
		}
	}
	if v.at < head.id {
		return &Bad{v.at + 1, "is missing, and all behind it"}
	}
	if !bytes.Equal(v.mac, head.mac) {
		return &Bad{v.at, "is not the one that the head names"}
	}
	if v.earlier.ID > v.at {
		return &Bad{v.at + 1, fmt.Sprintf("is missing: the log went up to item %d once", v.earlier.ID)}
	}
	if err := v.none(ctx, "is there twice", "SELECT min(id) FROM (SELECT id FROM log GROUP BY id HAVING count(*) > 1) twice"); err != nil {
		return err
	}
	return v.none(ctx, "is not there, and is found by a target", "SELECT min(log_id) FROM log_target WHERE log_id < $1 OR log_id > $2", v.first, v.at)
}

// none tells of the first item that there is and should not be.
func (v *verification) none(ctx context.Context, reason, sql string, args ...any) error {
	var id *int64
	if err := v.tx.QueryRow(ctx, sql, args...).Scan(&id); err != nil {
		return fmt.Errorf("look for an item that %s: %w", reason, err)
	}
	if id != nil {
		return &Bad{*id, reason}
	}
	return nil
}

// checkpoints begins the walk behind the last checkpoint.
func (v *verification) checkpoints(ctx context.Context) error {
	rows, err := v.tx.Query(ctx, "SELECT id, mac, at, signature FROM log_checkpoint ORDER BY id")
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c checkpoint, err error) {
		err = row.Scan(&c.id, &c.mac, &c.at, &c.signature)
		return c, err
	})
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	for _, c := range all {
		if _, ok, err := v.signer.Check(c.message(), c.signature); err != nil || !ok {
			return &Bad{0, fmt.Sprintf("the checkpoint behind item %d is not signed with this master key", c.id)}
		}
		v.at, v.mac = c.id, c.mac
		v.compare()
	}
	return nil
}

func (v *verification) compare() bool {
	if v.at != v.earlier.ID {
		return true
	}
	v.compared = true
	return bytes.Equal(v.mac, v.earlier.MAC)
}

// stretch verifies the next items, and tells whether there are more.
func (v *verification) stretch(ctx context.Context, last int64) (more bool, err error) {
	rows, err := v.tx.Query(ctx, `
		SELECT id, at, source, seq, type, description, user_url, user_name, user_key, ip, request_id, targets::text, changes::text, mac,
			ARRAY(SELECT concat_ws(' ', t.type, t.target_id, t.at = l.at AND t.user_url IS NOT DISTINCT FROM l.user_url) FROM log_target t WHERE t.log_id = l.id)
		FROM log l WHERE id > $1 ORDER BY id LIMIT $2`, v.at, stretch)
	if err != nil {
		return false, fmt.Errorf("read items: %w", err)
	}
	read := 0
	var i item
	var targets []string
	_, err = pgx.ForEachRow(rows, []any{&i.id, &i.at, &i.source, &i.seq, &i.kind, &i.description, &i.userURL, &i.userName, &i.userKey,
		&i.ip, &i.requestID, &i.targets, &i.changes, &i.mac, &targets}, func() error {
		read++
		return v.item(&i, targets, last)
	})
	if err != nil {
		return false, err
	}
	return read == stretch, nil
}

// item verifies the next item.
func (v *verification) item(i *item, targets []string, last int64) error {
	switch {
	case i.id == v.at:
		return &Bad{i.id, "is there twice"}
	case i.id > v.at+1:
		return &Bad{v.at + 1, "is missing"}
	case i.id > last:
		return &Bad{i.id, "was put behind the log's end"}
	}
	age, ok, err := v.signer.Check(i.message(v.mac), i.mac)
	switch {
	case err != nil:
		return &Bad{i.id, "is not signed with this master key"}
	case !ok:
		return &Bad{i.id, "was altered or put there, or the one before it was removed"}
	case i.id > v.first && age > v.age:
		return &Bad{i.id, "is signed with an earlier master key than the one before it"}
	}
	v.at, v.mac, v.age = i.id, bytes.Clone(i.mac), age
	if !v.compare() {
		return &Bad{i.id, "is another one than it was once"}
	}
	return sameTargets(i, targets)
}

// sameTargets tells whether an item is found by its targets, and by no others.
func sameTargets(i *item, found []string) error {
	var signed []pg.Target
	if err := json.Unmarshal([]byte(i.targets), &signed); err != nil {
		return fmt.Errorf("read the targets of item %d: %w", i.id, err)
	}
	want := map[string]bool{}
	for _, t := range signed {
		want[fmt.Sprintf("%s %d t", t.Type, t.ID)] = true
	}
	for _, t := range found {
		if !want[t] {
			return &Bad{i.id, "is found by a target that it does not have"}
		}
		delete(want, t)
	}
	if len(want) > 0 {
		return &Bad{i.id, "is not found by one of its targets"}
	}
	return nil
}
