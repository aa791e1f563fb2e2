// Package mesh is how a service asks others, wherever they are: in this process, or in ones of their own.
package mesh

import (
	"context"
	"errors"
	"time"
)

// Peers are the other services of an installation. Package process/peers has those that there are.
type Peers interface {
	// Ask gets an internal path of a service and decodes the answer. The error is ErrUnavailable where the service cannot be
	// reached or cannot tell.
	Ask(ctx context.Context, service, path string, into any) error
	// Limit bounds how long questions may take that are asked with the context, as context.WithTimeout does. In tests it
	// may allow more.
	Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc)
}

// ErrUnavailable says that a service could not be asked.
var ErrUnavailable = errors.New("it is away")
