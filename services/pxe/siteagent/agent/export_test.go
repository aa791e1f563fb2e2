package agent

import "time"

// SetBodyTimeout changes how long a request's body may take to arrive.
func (a *Agent) SetBodyTimeout(timeout time.Duration) { a.bodyTimeout = timeout }
