// Command gateway serves the public API in a process of its own.
package main

import "github.com/ironplane/ironplane/gateway/server"

func main() { server.Program().Main() }
