// Package mesh lets a service ask others, whether they run in this process or in processes of their own.
package mesh

import (
	"context"
	"errors"
	"time"
)

// Peers asks the other services of an installation. Package runtime/peers implements it.
type Peers interface {
	// Ask gets an internal path of a service and decodes the response into into. The error is ErrUnavailable if the service
	// cannot be reached or answers with a server error.
	Ask(ctx context.Context, service, path string, into any) error
	// Limit bounds requests with this context, as context.WithTimeout does. In tests the limit may be longer.
	Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc)
}

// ErrUnavailable is the error for a service that does not answer.
var ErrUnavailable = errors.New("the service is unavailable")
