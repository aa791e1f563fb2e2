// Package catalog lists the product's services for processes that link none of them. The gateway finds the service of a
// path here. The system service learns which changes to log and to offer to webhooks. `make services` writes the list
// from product.Services.
package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ironplane/ironplane/pkg/auth/permission"
)

// Service is what other processes know of a service.
type Service struct {
	Name string
	// Paths are the first elements of the service's paths, such as port-speed. client/*/verify means a path that begins
	// with client, which another service has, and ends with verify.
	Paths []string
	// Topics are the kinds of changes that webhooks can subscribe to, with the permissions that the webhook's creator
	// needs. A change belongs to the longest topic that its kind begins with.
	Topics map[string][]permission.Permission
}

// Names returns the names of all services, in order.
func Names() []string {
	names := make([]string, len(Services))
	for i, s := range Services {
		names[i] = s.Name
	}
	return names
}

// paths maps first elements to services, and ends of paths below them.
type paths struct {
	owners map[string]string
	ends   map[string][][2]string
}

var index = sync.OnceValue(func() paths {
	p := paths{owners: map[string]string{}, ends: map[string][][2]string{}}
	for _, s := range Services {
		for _, path := range s.Paths {
			if first, end, shared := strings.Cut(path, "/*"); shared {
				p.ends[first] = append(p.ends[first], [2]string{end, s.Name})
			} else {
				p.owners[path] = s.Name
			}
		}
	}
	return p
})

// Owner returns the service that serves a path with this first element; empty if there is none.
func Owner(path, first string) string {
	p := index()
	for _, end := range p.ends[first] {
		if strings.HasSuffix(path, end[0]) {
			return end[1]
		}
	}
	return p.owners[first]
}

// Check compares what a service declares with its entry. The error says what differs and what to do.
func (s Service) Check() error {
	i := slices.IndexFunc(Services, func(known Service) bool { return known.Name == s.Name })
	if i < 0 {
		return fmt.Errorf(
			"pkg/catalog lacks the service %s, so gateways do not forward to it and its changes are not logged. Run make services",
			s.Name,
		)
	}
	known := Services[i]
	if !slices.Equal(slices.Sorted(slices.Values(s.Paths)), slices.Sorted(slices.Values(known.Paths))) {
		return fmt.Errorf("pkg/catalog has outdated paths of the service %s: got %q, want %q. Run make services",
			s.Name, known.Paths, s.Paths)
	}
	if !maps.EqualFunc(s.Topics, known.Topics, slices.Equal) {
		return fmt.Errorf("pkg/catalog has outdated topics of the service %s: got %v, want %v. Run make services",
			s.Name, known.Topics, s.Topics)
	}
	return nil
}

// Unknown returns the names that are no service's, in order.
func Unknown(names []string) (unknown []string) {
	known := Names()
	for _, name := range slices.Sorted(slices.Values(names)) {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
