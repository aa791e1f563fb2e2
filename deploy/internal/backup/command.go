package backup

import (
	"context"

	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// WriteCommand returns the command backup.
func WriteCommand(run func(ctx context.Context, file string) error) process.Command {
	return process.Command{
		Name:     "backup",
		Summary:  "write the database, the master key, the store and the settings to a file; the installation may run",
		Argument: "FILE",
		RunWith:  run,
	}
}

// RestoreCommand returns the command restore.
func RestoreCommand(run func(ctx context.Context, file string) error) process.Command {
	return process.Command{
		Name:     "restore",
		Summary:  "replace the installation's data by that of a backup; stop the installation first",
		Argument: "FILE",
		RunWith:  run,
	}
}
