// Package clients is the bounded context of the people who rent servers: clients, sub and super clients, and mail to
// them. None of its operations is built yet: the service has its schema, its records of changes and its place behind
// the gateway, which answers its paths with 404.
package clients

import "github.com/ironplane/ironplane/pkg/service"

// Name is the service's name, and its schema's.
const Name = "clients"

// Definition is the service.
var Definition = service.Definition{Name: Name}
