package pool

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquireLimit bounds how long work waits for a connection of the pool. pgxpool has no setting for that, but its tracer
// returns the context with which it waits.
type acquireLimit struct{ timeout time.Duration }

type cancelKey struct{}

// TraceAcquireStart implements pgxpool.AcquireTracer.
func (a acquireLimit) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	return context.WithValue(ctx, cancelKey{}, cancel)
}

// TraceAcquireEnd implements pgxpool.AcquireTracer.
func (acquireLimit) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// TraceQueryStart implements pgx.QueryTracer, which the type of the field for tracers demands.
func (acquireLimit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (acquireLimit) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
