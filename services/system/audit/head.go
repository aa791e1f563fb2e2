package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// head says where the log ends. In a log that never had an item, id is 0 and mac is empty.
type head struct {
	id         int64 // of the last item
	mac        []byte
	seqs       map[string]int64 // by service: the number of its last change that is logged
	checkpoint []byte           // the last checkpoint's signature; empty: the log was never cut
	signature  []byte
	age        int // of the master key that signed it
}

// message returns the bytes that the head's signature signs.
func (h *head) message() []byte {
	m := newBuffer("head 2") // kind "head" had no change numbers and no checkpoint: see upgrade
	m.putNumber(h.id)
	m.putBytes(h.mac)
	m.putBytes(h.checkpoint)
	m.putNumbers(h.seqs)
	return m
}

// checkpoint says up to which item the log was cut.
type checkpoint struct {
	id        int64 // of the last item that was cut
	mac       []byte
	at        time.Time
	seqs      map[string]int64 // as the head's, at that item
	signature []byte
}

// message returns the bytes that the checkpoint's signature signs. before is the previous checkpoint's signature.
func (c *checkpoint) message(before []byte) []byte {
	m := newBuffer("checkpoint 2")
	m.putBytes(before) // the previous checkpoint's signature
	m.putNumber(c.id)
	m.putBytes(c.mac)
	m.putNumber(c.at.UnixMicro())
	m.putNumbers(c.seqs)
	return m
}

var (
	// errHead means that the head was altered. The log must not be written to.
	errHead = errors.New("the head of the log was altered")
	// errUnsigned means that the head has no signature: it was emptied, or the log never had an item.
	errUnsigned = errors.New("the head of the log is not signed")
)

// readHead reads the head. lock is empty or a SQL locking clause.
func readHead(ctx context.Context, tx *pg.Tx, lock string) (h head, err error) {
	err = tx.QueryRow(ctx, "SELECT id, mac, seqs, checkpoint, signature FROM log_head "+lock).
		Scan(&h.id, &h.mac, &h.seqs, &h.checkpoint, &h.signature)
	if err != nil {
		return h, fmt.Errorf("read the log's head: %w", err)
	}
	if h.seqs == nil { // the column was set to null
		h.seqs = map[string]int64{}
	}
	return h, nil
}

// check verifies the head's signature. It returns errUnsigned or an error that wraps errHead.
func (h *head) check(signer *seal.Signer) error {
	if len(h.signature) == 0 {
		return errUnsigned
	}
	age, ok, err := signer.Check(h.message(), h.signature)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errHead, err)
	case !ok:
		return errHead
	}
	h.age = age
	return nil
}

// store signs the head and writes it.
func (h *head) store(ctx context.Context, tx *pg.Tx, signer *seal.Signer) error {
	h.signature, h.age = signer.Sign(h.message()), 0
	_, err := tx.Exec(
		ctx,
		"UPDATE log_head SET id = $1, mac = $2, seqs = $3, checkpoint = $4, signature = $5",
		h.id,
		h.mac,
		h.seqs,
		h.checkpoint,
		h.signature,
	)
	if err != nil {
		return fmt.Errorf("write the log's head: %w", err)
	}
	return nil
}

// SignHead signs the head with the newest master key. The service calls it at the start: the log may be empty, written
// by an earlier version, or signed with an earlier key. It fails if the head was altered.
func (l *Log) SignHead(ctx context.Context, db *pg.DB) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the logged items do not change")
		h, err := l.lockHead(ctx, tx)
		if err != nil {
			return err
		}
		return h.store(ctx, tx, l.signer())
	})
}

// lockHead verifies the head and locks it for the transaction, which is going to write it.
func (l *Log) lockHead(ctx context.Context, tx *pg.Tx) (h head, err error) {
	if h, err = readHead(ctx, tx, "FOR UPDATE"); err != nil {
		return h, err
	}
	err = h.check(l.signer())
	switch {
	case err == nil && h.age > 0:
		return h, h.checkNewestKey(ctx, tx, l.signer())
	case errors.Is(err, errUnsigned):
		return h, h.checkNeverUsed(ctx, tx)
	case errors.Is(err, errHead) && h.isOldFormat(l.signer()):
		return h, l.upgrade(ctx, tx, &h)
	}
	return h, err
}

// checkNewestKey refuses a head that is signed with an earlier master key than the last item or checkpoint. Someone who
// only has the earlier key has signed such a head.
func (h *head) checkNewestKey(ctx context.Context, tx *pg.Tx, signer *seal.Signer) error {
	rows, err := tx.Query(
		ctx,
		"SELECT mac FROM log WHERE id = $1 UNION ALL (SELECT signature FROM log_checkpoint ORDER BY id DESC LIMIT 1)",
		h.id,
	)
	if err != nil {
		return fmt.Errorf("read the last signatures: %w", err)
	}
	var signature []byte
	_, err = pgx.ForEachRow(rows, []any{&signature}, func() error {
		if age, _, err := signer.Check(nil, signature); err == nil && age < h.age {
			return fmt.Errorf("%w: it is signed with an earlier master key than the last item or checkpoint", errHead)
		}
		return nil
	})
	return err
}

// checkNeverUsed returns errUnsigned unless the log never had an item. If a change was logged before, the head was
// emptied.
func (h *head) checkNeverUsed(ctx context.Context, tx *pg.Tx) error {
	var begun bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM log) OR EXISTS (SELECT FROM log_checkpoint) OR EXISTS (SELECT FROM consumer "+
		"WHERE name = '' AND seq > 0)").
		Scan(&begun)
	if err != nil {
		return fmt.Errorf("check whether the log is unused: %w", err)
	}
	if begun || h.id != 0 || len(h.mac)+len(h.checkpoint)+len(h.seqs) > 0 {
		return errUnsigned
	}
	return nil
}

// forEachCheckpoint calls each with all checkpoints in order, and stops at the first error.
func forEachCheckpoint(ctx context.Context, tx *pg.Tx, each func(c *checkpoint) error) error {
	rows, err := tx.Query(ctx, "SELECT id, mac, at, seqs, signature FROM log_checkpoint ORDER BY id")
	if err != nil {
		return fmt.Errorf("read the checkpoints: %w", err)
	}
	for rows.Next() {
		var c checkpoint
		if err := rows.Scan(&c.id, &c.mac, &c.at, &c.seqs, &c.signature); err != nil {
			rows.Close()
			return fmt.Errorf("read a checkpoint: %w", err)
		}
		if err := each(&c); err != nil {
			rows.Close()
			return err
		}
	}
	return rows.Err()
}
