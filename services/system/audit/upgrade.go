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

// isOldFormat reports whether the head was signed by a version that did not sign change numbers.
func (h *head) isOldFormat(signer *seal.Signer) bool {
	m := newBuffer("head")
	m.putNumber(h.id)
	m.putBytes(h.mac)
	_, ok, err := signer.Check(m, h.signature)
	return err == nil && ok
}

// isOldFormat reports whether the checkpoint was signed by a version that did not sign change numbers.
func (c *checkpoint) isOldFormat(signer *seal.Signer) bool {
	m := newBuffer("checkpoint")
	m.putNumber(c.id)
	m.putBytes(c.mac)
	m.putNumber(c.at.UnixMicro())
	_, ok, err := signer.Check(m, c.signature)
	return err == nil && ok
}

// upgrade verifies the whole log of such a version and signs its head and checkpoints in the new format. Skipping a
// change left no item in that version, so upgrade appends items that account for the missing changes.
func (l *Log) upgrade(ctx context.Context, tx *pg.Tx, h *head) error {
	v := l.newVerifier(tx)
	var cuts []checkpoint
	if err := forEachCheckpoint(ctx, tx, func(c *checkpoint) error {
		if !c.isOldFormat(v.signer) {
			return &IntegrityError{0, fmt.Sprintf("the checkpoint after item %d is not signed with this master key", c.id)}
		}
		c.seqs, v.before = map[string]int64{}, map[string]int64{}
		cuts, v.id, v.mac, v.first = append(cuts, *c), c.id, c.mac, c.id+1
		return nil
	}); err != nil {
		return err
	}
	if err := v.verifyTo(ctx, h.id); err != nil {
		return err
	}
	if err := v.verifyEnd(ctx, h); err != nil {
		return err
	}
	h.seqs, h.checkpoint = v.seqs, []byte{}
	if last := len(cuts) - 1; last >= 0 {
		if err := v.addCutServices(ctx); err != nil {
			return err
		}
		cuts[last].seqs = v.before
	}
	for _, c := range cuts {
		h.checkpoint = v.signer.Sign(c.message(h.checkpoint))
		if _, err := tx.Exec(ctx, "UPDATE log_checkpoint SET seqs = $2, signature = $3 WHERE id = $1", c.id, c.seqs, h.checkpoint); err != nil {
			return fmt.Errorf("sign a checkpoint again: %v", err)
		}
	}
	appending := writer{signer: v.signer, head: h}
	for _, left := range slices.SortedFunc(maps.Keys(v.missing), func(a, b gap) int { return cmp.Compare(v.missing[a], v.missing[b]) }) {
		if err := appending.skip(left.source, left.span); err != nil {
			return err
		}
	}
	return appending.flush(ctx, tx)
}

// addCutServices adds the services whose items were all cut. Their last change's number is the consumer's position,
// because no item has it.
func (v *verifier) addCutServices(ctx context.Context) error {
	cursors, err := readCursors(ctx, v.tx)
	if err != nil {
		return err
	}
	for source, seq := range cursors {
		if _, known := v.seqs[source]; !known && seq > 0 {
			v.before[source], v.seqs[source] = seq, seq
		}
	}
	return nil
}
