// Package health describes what a process or a service depends on.
package health

import "context"

// Check is a dependency and how to test it.
type Check struct {
	Name string
	Ask  func(context.Context) error
	// Optional means that the process still serves without it, with reduced function.
	Optional bool
}
