// Standalone runs all of Ironplane in one process.
package main

import "github.com/ironplane/ironplane/deploy/internal/standalone"

func main() { standalone.Program().Main() }
