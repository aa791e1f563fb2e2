// Package pxe is the bounded context of network boot: DHCP and file servers, ISOs, drivers, preseeds, profiles and
// shell scripts. None of its operations is built yet: the service has its schema, its records of changes and its
// place behind the gateway, which answers its paths with 404.
package pxe

import "github.com/ironplane/ironplane/pkg/process"

// Name is the service's name, and its schema's.
const Name = "pxe"

// Definition is the service.
var Definition = process.Definition{Name: Name}
