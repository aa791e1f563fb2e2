// Package system is the bounded context of the installation itself: integrations, log, mail, settings, license,
// packages, theme, todo items, certificates and computer parts. None of its operations is built yet: the service has
// its schema, its records of changes and its place behind the gateway, which answers its paths with 404.
package system

import "github.com/ironplane/ironplane/pkg/process"

// Name is the service's name, and its schema's.
const Name = "system"

// Definition is the service.
var Definition = process.Definition{Name: Name}
