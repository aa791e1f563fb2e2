package product

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
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
		"for every key shows and changes what belongs to the key's owner. It does more for a caller with the permission of the item's owner.\n" +
		"An item that a caller may not know of is a 404.\n\n" +
		"A client uses what has *yes* for its own items, and a reseller for its sub clients, too. Integrations and admins need the\n" +
		"permission. *own* is the own record, without the permission. `GET /-/openapi.json` with a key has only the operations that\n" +
		"the key may use.\n\n" +
		"| Operation | no key | client | reseller | integration | admin | permission |\n|---|---|---|---|---|---|---|\n")
	for _, service := range Services {
		for _, o := range rest.Operations(routes()[service.Name]) {
			if !guard.IsInternal(o.Guard) {
				fmt.Fprintf(&b, "| `%s %s` |%s|\n", o.Method, o.Path, strings.Join(policyRow(o), "|"))
			}
		}
	}
	writePermissions(&b)
	return b.String()
}

// writePermissions writes the table of what each permission guards.
func writePermissions(b *strings.Builder) {
	operations, topics := countGuarded()
	b.WriteString("\n## Permissions\n\nHow many operations each permission guards, for reading and for writing.\n" +
		"One that guards nothing can be granted, and nothing asks for it.\n\n" +
		"| Permission | read | write |\n|---|---|---|\n")
	for p := range permission.Permission(permission.Count) {
		fmt.Fprintf(b, "| `%s` ", p)
		for _, access := range []permission.Access{permission.Read, permission.Write} {
			guards := fmt.Sprint(operations[principal.Grant(p, access)])
			switch {
			case operations[principal.Grant(p, access)] > 0:
			case topics&principal.Grant(p, access) != 0:
				guards = "events of webhooks"
			default:
				guards = guardsNothing
			}
			fmt.Fprintf(b, "| %s ", guards)
		}
		b.WriteString("|\n")
	}
}

// guardsNothing marks a permission that neither an operation nor a webhook asks for.
const guardsNothing = "guards nothing"

// countGuarded returns the number of operations that each grant opens, and the grants that makers of webhooks need. A guard that
// refuses a key without permissions and admits one with this grant alone asks for it.
func countGuarded() (operations map[principal.Grants]int, topics principal.Grants) {
	operations = map[principal.Grants]int{}
	for _, own := range routes() {
		for _, o := range rest.Operations(own) {
			access := permission.Write
			if o.Method == http.MethodGet {
				access = permission.Read
			}
			isAdmitted := func(held principal.Grants) bool {
				admin := &principal.Principal{Owner: principal.Owner{Type: principal.Admin, ID: 1}, Grants: held}
				return o.Guard.Check(&principal.Call{Peer: principal.Gateway, Principal: admin}, access, 0) == nil
			}
			for p := range permission.Permission(permission.Count) {
				if held := principal.Grant(p, access); !guard.IsInternal(o.Guard) && isAdmitted(held) && !isAdmitted(0) {
					operations[held]++
				}
			}
		}
	}
	for _, s := range catalog.Services {
		for _, needed := range s.Topics {
			for _, p := range needed {
				topics |= principal.Grant(p, permission.Read)
			}
		}
	}
	return operations, topics
}

// policyRow returns the table's cells of an operation, behind its name.
func policyRow(o rest.Operation) []string {
	access := permission.Write
	if o.Method == http.MethodGet {
		access = permission.Read
	}
	may := guard.CallersOf(o.Guard, access)
	cells := []string{mark(may.Public), mark(may.Clients && !guard.IsForResellers(o.Guard)), mark(may.Clients)}
	if may.Public {
		condition, _ := strings.CutPrefix(o.Guard.String(), "any key, or none ")
		if condition != o.Guard.String() {
			cells[0] = condition
		}
	}
	for _, kind := range []principal.OwnerType{principal.Integration, principal.Admin} {
		switch {
		case may.Keys, slices.Contains(may.Own, kind) && may.Permissions == nil:
			cells = append(cells, "yes")
		case slices.Contains(may.Own, kind) && may.Permissions != nil:
			cells = append(cells, "own, or permission")
		case may.Permissions != nil, may.Every:
			cells = append(cells, "permission")
		default:
			cells = append(cells, "")
		}
	}
	needed := strings.Join(may.Permissions, ", ")
	if may.Every {
		needed = "all"
	}
	cells = append(cells, needed)
	for i, cell := range cells {
		cells[i] = " " + cell + " "
		if cell == "" {
			cells[i] = " "
		}
	}
	return cells
}

// mark returns the cell of a caller that may use an operation, or may not.
func mark(may bool) string {
	if may {
		return "yes"
	}
	return ""
}
