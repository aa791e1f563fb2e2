package gateway

import (
	"maps"
	"slices"
	"strings"
)

// owners says which service answers below the first element of a documented path.
var owners = map[string]string{
	"admin": "identity", "auth": "identity", "browser-details": "identity",

	"client": "clients",

	"entity": "network", "field": "network", "forward": "network", "group": "network", "port-speed": "network",

	"pxe": "pxe",

	".well-known": "system", "email": "system", "http": "system", "integration": "system", "license": "system", "log": "system",
	"package": "system", "part": "system", "setting-group": "system", "system": "system", "todo": "system", "webhook": "system",
}

// serviceOf is the service that answers a path with this first element.
func serviceOf(path, first string) string {
	if first == "client" && strings.HasSuffix(path, "/verify") {
		return "identity" // which keeps second factors
	}
	return owners[first]
}

// Services are the names of all services, in order.
func Services() []string {
	names := slices.Sorted(maps.Values(owners))
	return slices.Compact(names)
}

// ownerServices says which service knows what an owner of this type may do.
var ownerServices = map[string]string{"admin": "identity", "client": "clients", "integration": "system"}
