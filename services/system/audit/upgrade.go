package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// isOldFormat tells whether a head is signed as a version did that knew of no numbers.
func (h *head) isOldFormat(signer *seal.Signer) bool {
	m := newBuffer("head")
	m.putNumber(h.id)
	m.putBytes(h.mac)
	_, ok, err := signer.Check(m, h.signature)
	return err == nil && ok
}

func (c *checkpoint) isOldFormat(signer *seal.Signer) bool {
	m := newBuffer("checkpoint")
	m.putNumber(c.id)
	m.putBytes(c.mac)
	m.putNumber(c.at.UnixMicro())
	_, ok, err := signer.Check(m, c.signature)
	return err == nil && ok
}

// upgrade signs the head and the checkpoints of such a version anew, with what it finds when it verifies the whole log.
// For changes that are left out it appends items that account for them: where one was skipped, that left none before.
func (l *Log) upgrade(ctx context.Context, tx *pg.Tx, h *head) error {
	w := l.newVerifier(tx)
	var cuts []checkpoint
	if err := forEachCheckpoint(ctx, tx, func(c *checkpoint) error {
		if !c.isOldFormat(w.signer) {
			return &IntegrityError{0, fmt.Sprintf("the checkpoint behind item %d is not signed with this master key", c.id)}
		}
		c.seqs, w.before = map[string]int64{}, map[string]int64{}
		cuts, w.id, w.mac, w.first = append(cuts, *c), c.id, c.mac, c.id+1
		return nil
	}); err != nil {
		return err
	}
	if err := w.verifyTo(ctx, h.id); err != nil {
		return err
	}
	if err := w.verifyEnd(ctx, h); err != nil {
		return err
	}
	h.seqs, h.checkpoint = w.seqs, []byte{}
	if last := len(cuts) - 1; last >= 0 {
		if err := w.addCutServices(ctx); err != nil {
			return err
		}
		cuts[last].seqs = w.before
	}
	for _, c := range cuts {
		h.checkpoint = w.signer.Sign(c.message(h.checkpoint))
		if _, err := tx.Exec(ctx, "UPDATE log_checkpoint SET seqs = $2, signature = $3 WHERE id = $1", c.id, c.seqs, h.checkpoint); err != nil {
			return fmt.Errorf("sign a checkpoint anew: %w", err)
		}
	}
	appending := writer{signer: w.signer, head: h}
	for _, left := range slices.SortedFunc(maps.Keys(w.missing), func(a, b gap) int { return cmp.Compare(w.missing[a], w.missing[b]) }) {
		if err := appending.skip(left.source, left.span); err != nil {
			return err
		}
	}
	return appending.flush(ctx, tx)
}

// addCutServices takes the cursor for the number of the last change of each service whose items are all cut: no item tells.
func (w *verifier) addCutServices(ctx context.Context) error {
	cursors, err := readCursors(ctx, w.tx)
	if err != nil {
		return err
	}
	for source, seq := range cursors {
		if _, known := w.seqs[source]; !known && seq > 0 {
			w.before[source], w.seqs[source] = seq, seq
		}
	}
	return nil
}
