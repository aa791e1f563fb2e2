package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/pg"
)

// Position names a change of a service. As a text: pxe:17
type Position struct {
	Source string
	Seq    int64
}

// UnmarshalText reads the text; an empty one is the zero Position.
func (p *Position) UnmarshalText(text []byte) error {
	if *p = (Position{}); len(text) == 0 {
		return nil
	}
	source, number, _ := strings.Cut(string(text), ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	if source == "" || err != nil || seq < 1 {
		return errors.New("it is not <service>:<number of the change>")
	}
	*p = Position{source, seq}
	return nil
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", p.Source, p.Seq) }

// Target is the change as the log names it.
func (p Position) Target() pg.Target {
	return pg.Target{Type: "event/" + p.Source, Noun: p.Source, ID: p.Seq, Name: p.String()}
}

// ErrNotStopped says that the consumer has not stopped at a change that it is told to skip.
var ErrNotStopped = errors.New("nothing has stopped there")

// RecordSkip leaves a record of a change that is skipped.
func RecordSkip(_ context.Context, tx *pg.Tx, at Position) error {
	tx.Record(pg.Record{Kind: "event", Action: "skipped", Targets: []pg.Target{at.Target()}})
	return nil
}

// Skip lets the consumer whose cursor is in db go on behind the change at which it stopped. record leaves a record of
// that in the same unit of work.
func Skip(ctx context.Context, db *pg.DB, at Position, record func(context.Context, *pg.Tx, Position) error) error {
	return wrap("skip "+at.String(), db.InTx(ctx, func(tx *pg.Tx) error {
		done, err := tx.Exec(ctx, "UPDATE change_cursor SET seq = stopped_at, stopped_at = NULL WHERE source = $1 AND stopped_at = $2", at.Source, at.Seq)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return ErrNotStopped
		}
		return record(ctx, tx, at)
	}))
}
