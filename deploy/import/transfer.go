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

// workers is how many entities are sent at a time.
const workers = 4

// state is what became of a planned group or entity.
type state int

const (
	untried   state = iota
	made            // by this run
	there           // before this run, as planned
	different       // there before this run and not as planned: left as it is
	refused         // by the API
	unclear         // sent, and no answer says whether it was made
)

type result struct {
	state  state
	code   string // of refused: what kind of refusal
	detail string // of refused and different: in words
}

// transfer is one run of a plan against the API. It makes what is not there, and changes nothing that is.
type transfer struct {
	api       *client
	plan      Plan
	progress  *progress
	groups    []result // as plan.Groups
	entities  []result // as plan.Entities
	groupIDs  map[string]int64
	clients   int              // made by this run
	clientIDs map[string]int64 // by email
	// id makes the Idempotency-Keys those of this run: an earlier run's would bring back its answers, for things
	// that may have been deleted since.
	id string
}

func newTransfer(api *client, plan Plan, progress *progress) *transfer {
	return &transfer{
		api: api, plan: plan, progress: progress,
		groups: make([]result, len(plan.Groups)), entities: make([]result, len(plan.Entities)),
		groupIDs: map[string]int64{}, clientIDs: map[string]int64{}, id: rand.Text(),
	}
}

// run returns an error where the import had to stop. What was done until then stands in the results.
func (t *transfer) run(ctx context.Context) error {
	if err := t.findGroups(ctx); err != nil {
		return err
	}
	if err := t.makeGroups(ctx); err != nil {
		return err
	}
	if err := t.findClients(ctx); err != nil {
		return err
	}
	t.progress.begin("looking for what is there", 0)
	err := t.findEntities(ctx, func(i int, found ironplane.IPEntity) {
		t.entities[i] = t.plan.Entities[i].compare(found, t.clientIDs)
	})
	if err != nil {
		return err
	}
	return t.makeEntities(ctx)
}

func (t *transfer) findGroups(ctx context.Context) error {
	planned := map[string]int{}
	for i, name := range t.plan.Groups {
		planned[name] = i
	}
	all := func(ctx context.Context) (*http.Response, error) { return t.api.api.ListIPGroups(ctx, nil) }
	err := list(ctx, t.api, all, func(g ironplane.IPGroup) {
		if i, ok := planned[g.Name]; ok {
			t.groups[i].state = there
			t.groupIDs[g.Name] = g.ID
		}
	})
	if err != nil {
		return fmt.Errorf("list IP groups: %w", err)
	}
	return nil
}

