// Package health is what a process or a service depends on.
package health

import "context"

// Check asks for something that there has to be.
type Check struct {
	Name string
	Ask  func(context.Context) error
	// Optional: without it the process is worse, and serves nevertheless.
	Optional bool
}
