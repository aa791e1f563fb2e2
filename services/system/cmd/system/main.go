// The system service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/runtime/server"
	"github.com/ironplane/ironplane/services/system"
)

func main() { server.Program(system.Definition).Main() }
