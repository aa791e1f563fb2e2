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

// countersignedRange are items that an older master key signed, and a newer one vouches for.
type countersignedRange struct {
	first, last       int64
	digest, signature []byte
}

func (c *countersignedRange) message() buffer {
	m := newBuffer("countersigned")
	m.putNumber(c.first)
	m.putNumber(c.last)
	m.putBytes(c.digest)
	return m
}

// maxRangeItems bounds how many items are countersigned at once.
const maxRangeItems = readBatch

// unknownAge is that of a master key which is not given any more: it is older than all that are.
const unknownAge = math.MaxInt

// rangeHash is a part of the log that is being hashed as the walk goes through it.
type rangeHash struct {
	countersignedRange
	hash hash.Hash
}

func (c *rangeHash) add(i *item, before []byte) {
	var m buffer
	m.putBytes(i.message(before))
	m.putBytes(i.mac)
	c.hash.Write(m)
	c.last = i.id
}

// readCountersigned verifies the signatures.
func (w *verifier) readCountersigned(ctx context.Context) error {
	rows, err := w.tx.Query(ctx, "SELECT first, last, digest, signature FROM log_countersigned ORDER BY first")
	if err != nil {
		return fmt.Errorf("read what is countersigned: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c countersignedRange, err error) {
		return c, r.Scan(&c.first, &c.last, &c.digest, &c.signature)
	})
	if err != nil {
		return fmt.Errorf("read what is countersigned: %w", err)
	}
	for _, c := range all {
		if _, ok, err := w.signer.Check(c.message(), c.signature); err != nil || !ok {
			return &IntegrityError{0, fmt.Sprintf("what countersigns the items %d to %d is not signed with this master key", c.first, c.last)}
		}
		if n := len(w.countersigned); n > 0 && c.first <= w.countersigned[n-1].last {
			return &IntegrityError{0, fmt.Sprintf("the items from %d on are countersigned twice", c.first)}
		}
		w.countersigned = append(w.countersigned, c)
	}
	return nil
}

// verifyCountersigned tells whether an item is countersigned, and, at the end of what is so at once, whether that is as it was.
func (w *verifier) verifyCountersigned(i *item) (covered bool, err error) {
	if w.current == nil {
		for len(w.countersigned) > 0 && w.countersigned[0].first < i.id {
			w.countersigned = w.countersigned[1:]
		}
		if len(w.countersigned) == 0 || w.countersigned[0].first != i.id {
			return false, nil
		}
		w.current = &rangeHash{hash: sha256.New()}
	}
	w.current.add(i, w.mac)
	if c := w.countersigned[0]; i.id == c.last {
		if !bytes.Equal(w.current.hash.Sum(nil), c.digest) {
			return true, &IntegrityError{c.first, fmt.Sprintf("or one behind it, up to item %d, was altered", c.last)}
		}
		w.current = nil
	}
	return true, nil
}

// alignToRange is the nearest item from this one on, or before it, at which nothing that is countersigned at once is divided.
func (w *verifier) alignToRange(id int64, before bool) int64 {
	for _, c := range w.countersigned {
		if c.first <= id && id < c.last {
			if before {
				return c.first - 1
			}
			return c.last
		}
	}
	return id
}

// collectForCountersigning hashes an item that is signed with an older key, to be countersigned.
func (w *verifier) collectForCountersigning(i *item, age int) {
	if age == 0 || w.toCountersign == nil {
		return
	}
	n := len(*w.toCountersign)
	if n == 0 || (*w.toCountersign)[n-1].last-(*w.toCountersign)[n-1].first+1 == maxRangeItems {
		*w.toCountersign = append(*w.toCountersign, rangeHash{countersignedRange{first: i.id}, sha256.New()})
		n++
	}
	(*w.toCountersign)[n-1].add(i, w.mac)
}

var errConcurrentCut = errors.New("the log was cut meanwhile")

// Resign signs head and checkpoints with the newest master key, and countersigns the items that an older one signed, once
// all of the log is verified. It goes on being written.
func (l *Log) Resign(ctx context.Context, db *pg.DB) error {
	for {
		var ranges []rangeHash
		var first int64
		if err := db.InTx(ctx, func(tx *pg.Tx) error {
			ranges = []rangeHash{}
			w, err := l.verifyAll(ctx, tx, Anchor{}, &ranges)
			first = w.first
			return err
		}); err != nil {
			return err
		}
		if err := db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("what is logged is not changed")
			return l.countersign(ctx, tx, first, ranges)
		}); !errors.Is(err, errConcurrentCut) {
			return err
		}
	}
}

func (l *Log) countersign(ctx context.Context, tx *pg.Tx, first int64, ranges []rangeHash) error {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return err
	}
	w := l.newVerifier(tx)
	if err := w.verifyCheckpoints(ctx, &h); err != nil {
		return err
	}
	if w.first != first {
		return errConcurrentCut
	}
	h.checkpoint = h.checkpoint[:0]
	var all []checkpoint
	if err := forEachCheckpoint(ctx, tx, func(c *checkpoint) error { all = append(all, *c); return nil }); err != nil {
		return err
	}
	for _, c := range all {
		h.checkpoint = w.signer.Sign(c.message(h.checkpoint))
		if _, err := tx.Exec(ctx, "UPDATE log_checkpoint SET signature = $2 WHERE id = $1", c.id, h.checkpoint); err != nil {
			return fmt.Errorf("sign a checkpoint anew: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM log_countersigned"); err != nil {
		return fmt.Errorf("replace what is countersigned: %w", err)
	}
	for _, c := range ranges {
		c.digest = c.hash.Sum(nil)
		if _, err := tx.Exec(
			ctx,
			"INSERT INTO log_countersigned (first, last, digest, signature) VALUES ($1, $2, $3, $4)",
			c.first,
			c.last,
			c.digest,
			w.signer.Sign(c.message()),
		); err != nil {
			return fmt.Errorf("countersign items: %w", err)
		}
	}
	return h.store(ctx, tx, w.signer)
}

// Older tells how many items, checkpoints and heads are signed with an older master key and not countersigned with the
// newest. Older items come before newer ones, so their end is found by bisection.
func (l *Log) Older(ctx context.Context, db *pg.DB) (n int64, err error) {
	newest := l.box.KeyID()
	var first, last, covered int64
	err = db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM log_head WHERE signature <> '' AND substring(signature FROM 1 FOR length($1::bytea)) <> $1)
			+ (SELECT count(*) FROM log_checkpoint WHERE substring(signature FROM 1 FOR length($1)) <> $1),
			coalesce((SELECT min(id) FROM log), 1), coalesce((SELECT max(id) FROM log), 0),
			coalesce((SELECT max(last) FROM log_countersigned WHERE substring(signature FROM 1 FOR length($1)) = $1), 0)`, newest).Scan(&n, &first, &last, &covered)
	if err != nil {
		return 0, fmt.Errorf("look what older keys are needed for: %w", err)
	}
	first = max(first, covered+1)
	items := sort.Search(int(max(0, last-first+1)), func(at int) bool {
		var mac []byte
		if err == nil {
			err = db.QueryRow(ctx, "SELECT mac FROM log WHERE id = $1", first+int64(at)).Scan(&mac)
		}
		return bytes.HasPrefix(mac, newest)
	})
	if errors.Is(err, pgx.ErrNoRows) { // it is being cut
		return n, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for items that an older key signed: %w", err)
	}
	return n + int64(items), nil
}
