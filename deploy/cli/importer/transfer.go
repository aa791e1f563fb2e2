package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// workers is the number of concurrent requests that create or change entities.
const workers = 4

// state is the outcome of a planned group or entity. In a dry run it is the outcome that a run would have.
type state int

const (
	notTried  state = iota
	created         // by this run
	changed         // existed before this run, and was assigned or reserved by it
	existing        // before this run, and as planned
	different       // existed before this run, but not as planned: unchanged
	refused         // by the API
	unknown         // sent, but no response says whether it was created
)

// result is the outcome of a planned group or entity, with details.
type result struct {
	state  state
	code   string // why the API refused it
	detail string // a text for people, of refused, changed and different
}

// transfer is one run of a plan against the API. It creates missing items. It changes existing ones only to keep what is in
// use from being allocated, and to give what it reserved to a client.
type transfer struct {
	api       *client.Client
	plan      Plan
	progress  *progress
	isDryRun  bool
	groups    []result // as plan.Groups
	entities  []result // as plan.Entities
	groupIDs  map[string]int64
	owners    []source.Customer
	clients   int              // created by this run
	clientIDs map[string]int64 // by email
	found     foundEntities
	changes   []change
	// id is part of the Idempotency-Keys of this run. With the keys of an earlier run, the API would repeat its earlier
	// responses for items that may have been deleted since.
	id string
}

func newTransfer(api *client.Client, plan Plan, progress *progress, isDryRun bool) *transfer {
	return &transfer{
		api: api, plan: plan, progress: progress, isDryRun: isDryRun,
		groups: make([]result, len(plan.Groups)), entities: make([]result, len(plan.Entities)),
		groupIDs: map[string]int64{}, clientIDs: map[string]int64{}, id: rand.Text(),
	}
}

// run transfers the plan. After an error it stops, and the results say which items were created until then.
//
// It first reads everything, then changes what exists, so that nothing in use is allocated meanwhile, and creates the rest
// last.
func (t *transfer) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.findGroups, t.findClients, t.findEntities, t.createGroups, t.createClients, t.changeEntities, t.createEntities,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// findGroups marks the planned groups that exist already.
func (t *transfer) findGroups(ctx context.Context) error {
	planned := map[string]int{}
	for i, name := range t.plan.Groups {
		planned[name] = i
	}
	for g, err := range t.api.Groups.List(ctx, client.GroupList{PerPage: perPage}) {
		if err != nil {
			return fmt.Errorf("list IP groups: %w", err)
		}
		if i, ok := planned[g.Name]; ok {
			t.groups[i].state = existing
			t.groupIDs[g.Name] = g.ID
		}
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
		if t.isDryRun {
			t.groups[i].state = created
			continue
		}
		g, err := t.api.Groups.Create(ctx, client.GroupCreate{Name: name}, client.IdempotencyKey(t.idempotencyKey("group", i)))
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
	if e, isRefusal := errors.AsType[*client.Error](err); isRefusal && errors.Is(err, client.ErrInvalid) {
		return result{state: refused, code: code(e), detail: e.Reason()}, nil
	}
	if errors.Is(err, client.ErrUnknownOutcome) {
		return result{state: unknown}, err
	}
	return result{}, err
}

func (t *transfer) idempotencyKey(kind string, i int) string {
	return t.id + "-" + kind + "-" + strconv.Itoa(i)
}
