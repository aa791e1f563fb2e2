package setup

import (
	"fmt"
	"io"
	"strings"

	"github.com/ironplane/ironplane/deploy/internal/product"
)

// printProcessKey prints the value of IRONPLANE_PROCESS_KEY for a process.
func printProcessKey(c config, stdout io.Writer) error {
	keys, err := product.DeriveProcessKeys(c.MasterKey)
	if err != nil {
		return err
	}
	key := keys[c.Process]
	if key == nil {
		return fmt.Errorf("IRONPLANE_PROCESS is %q, but must be one of %s", c.Process, strings.Join(processes(), ", "))
	}
	_, err = fmt.Fprintln(stdout, key.Text().Reveal())
	return err
}
