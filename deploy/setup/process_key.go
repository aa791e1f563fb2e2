package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ironplane/ironplane/deploy/internal/product"
)

// printProcessKey prints what IRONPLANE_PROCESS_KEY of a process is to be.
func printProcessKey(c config, screen io.Writer) error {
	keys, err := product.ProcessKeys(c.MasterKey)
	if err != nil {
		return err
	}
	key := keys[c.Process]
	if key == nil {
		return fmt.Errorf("IRONPLANE_PROCESS is %q, and can be one of %s", c.Process, strings.Join(processes(), ", "))
	}
	_, err = fmt.Fprintln(screen, key.Text().Reveal())
	return err
}
