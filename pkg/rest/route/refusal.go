package route

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// refusal is the record of a change that the caller was not allowed to make.
type refusal struct {
	Method string `json:"method"`
	Route  string `json:"route"`
	Detail string `json:"detail"`
}

// refusalTimeout limits the time for the record.
const refusalTimeout = 5 * time.Second

// recordRefusal records an attempt at a forbidden change, so that readers of the log see it.
func recordRefusal(ctx context.Context, db *pg.DB, log *slog.Logger, o *Route, r *http.Request, err error) {
	if !o.Changes || principal.FromContext(ctx).Principal == nil || !problem.Is(err, problem.Forbidden) {
		return
	}
	change := pg.Record{Kind: "request", Action: "refused", After: refusal{o.Method, o.Path, problem.From(err).Detail}}
	for _, id := range guardedIDs(o, r) {
		if collection, _, _ := strings.Cut(o.Path[1:], "/{"); id > 0 {
			change.Targets = append(change.Targets, pg.Target{Type: collection, ID: id, Name: fmt.Sprintf("%s %d", collection, id)})
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalTimeout)
	defer cancel()
	failed := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Record(change)
		return nil
	})
	if failed != nil {
		log.Error("record refusal failed", "outage", "record-refusal",
			"method", o.Method, "route", o.Path, "request_id", principal.FromContext(ctx).RequestID, "error", failed)
	}
}
