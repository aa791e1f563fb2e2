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

// head is where the log ends. Of a log that never had an item, id is 0 and mac is empty.
type head struct {
	id         int64 // of the last item
	mac        []byte
	seqs       map[string]int64 // by service: the number of its last change that is logged
	checkpoint []byte           // the signature of the last one; empty: nothing was ever cut
	signature  []byte
	age        int // of the master key that signed it
}

func (h *head) message() []byte {
	m := newBuffer("head 2") // "head" was without numbers and checkpoint: see upgrade
	m.putNumber(h.id)
	m.putBytes(h.mac)
	m.putBytes(h.checkpoint)
	m.putNumbers(h.seqs)
	return m
}

// checkpoint is up to where the log has been cut.
type checkpoint struct {
	id        int64 // of the last item that was cut
	mac       []byte
	at        time.Time
	seqs      map[string]int64 // as the head's, at that item
	signature []byte
}

func (c *checkpoint) message(before []byte) []byte {
	m := newBuffer("checkpoint 2")
	m.putBytes(before) // the signature of the checkpoint before it
	m.putNumber(c.id)
	m.putBytes(c.mac)
	m.putNumber(c.at.UnixMicro())
	m.putNumbers(c.seqs)
	return m
}

var (
	// errHead says that the log must not be written to.
	errHead = errors.New("the head of the log is not what was written there")
	// errUnsigned says the same of a head that was emptied, or where there never was one.
	errUnsigned = errors.New("the head of the log is not signed")
)

// readHead reads the head, and keeps others off it where lock says so.
func readHead(ctx context.Context, tx *pg.Tx, lock string) (h head, err error) {
	err = tx.QueryRow(ctx, "SELECT id, mac, seqs, checkpoint, signature FROM log_head "+lock).
		Scan(&h.id, &h.mac, &h.seqs, &h.checkpoint, &h.signature)
	if err != nil {
		return h, fmt.Errorf("read the log's head: %w", err)
	}
	if h.seqs == nil { // it was set to null
		h.seqs = map[string]int64{}
	}
	return h, nil
}

// check refuses a head that is not of this log's making.
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
		return fmt.Errorf("move the log's head: %w", err)
	}
	return nil
}

// SignHead signs the head of a log that never had an item, and anew that of one that another version wrote, or that is
// signed with an earlier master key. It fails where the head is not what was written there.
func (l *Log) SignHead(ctx context.Context, db *pg.DB) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is logged is not changed")
		h, err := l.lockHead(ctx, tx)
		if err != nil {
			return err
		}
		return h.store(ctx, tx, l.signer())
	})
}

// lockHead gives the head to one who is going to write it.
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

// checkNewestKey refuses a head that is signed with an earlier master key than the last item or checkpoint: it was signed by one
// who has that key alone.
func (h *head) checkNewestKey(ctx context.Context, tx *pg.Tx, signer *seal.Signer) error {
	rows, err := tx.Query(
		ctx,
		"SELECT mac FROM log WHERE id = $1 UNION ALL (SELECT signature FROM log_checkpoint ORDER BY id DESC LIMIT 1)",
		h.id,
	)
	if err != nil {
		return fmt.Errorf("read what was signed last: %w", err)
	}
	var signature []byte
	_, err = pgx.ForEachRow(rows, []any{&signature}, func() error {
		if age, _, err := signer.Check(nil, signature); err == nil && age < h.age {
			return fmt.Errorf("%w: it is signed with an earlier master key than what was signed before it", errHead)
		}
		return nil
	})
	return err
}

// checkNeverUsed tells whether an unsigned head is that of a log that never had an item. It is not where a change was logged:
// then it was emptied.
func (h *head) checkNeverUsed(ctx context.Context, tx *pg.Tx) error {
	var begun bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM log) OR EXISTS (SELECT FROM log_checkpoint) OR EXISTS (SELECT FROM consumer "+
		"WHERE name = '' AND seq > 0)").
		Scan(&begun)
	if err != nil {
		return fmt.Errorf("look whether the log has begun: %w", err)
	}
	if begun || h.id != 0 || len(h.mac)+len(h.checkpoint)+len(h.seqs) > 0 {
		return errUnsigned
	}
	return nil
}

// forEachCheckpoint are read in their order.
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
