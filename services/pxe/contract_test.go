package pxe_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe"
)

// The double of this service, which other services use in tests, behaves like the service.
func TestContract(t *testing.T) {
	t.Parallel()
	s, _ := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{})
	id := s.Do("POST", "/pxe/dhcp", `{"name": "Berlin", "host": "dhcp.example.net", "api_key": "x"}`).Want(200).ID()
	neighbours.PXEContract(t, s.Handler(), id, "Berlin")
}
