package importer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// foundEntity is the space of an existing entity.
type foundEntity struct {
	span   netipx.IPRange
	entity *client.Entity
}

// foundEntities holds the existing entities, sorted by address, of each space in which none overlap: the private space of
// a group, or with the key 0 all public space.
type foundEntities map[int64][]foundEntity

func scopeOf(group int64, span netipx.IPRange) int64 {
	if isPrivate(span) {
		return group
	}
	return 0
}

// overlapping returns the first existing entity that overlaps with the planned one.
func (f foundEntities) overlapping(group int64, span netipx.IPRange) (foundEntity, bool) {
	scope := f[scopeOf(group, span)]
	i, _ := slices.BinarySearchFunc(scope, span, func(e foundEntity, span netipx.IPRange) int { return e.span.To().Compare(span.From()) })
	if i == len(scope) || !scope[i].span.Overlaps(span) {
		return foundEntity{}, false
	}
	return scope[i], true
}

// listEntities reads all existing entities.
func (t *transfer) listEntities(ctx context.Context) error {
	t.progress.begin("looking for existing entities", 0)
	all := foundEntities{}
	for e, err := range t.api.Entities.List(ctx, client.EntityList{PerPage: perPage}) {
		if err != nil {
			return fmt.Errorf("list IP entities: %w", err)
		}
		for _, text := range []string{e.FullIP, e.V6Address} {
			if span, ok := parseSpan(text); ok {
				scope := scopeOf(e.Group.ID, span)
				all[scope] = append(all[scope], foundEntity{span, &e})
			}
		}
	}
	for _, scope := range all {
		slices.SortFunc(scope, func(a, b foundEntity) int { return a.span.From().Compare(b.span.From()) })
	}
	t.found = all
	return nil
}

// findEntities compares the planned entities with the existing ones, and collects the changes.
func (t *transfer) findEntities(ctx context.Context) error {
	if err := t.listEntities(ctx); err != nil {
		return err
	}
	for i := range t.plan.Entities {
		t.compare(i)
	}
	return nil
}

// compare sets the result of a planned entity whose space some entity has already.
func (t *transfer) compare(i int) {
	e := &t.plan.Entities[i]
	found, ok := t.found.overlapping(t.groupIDs[e.Group], e.Span)
	switch {
	case !ok:
	case found.span != e.Span:
		t.entities[i] = result{state: refused, code: "overlaps", detail: t.describeOverlap(e, found.entity)}
	default:
		status := found.entity.Status
		if c, ok := t.plan.changeOf(e, found.entity, t.clientIDs); ok {
			c.index = i
			t.changes = append(t.changes, c)
			t.entities[i] = result{state: changed, detail: fmt.Sprintf("status was %s, and is now %s", status, e.Status)}
			return
		}
		t.entities[i] = e.compare(found.entity, t.clientIDs)
	}
}

// describeOverlap says what is in the way of a planned entity, and what to do.
func (t *transfer) describeOverlap(e *Entity, found *client.Entity) string {
	status := found.Status
	text := fmt.Sprintf("overlaps with IP entity %d (%s), which is %s", found.ID, found.FullIP, status)
	if status == available && e.Status != available {
		return text + " and can be allocated, although " + t.plan.System + " has this in use: delete it, and run the import again"
	}
	if e.Status == available && t.plan.hasReserved(found) {
		return text + " by an earlier import: delete it, and run the import again"
	}
	return text
}

// hasReserved reports whether an import of the same system reserved the entity, and nobody has changed the note since.
func (p *Plan) hasReserved(found *client.Entity) bool {
	return found.Status == reserved && strings.HasPrefix(found.Note, p.System+": ")
}

// changeOf returns the change that an existing entity with the space of a planned one needs. An entity that is in use must
// not stay available. One that this import reserved is assigned once its tenant is a client. All others stay.
func (p *Plan) changeOf(e *Entity, found *client.Entity, clients map[string]int64) (change, bool) {
	status := found.Status
	switch c := (change{id: found.ID}); {
	case e.Owner != (source.Customer{}) && (status == available || p.hasReserved(found)):
		c.reserve, c.owner = status == available, e.Owner
		c.note = p.System + ": to be assigned"
		return c, true
	case e.Status == reserved && status == available:
		c.reserve, c.note = true, e.Note
		return c, true
	default:
		return change{}, false
	}
}

// compare returns how an existing entity differs from the planned one. It ignores the gateway and mask if the export has
// none. An entity that is assigned here is in use, and so is not different from a reserved one. A quarantined one is, since it
// becomes available by itself.
func (e *Entity) compare(found *client.Entity, clients map[string]int64) result {
	var differences []string
	note := func(member, is, planned string) {
		if is != planned {
			differences = append(differences, fmt.Sprintf("%s is %s, but planned is %s", member, cmp.Or(is, "none"), cmp.Or(planned, "none")))
		}
	}
	note("group", found.Group.Name, e.Group)
	note("nickname", found.Nickname, e.Nickname)
	note("vlan", vlanText(found.VLAN), vlanText(int64(e.VLAN)))
	gateway := found.V6Gateway
	if e.Span.From().Is4() {
		gateway = found.Gateway
	}
	if e.Gateway.IsValid() {
		note("gateway", gateway, e.Gateway.String())
	}
	if mask := e.subnetMask(); mask != "" {
		note("subnet_mask", found.SubnetMask, mask)
	}
	status := found.Status
	switch {
	case e.Status == available && status == reserved:
		note("status", status+" ("+cmp.Or(found.Note, "no note")+")", available)
	case e.Status == reserved && (status == available || status == quarantined):
		note("status", status, reserved)
	}
	if owner := found.Owner; e.Owner != (source.Customer{}) && (owner == nil || owner.ID != clients[e.Owner.Email]) {
		is := status
		if owner != nil {
			is = fmt.Sprintf("client %d", owner.ID)
		}
		note("owner", is, e.Owner.Email)
	}
	if differences == nil {
		return result{state: existing}
	}
	return result{state: different, detail: strings.Join(differences, ", ")}
}

func vlanText(vlan int64) string {
	if vlan == 0 {
		return ""
	}
	return strconv.FormatInt(vlan, 10)
}
