package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go4.org/netipx"

	ironplane "github.com/ironplane/ironplane/pkg/client"
)

// workers is the number of concurrent requests that create entities.
const workers = 4

// state is the outcome of a planned group or entity.
type state int

const (
	notTried  state = iota
	created         // by this run
	existing        // before this run, and as planned
	different       // existed before this run, but not as planned: unchanged
	refused         // by the API
	unknown         // sent, but no response says whether it was created
)

// result is the outcome of a planned group or entity, with details.
type result struct {
	state  state
	code   string // why the API refused it
	detail string // a text for people, of refused and different
}

// transfer is one run of a plan against the API. It creates missing items, and changes no existing ones.
type transfer struct {
	api       *client
	plan      Plan
	progress  *progress
	groups    []result // as plan.Groups
	entities  []result // as plan.Entities
	groupIDs  map[string]int64
	clients   int              // created by this run
	clientIDs map[string]int64 // by email
	// id is part of the Idempotency-Keys of this run. With the keys of an earlier run, the API would repeat its earlier
	// responses for items that may have been deleted since.
	id string
}

func newTransfer(api *client, plan Plan, progress *progress) *transfer {
	return &transfer{
		api: api, plan: plan, progress: progress,
		groups: make([]result, len(plan.Groups)), entities: make([]result, len(plan.Entities)),
		groupIDs: map[string]int64{}, clientIDs: map[string]int64{}, id: rand.Text(),
	}
}

// run transfers the plan. After an error it stops, and the results say which items were created until then.
func (t *transfer) run(ctx context.Context) error {
	if err := t.findGroups(ctx); err != nil {
		return err
	}
	if err := t.createGroups(ctx); err != nil {
		return err
	}
	if err := t.findClients(ctx); err != nil {
		return err
	}
	t.progress.begin("looking for existing entities", 0)
	err := t.findEntities(ctx, func(i int, found ironplane.IPEntity) {
		t.entities[i] = t.plan.Entities[i].compare(found, t.clientIDs)
	})
	if err != nil {
		return err
	}
	return t.createEntities(ctx)
}

// findGroups marks the planned groups that exist already.
func (t *transfer) findGroups(ctx context.Context) error {
	planned := map[string]int{}
	for i, name := range t.plan.Groups {
		planned[name] = i
	}
	all := func(ctx context.Context) (*http.Response, error) { return t.api.api.ListIPGroups(ctx, nil) }
	err := list(ctx, t.api, all, func(g ironplane.IPGroup) {
		if i, ok := planned[g.Name]; ok {
			t.groups[i].state = existing
			t.groupIDs[g.Name] = g.ID
		}
	})
	if err != nil {
		return fmt.Errorf("list IP groups: %w", err)
	}
	return nil
}

// createGroups creates the missing groups.
func (t *transfer) createGroups(ctx context.Context) error {
	t.progress.begin("creating groups", len(t.plan.Groups))
	for i, name := range t.plan.Groups {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.progress.step()
		if t.groups[i].state == existing {
			continue
		}
		post := func(ctx context.Context) (*http.Response, error) {
			return t.api.api.CreateIPGroup(
				ctx,
				&ironplane.CreateIPGroupParams{IdempotencyKey: t.idempotencyKey("group", i)},
				ironplane.CreateIPGroupBody{Name: name},
			)
		}
		var g ironplane.IPGroup
		err := t.api.create(ctx, post, &g)
		if t.groups[i], err = classify(err); err != nil {
			return fmt.Errorf("create group %s: %w", name, err)
		}
		if t.groups[i].state == created {
			t.groupIDs[name] = g.ID
		}
	}
	return nil
}

// classify returns the outcome of a create. It returns the error, too, if the import must stop.
func classify(err error) (result, error) {
	if err == nil {
		return result{state: created}, nil
	}
	if p, isProblem := errors.AsType[*problem](err); isProblem && p.Status == http.StatusUnprocessableEntity {
		return result{state: refused, code: p.code(), detail: p.reason()}, nil
	}
	if errors.Is(err, errUnknownOutcome) {
		return result{state: unknown}, err
	}
	return result{}, err
}

func (t *transfer) idempotencyKey(kind string, i int) *string {
	return new(t.id + "-" + kind + "-" + strconv.Itoa(i))
}

// spaceKey identifies an entity by its space. Private space exists once in each group, public space once in the
// installation, with the group 0.
type spaceKey struct {
	group int64
	span  netipx.IPRange
}

func newSpaceKey(group int64, span netipx.IPRange) spaceKey {
	if !isPrivate(span) {
		group = 0
	}
	return spaceKey{group, span}
}

