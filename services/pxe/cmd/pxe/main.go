// Command pxe runs the pxe service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/runtime/server"
	"github.com/ironplane/ironplane/services/pxe"
)

func main() { server.Program(pxe.Definition).Main() }
