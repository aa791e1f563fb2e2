// Command clients runs the clients service in a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/runtime/server"
	"github.com/ironplane/ironplane/services/clients"
)

func main() { server.Program(clients.Definition).Main() }