func (t *transfer) makeGroups(ctx context.Context) error {
	t.progress.begin("making groups", len(t.plan.Groups))
	for i, name := range t.plan.Groups {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.progress.step()
		if t.groups[i].state == there {
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
		if t.groups[i], err = judge(err); err != nil {
			return fmt.Errorf("make group %s: %w", name, err)
		}
		if t.groups[i].state == made {
			t.groupIDs[name] = g.ID
		}
	}
	return nil
}

// judge tells what a create came to. It hands back an error after which the import cannot go on.
func judge(err error) (result, error) {
	if err == nil {
		return result{state: made}, nil
	}
	if p, answered := errors.AsType[*problem](err); answered && p.Status == http.StatusUnprocessableEntity {
		return result{state: refused, code: p.code(), detail: p.reason()}, nil
	}
	if errors.Is(err, errUnclear) {
		return result{state: unclear}, err
	}
	return result{}, err
}

func (t *transfer) idempotencyKey(kind string, i int) *string {
	return new(t.id + "-" + kind + "-" + strconv.Itoa(i))
}

// place is what tells entities apart: private space stands once in a group, all other once in the installation, for
// which the group is 0.
type place struct {
	group int64
	span  netipx.IPRange
}

func placeOf(group int64, span netipx.IPRange) place {
	if !isPrivate(span) {
		group = 0
	}
	return place{group, span}
}

// findEntities reports those of the plan's entities whose space the API holds as it is planned.
func (t *transfer) findEntities(ctx context.Context, found func(i int, e ironplane.IPEntity)) error {
	planned := map[place]int{}
	for i, e := range t.plan.Entities {
		if group, ok := t.groupIDs[e.Group]; ok {
			planned[placeOf(group, e.Span)] = i
		}
	}
	all := func(ctx context.Context) (*http.Response, error) { return t.api.api.ListIPEntities(ctx, nil) }
	err := list(ctx, t.api, all, func(e ironplane.IPEntity) {
		for _, text := range []string{e.FullIP, value(e.V6Address)} {
			span, ok := parseSpan(text)
			if !ok {
				continue
			}
			if i, ok := planned[placeOf(e.Group.ID, span)]; ok {
				found(i, e)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list IP entities: %w", err)
	}
	return nil
}

// compare says how the entity that is there differs from this one. A gateway or mask that NetBox says nothing of is
// no difference.
func (e Entity) compare(found ironplane.IPEntity, clients map[string]int64) result {
	var differences []string
	note := func(member, is, planned string) {
		if is != planned {
			differences = append(differences, fmt.Sprintf("%s is %s, planned is %s", member, cmp.Or(is, "none"), cmp.Or(planned, "none")))
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
		return result{state: there}
	}
	return result{state: different, detail: strings.Join(differences, ", ")}
}

func vlanText(vlan int32) string {
	if vlan == 0 {
		return ""
	}
	return strconv.Itoa(int(vlan))
}

// makeEntities makes those that are not there. After the first error it sends no more, and waits for what is under way.
func (t *transfer) makeEntities(ctx context.Context) error {
	t.progress.begin("making entities", len(t.plan.Entities))
	going, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for i := range next {
				if err := t.makeEntity(going, i); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range t.plan.Entities {
		t.progress.step()
		if t.entities[i].state != untried {
			continue
		}
		select {
		case next <- i:
		case <-going.Done():
		}
		if going.Err() != nil {
			break
		}
	}
	close(next)
	if going.Err() != nil {
		t.progress.begin("finishing what is under way", 0)
	}
	working.Wait()
	if going.Err() == nil {
		return nil
	}
	return errors.Join(context.Cause(going), t.lookAgain(ctx))
}

func (t *transfer) makeEntity(ctx context.Context, i int) error {
	e := t.plan.Entities[i]
	group, ok := t.groupIDs[e.Group]
	if !ok {
		t.entities[i] = result{state: refused, code: "group", detail: "its group " + e.Group + " was refused"}
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
		return nil // it was not sent: another one's fault stopped the import, and says nothing of this one
	}
	if t.entities[i], err = judge(err); err != nil {
		return fmt.Errorf("make entity %s in group %s: %w", e.Address(), e.Group, err)
	}
	return nil
}

// lookAgain finds out which of the unclear entities were made.
func (t *transfer) lookAgain(ctx context.Context) error {
	isUnclear := func(r result) bool { return r.state == unclear }
	if ctx.Err() != nil || !slices.ContainsFunc(t.entities, isUnclear) {
		return nil
	}
	return t.findEntities(ctx, func(i int, _ ironplane.IPEntity) {
		if t.entities[i].state == unclear {
			t.entities[i].state = made
		}
	})
}

func (e Entity) body(group int64) ironplane.CreateIPEntityBody {
	body := ironplane.CreateIPEntityBody{Group: ironplane.RefBody{ID: group}, Nickname: unlessZero(e.Nickname), VLAN: unlessZero(e.VLAN)}
	var gateway *string
	if e.Gateway.IsValid() {
		gateway = new(e.Gateway.String())
	}
	if e.Span.From().Is6() {
		body.V6 = &ironplane.CreateIPEntityBodyV6{Address: new(e.Address()), Gateway: gateway}
	} else {
		body.V4 = &ironplane.CreateIPEntityBodyV4{Full: new(e.Address()), Gateway: gateway, SubnetMask: unlessZero(e.subnetMask())}
	}
	return body
}

// unlessZero is an optional member that is not sent where there is nothing to say.
func unlessZero[T comparable](member T) *T {
	var zero T
	if member == zero {
		return nil
	}
	return &member
}

// subnetMask is empty for IPv6, whose entities have none, and where the subnet is not known.
func (e Entity) subnetMask() string {
	if !e.Subnet.IsValid() || e.Subnet.Addr().Is6() {
		return ""
	}
	return net.IP(net.CIDRMask(e.Subnet.Bits(), 32)).String()
}
