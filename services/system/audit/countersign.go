package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"math"
	"sort"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// countersignedRange is a range of items that an older master key signed. Its own signature is by a newer key, so the
// items can be verified without the older key.
type countersignedRange struct {
	first, last       int64
	digest, signature []byte
}

// message returns the bytes that the countersignature signs.
func (c *countersignedRange) message() buffer {
	m := newBuffer("countersigned")
	m.putNumber(c.first)
	m.putNumber(c.last)
	m.putBytes(c.digest)
	return m
}

// maxRangeItems is the largest number of items that one signature countersigns.
const maxRangeItems = readBatch

// unknownAge is the age of a master key that the process does not have. It is older than all that it has.
const unknownAge = math.MaxInt

// rangeHash is a range of items whose hash is computed as the verifier reads them.
type rangeHash struct {
	countersignedRange
	hash hash.Hash
}

// add adds an item to the hash. before is the previous item's mac.
func (c *rangeHash) add(i *item, before []byte) {
	var m buffer
	m.putBytes(i.message(before))
	m.putBytes(i.mac)
	c.hash.Write(m)
	c.last = i.id
}

// readCountersigned reads the countersigned ranges and verifies their signatures.
func (v *verifier) readCountersigned(ctx context.Context) error {
	rows, err := v.tx.Query(ctx, "SELECT first, last, digest, signature FROM log_countersigned ORDER BY first")
	if err != nil {
		return fmt.Errorf("read the countersigned ranges: %v", err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c countersignedRange, err error) {
		return c, r.Scan(&c.first, &c.last, &c.digest, &c.signature)
	})
	if err != nil {
		return fmt.Errorf("read the countersigned ranges: %v", err)
	}
	for _, c := range all {
		if _, ok, err := v.signer.Check(c.message(), c.signature); err != nil || !ok {
			return &IntegrityError{0, fmt.Sprintf("the countersignature of items %d to %d was not made with this master key", c.first, c.last)}
		}
		if n := len(v.countersigned); n > 0 && c.first <= v.countersigned[n-1].last {
			return &IntegrityError{0, fmt.Sprintf("items from %d on are countersigned twice", c.first)}
		}
		v.countersigned = append(v.countersigned, c)
	}
	return nil
}

// verifyCountersigned reports whether an item is in a countersigned range. At the last item of a range it compares the
// range's hash, and returns an *IntegrityError if an item was altered.
func (v *verifier) verifyCountersigned(i *item) (covered bool, err error) {
	if v.current == nil {
		for len(v.countersigned) > 0 && v.countersigned[0].first < i.id {
			v.countersigned = v.countersigned[1:]
		}
		if len(v.countersigned) == 0 || v.countersigned[0].first != i.id {
			return false, nil
		}
		v.current = &rangeHash{hash: sha256.New()}
	}
	v.current.add(i, v.mac)
	if c := v.countersigned[0]; i.id == c.last {
		if !bytes.Equal(v.current.hash.Sum(nil), c.digest) {
			return true, &IntegrityError{c.first, fmt.Sprintf("or a later item up to %d was altered", c.last)}
		}
		v.current = nil
	}
	return true, nil
}

// alignToRange returns id if it does not divide a countersigned range. Otherwise it returns the item before that range
// (before is true) or the range's last item. A range must stay whole, because one signature covers all of it.
func (v *verifier) alignToRange(id int64, before bool) int64 {
	for _, c := range v.countersigned {
		if c.first <= id && id < c.last {
			if before {
				return c.first - 1
			}
			return c.last
		}
	}
	return id
}

// collectForCountersigning adds an item to the ranges to countersign if an older key signed it.
func (v *verifier) collectForCountersigning(i *item, age int) {
	if age == 0 || v.toCountersign == nil {
		return
	}
	n := len(*v.toCountersign)
	if n == 0 || (*v.toCountersign)[n-1].last-(*v.toCountersign)[n-1].first+1 == maxRangeItems {
		*v.toCountersign = append(*v.toCountersign, rangeHash{countersignedRange{first: i.id}, sha256.New()})
		n++
	}
	(*v.toCountersign)[n-1].add(i, v.mac)
}

