package agent

import "time"

// SetBodyTimeout changes how long a request's body may take to arrive.
func (a *Agent) SetBodyTimeout(timeout time.Duration) { a.bodyTimeout = timeout }

// SetLoginTimeout changes how long an SFTP client may take to authenticate.
func (a *Agent) SetLoginTimeout(timeout time.Duration) { a.loginTimeout = timeout }
