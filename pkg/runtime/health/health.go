// Package health describes what a process or a service depends on.
package health

import (
	"context"

	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

// Check is a dependency and how to test it.
type Check struct {
	Name string
	Ask  func(context.Context) error
	// Optional means that the process still serves without it, with reduced function.
	Optional bool
	// ForChanges means that the process serves reads without it, and refuses changes.
	ForChanges bool
}

// NotTried is the error of a check that cannot be made here, with the reason. It counts as no failure.
type NotTried string

func (n NotTried) Error() string { return string(n) }

// ChangesPath is where a service tells gateways whether it accepts changes. The answer is Changes.
const ChangesPath = "/internal/accepts-changes"

// Changes says whether a service accepts changes.
type Changes struct {
	ReadOnly    bool                `json:"read_only" doc:"The database takes no changes: it is read-only, or its disk is full."`
	Maintenance *maintenance.Status `json:"maintenance,omitempty" doc:"The maintenance that is active; absent: none is."`
}