var errConcurrentCut = errors.New("the log was cut at the same time")

// Resign verifies the whole log. Then it signs head and checkpoints with the newest master key, and countersigns the
// items that an older key signed. Writers may append to the log at the same time.
func (l *Log) Resign(ctx context.Context, db *pg.DB) error {
	for {
		var ranges []rangeHash
		var first int64
		if err := db.InTx(ctx, func(tx *pg.Tx) error {
			ranges = []rangeHash{}
			v, err := l.verifyAll(ctx, tx, Anchor{}, &ranges)
			first = v.first
			return err
		}); err != nil {
			return err
		}
		if err := db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the logged items do not change")
			return l.countersign(ctx, tx, first, ranges)
		}); !errors.Is(err, errConcurrentCut) {
			return err
		}
	}
}

// countersign signs head, checkpoints and ranges with the newest key. It returns errConcurrentCut if the log no longer begins
// with item first.
func (l *Log) countersign(ctx context.Context, tx *pg.Tx, first int64, ranges []rangeHash) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	v := l.newVerifier(tx)
	if err := v.verifyCheckpoints(ctx, &h); err != nil {
		return err
	}
	if v.first != first {
		return errConcurrentCut
	}
	h.checkpoint = h.checkpoint[:0]
	var all []checkpoint
	if err := forEachCheckpoint(ctx, tx, func(c *checkpoint) error { all = append(all, *c); return nil }); err != nil {
		return err
	}
	for _, c := range all {
		h.checkpoint = v.signer.Sign(c.message(h.checkpoint))
		if _, err := tx.Exec(ctx, "UPDATE log_checkpoint SET signature = $2 WHERE id = $1", c.id, h.checkpoint); err != nil {
			return fmt.Errorf("sign a checkpoint again: %v", err)
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM log_countersigned"); err != nil {
		return fmt.Errorf("delete the earlier countersigned ranges: %v", err)
	}
	for _, c := range ranges {
		c.digest = c.hash.Sum(nil)
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO log_countersigned (first, last, digest, signature) VALUES ($1, $2, $3, $4)",
			c.first,
			c.last,
			c.digest,
			v.signer.Sign(c.message()),
		); err != nil {
			return fmt.Errorf("countersign items: %v", err)
		}
	}
	return h.store(ctx, tx, v.signer)
}

// Older returns how many items, checkpoints and heads are signed with an older master key and are not countersigned
// with the newest. Items with older signatures come first, so a binary search finds where they end.
func (l *Log) Older(ctx context.Context, db *pg.DB) (n int64, err error) {
	newest := l.box.KeyID()
	var first, last, covered int64
	err = db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM log_head WHERE signature <> '' AND substring(signature FROM 1 FOR length($1::bytea)) <> $1)
			+ (SELECT count(*) FROM log_checkpoint WHERE substring(signature FROM 1 FOR length($1)) <> $1),
			coalesce((SELECT min(id) FROM log), 1), coalesce((SELECT max(id) FROM log), 0),
			coalesce((SELECT max(last) FROM log_countersigned WHERE substring(signature FROM 1 FOR length($1)) = $1), 0)`, newest).Scan(&n, &first, &last, &covered)
	if err != nil {
		return 0, fmt.Errorf("count older signatures: %v", err)
	}
	first = max(first, covered+1)
	items := sort.Search(int(max(0, last-first+1)), func(at int) bool {
		var mac []byte
		if err == nil {
			err = db.QueryRow(ctx, "SELECT mac FROM log WHERE id = $1", first+int64(at)).Scan(&mac)
		}
		return bytes.HasPrefix(mac, newest)
	})
	if errors.Is(err, pgx.ErrNoRows) { // the log is being cut
		return n, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find items that an older key signed: %v", err)
	}
	return n + int64(items), nil
}
