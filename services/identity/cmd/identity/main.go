// Command identity runs the identity service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/runtime/server"
	"github.com/ironplane/ironplane/services/identity"
)

func main() { server.Program(identity.Definition).Main() }
