// The clients service as a process of its own.
package main

import (
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/services/clients"
)

func main() { process.Service{Name: clients.Name}.Main() }
