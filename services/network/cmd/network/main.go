// The network service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/runtime/server"
	"github.com/ironplane/ironplane/services/network"
)

func main() { server.Program(network.Definition).Main() }