// findEntities calls found for each planned entity whose space already has an entity.
func (t *transfer) findEntities(ctx context.Context, found func(i int, e ironplane.IPEntity)) error {
	planned := map[spaceKey]int{}
	for i, e := range t.plan.Entities {
		if group, ok := t.groupIDs[e.Group]; ok {
			planned[newSpaceKey(group, e.Span)] = i
		}
	}
	all := func(ctx context.Context) (*http.Response, error) { return t.api.api.ListIPEntities(ctx, nil) }
	err := list(ctx, t.api, all, func(e ironplane.IPEntity) {
		for _, text := range []string{e.FullIP, value(e.V6Address)} {
			span, ok := parseSpan(text)
			if !ok {
				continue
			}
			if i, ok := planned[newSpaceKey(e.Group.ID, span)]; ok {
				found(i, e)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list IP entities: %w", err)
	}
	return nil
}

// compare returns how an existing entity differs from the planned one. It ignores the gateway and mask if the export has
// none.
func (e Entity) compare(found ironplane.IPEntity, clients map[string]int64) result {
	var differences []string
	note := func(member, is, planned string) {
		if is != planned {
			differences = append(differences, fmt.Sprintf("%s is %s, but planned is %s", member, cmp.Or(is, "none"), cmp.Or(planned, "none")))
		}
	}
	note("group", found.Group.Name, e.Group)
	note("nickname", value(found.Nickname), e.Nickname)
	note("vlan", vlanText(value(found.VLAN)), vlanText(e.VLAN))
	gateway := value(found.V6Gateway)
	if e.Span.From().Is4() {
		gateway = value(found.Gateway)
	}
	if e.Gateway.IsValid() {
		note("gateway", gateway, e.Gateway.String())
	}
	if mask := e.subnetMask(); mask != "" {
		note("subnet_mask", value(found.SubnetMask), mask)
	}
	if owner := found.Owner; e.Owner != (customer{}) && (owner == nil || owner.ID != clients[e.Owner.Email]) {
		is := ""
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

func vlanText(vlan int32) string {
	if vlan == 0 {
		return ""
	}
	return strconv.Itoa(int(vlan))
}

// createEntities creates the missing entities. After the first error it starts no more requests, and waits for those that
// are in progress.
func (t *transfer) createEntities(ctx context.Context) error {
	t.progress.begin("creating entities", len(t.plan.Entities))
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for i := range next {
				if err := t.createEntity(sending, i); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range t.plan.Entities {
		t.progress.step()
		if t.entities[i].state != notTried {
			continue
		}
		select {
		case next <- i:
		case <-sending.Done():
		}
		if sending.Err() != nil {
			break
		}
	}
	close(next)
	if sending.Err() != nil {
		t.progress.begin("waiting for the last responses", 0)
	}
	working.Wait()
	if sending.Err() == nil {
		return nil
	}
	return errors.Join(context.Cause(sending), t.recheckUnknown(ctx))
}

// createEntity creates the ith entity. It returns an error if the import must stop.
func (t *transfer) createEntity(ctx context.Context, i int) error {
	e := t.plan.Entities[i]
	group, ok := t.groupIDs[e.Group]
	if !ok {
		t.entities[i] = result{state: refused, code: "group", detail: "the API refused its group " + e.Group}
		return nil
	}
	body := e.body(group)
	if e.Owner != (customer{}) {
		body.Owner = &ironplane.CreateIPEntityBodyOwner{ID: new(t.clientIDs[e.Owner.Email])}
	}
	post := func(ctx context.Context) (*http.Response, error) {
		return t.api.api.CreateIPEntity(ctx, &ironplane.CreateIPEntityParams{IdempotencyKey: t.idempotencyKey("entity", i)}, body)
	}
	err := t.api.create(ctx, post, &ironplane.IPEntity{})
	if err != nil && err == context.Cause(ctx) {
		return nil // another request's error stopped the import before this one was sent
	}
	if t.entities[i], err = classify(err); err != nil {
		return fmt.Errorf("create entity %s in group %s: %w", e.Address(), e.Group, err)
	}
	return nil
}

// recheckUnknown lists the entities to find out which of those with an unknown outcome were created.
func (t *transfer) recheckUnknown(ctx context.Context) error {
	isUnclear := func(r result) bool { return r.state == unknown }
	if ctx.Err() != nil || !slices.ContainsFunc(t.entities, isUnclear) {
		return nil
	}
	return t.findEntities(ctx, func(i int, _ ironplane.IPEntity) {
		if t.entities[i].state == unknown {
			t.entities[i].state = created
		}
	})
}

// body returns the request body that creates the entity.
func (e Entity) body(group int64) ironplane.CreateIPEntityBody {
	body := ironplane.CreateIPEntityBody{Group: ironplane.RefBody{ID: group}, Nickname: optional(e.Nickname), VLAN: optional(e.VLAN)}
	var gateway *string
	if e.Gateway.IsValid() {
		gateway = new(e.Gateway.String())
	}
	if e.Span.From().Is6() {
		body.V6 = &ironplane.CreateIPEntityBodyV6{Address: new(e.Address()), Gateway: gateway}
	} else {
		body.V4 = &ironplane.CreateIPEntityBodyV4{Full: new(e.Address()), Gateway: gateway, SubnetMask: optional(e.subnetMask())}
	}
	return body
}

// optional returns a pointer to a member's value, or nil for the zero value, so that it is not sent.
func optional[T comparable](member T) *T {
	var zero T
	if member == zero {
		return nil
	}
	return &member
}

// subnetMask returns the mask of an IPv4 entity. It is empty for IPv6, and if the subnet is unknown.
func (e Entity) subnetMask() string {
	if !e.Subnet.IsValid() || e.Subnet.Addr().Is6() {
		return ""
	}
	return net.IP(net.CIDRMask(e.Subnet.Bits(), 32)).String()
}
