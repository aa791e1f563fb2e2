package product

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/openapi"
	"github.com/ironplane/ironplane/pkg/service"
)

// routes returns the routes of all services, by the service's name. They have no database, so they describe operations and
// cannot serve them.
func routes() map[string][]rest.Route {
	all := map[string][]rest.Route{}
	for _, s := range Services {
		if s.New != nil {
			all[s.Name] = s.New(service.Deps{}).Routes
		}
	}
	return all
}

// Document returns the API document of all services, as the gateway serves it.
func Document() (*openapi.Document, error) {
	merged := &openapi.Document{}
	for service, own := range routes() {
		if err := merged.Merge(rest.Document(service, own)); err != nil {
			return nil, fmt.Errorf("merge the API documents: %w", err)
		}
	}
	return merged, nil
}

// Policy returns docs/reference/policy.md: a table of the callers that may use each operation.
func Policy() string {
	var b strings.Builder
	b.WriteString("# Policy\n\nWho may use which operation. `make openapi` writes this page from the routes.\n\n" +
		"A key belongs to an admin, a client or an integration. Admins and integrations hold permissions, clients hold none. An operation\n" +
		"for any key shows and changes what belongs to the key's owner. It does more for a caller with the permission of the item's owner.\n" +
		"An item that a caller may not know of is a 404.\n\n" +
		"| Operation | no key | any key | own record | permission |\n|---|---|---|---|---|\n")
	for _, service := range Services {
		for _, o := range rest.Operations(routes()[service.Name]) {
			if !guard.IsInternal(o.Guard) {
				fmt.Fprintf(&b, "| `%s %s` |%s|\n", o.Method, o.Path, strings.Join(policyRow(o), "|"))
			}
		}
	}
	return b.String()
}

// policyRow returns the table's cells of an operation, behind its name.
func policyRow(o rest.Operation) []string {
	access := permission.Write
	if o.Method == http.MethodGet {
		access = permission.Read
	}
	permission, self := strings.CutSuffix(o.Guard.String(), " or self")
	row := slices.Repeat([]string{" "}, 4)
	switch {
	case o.Guard == guard.Public:
		row[0], row[1] = " yes ", " yes "
	case strings.HasPrefix(permission, "any key, or none "):
		row[0], row[1] = strings.TrimPrefix(permission, "any key, or none")+" ", " yes "
	case o.Guard == guard.AnyKey, o.Guard == guard.EveryKey:
		row[1] = " yes "
	default:
		row[3] = fmt.Sprintf(" %s %s ", permission, access)
	}
	if self {
		row[2] = " yes "
	}
	return row
}
