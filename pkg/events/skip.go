package events

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
)

// Span names changes of a service that follow each other, for one of the consumers that another has. As a text: pxe:17,
// pxe:17-20 or pxe/webhooks:17
type Span struct {
	Source      string
	Consumer    string // its name
	First, Last int64
}

// UnmarshalText reads the text; an empty one is the zero Span.
func (s *Span) UnmarshalText(text []byte) error {
	if *s = (Span{}); len(text) == 0 {
		return nil
	}
	source, numbers, _ := strings.Cut(string(text), ":")
	source, consumer, _ := strings.Cut(source, "/")
	from, to, several := strings.Cut(numbers, "-")
	if !several {
		to = from
	}
	first, err := strconv.ParseInt(from, 10, 64)
	last, wrong := strconv.ParseInt(to, 10, 64)
	if source == "" || err != nil || wrong != nil || first < 1 || last < first {
		return errors.New("it is neither <service>:<number of the change> nor <service>:<first number>-<last number>, nor one of these with <service>/<consumer>")
	}
	*s = Span{source, consumer, first, last}
	return nil
}

func (s Span) String() string {
	of := fullName(s.Source, s.Consumer)
	if s.First == s.Last {
		return fmt.Sprintf("%s:%d", of, s.Last)
	}
	return fmt.Sprintf("%s:%d-%d", of, s.First, s.Last)
}

// Target is the span as the log names it: by its last change.
func (s Span) Target() pg.Target {
	return pg.Target{Type: "event/" + s.Source, Noun: s.Source, ID: s.Last, Name: s.String()}
}

// ErrNotStopped says that the consumer has not stopped at a change that it is told to skip.
var ErrNotStopped = errors.New("nothing has stopped there")

// RecordSkip leaves a record of changes that are skipped.
func RecordSkip(_ context.Context, tx *pg.Tx, skipped Span) error {
	tx.Record(pg.Record{Kind: "event", Action: "skipped", Targets: []pg.Target{skipped.Target()}})
	return nil
}

// Skip lets the consumer whose cursor is in db go on behind a span of changes, at one of which it stopped. record leaves
// a record of that in the same unit of work.
func Skip(ctx context.Context, db *pg.DB, skipped Span, record func(context.Context, *pg.Tx, Span) error) error {
	return wrap("skip "+skipped.String(), db.InTx(ctx, func(tx *pg.Tx) error {
		var at, stopped, newest int64
		err := tx.QueryRow(ctx, "SELECT seq, stopped_at, coalesce(newest, stopped_at) FROM consumer WHERE source = $1 AND name = $2 AND stopped_at IS NOT NULL FOR UPDATE", skipped.Source, skipped.Consumer).
			Scan(&at, &stopped, &newest)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNotStopped
		case err != nil:
			return err
		case stopped != skipped.Last && (stopped < skipped.First || stopped > skipped.Last || skipped.First > at+1):
			return ErrNotStopped
		case skipped.Last > newest:
			return fmt.Errorf("%s had changes up to %d when it was asked last", skipped.Source, newest)
		}
		if _, err := tx.Exec(ctx, "UPDATE consumer SET seq = $3, stopped_at = NULL WHERE source = $1 AND name = $2", skipped.Source, skipped.Consumer, skipped.Last); err != nil {
			return err
		}
		return record(ctx, tx, skipped)
	}))
}
