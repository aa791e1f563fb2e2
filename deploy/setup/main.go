// Setup prepares an installation with several processes.
package main

import "github.com/ironplane/ironplane/deploy/internal/setup"

func main() { setup.Program().Main() }
