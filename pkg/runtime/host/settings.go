package host

import (
	"context"

	"github.com/ironplane/ironplane/pkg/service"
)

// checkSettings makes the checks of the settings without which the service does not start.
func checkSettings(ctx context.Context, d service.Definition, s service.Settings) error {
	if d.Checks == nil {
		return nil
	}
	for _, check := range d.Checks(s) {
		if check.Optional {
			continue
		}
		if err := check.Ask(ctx); err != nil {
			return err
		}
	}
	return nil
}
