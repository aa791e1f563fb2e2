package importer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
	"github.com/ironplane/ironplane/pkg/client"
)

// maxIDs is the number of entities that one PATCH changes.
const maxIDs = 100

// change reserves an existing entity, assigns it, or both in this order.
type change struct {
	index   int // of the planned entity
	id      int64
	reserve bool
	note    string
	owner   source.Customer
}

// changeEntities makes the changes. Entities with the same change are changed together.
func (t *transfer) changeEntities(ctx context.Context) error {
	if t.isDryRun {
		return nil
	}
	// An available entity could be allocated at this moment. Reserving it fails then, and so the owner is never overwritten.
	reserve := func(c change) (body client.EntityUpdate, ok bool) {
		return client.EntityUpdate{Status: client.Set(reserved), Note: client.Set(c.note)}, c.reserve
	}
	assign := func(c change) (body client.EntityUpdate, ok bool) {
		owner := client.EntityUpdateOwner{ID: client.Set(t.clientIDs[c.owner.Email])}
		return client.EntityUpdate{Owner: client.Set(owner)}, c.owner != (source.Customer{}) && t.entities[c.index].state == changed
	}
	t.progress.begin("changing entities", len(t.changes))
	for _, body := range []func(change) (client.EntityUpdate, bool){reserve, assign} {
		if err := t.change(ctx, body); err != nil {
			return err
		}
	}
	return nil
}

// change sends the bodies of all changes.
func (t *transfer) change(ctx context.Context, body func(change) (client.EntityUpdate, bool)) error {
	var bodies []client.EntityUpdate // in the order of the changes
	waiting := map[client.EntityUpdate][]change{}
	for _, c := range t.changes {
		change, ok := body(c)
		if !ok {
			continue
		}
		if waiting[change] == nil {
			bodies = append(bodies, change)
		}
		waiting[change] = append(waiting[change], c)
	}
	var all []patch
	for _, body := range bodies {
		for changes := range slices.Chunk(waiting[body], maxIDs) {
			all = append(all, patch{body, changes})
		}
	}
	err := each(ctx, all, t.patch)
	if err != nil {
		for i := range t.entities {
			if t.entities[i].state == changed {
				t.entities[i].state = notTried // the next run finds out what was changed
			}
		}
	}
	return err
}

// patch is a request that changes several entities alike.
type patch struct {
	body    client.EntityUpdate
	changes []change
}

// patch sends a patch. If the API refuses it for one entity, it sends one for each.
func (t *transfer) patch(ctx context.Context, p patch) error {
	ids := make([]int64, len(p.changes))
	for i, c := range p.changes {
		ids[i] = c.id
	}
	_, err := t.api.Entities.UpdateMany(ctx, ids, p.body)
	refusal, isRefusal := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		t.progress.add(len(p.changes))
		return nil
	case !isRefusal || !slices.Contains(refusals, refusal.Status):
		return fmt.Errorf("change IP entities %v: %w", ids, err)
	case len(p.changes) == 1:
		t.entities[p.changes[0].index] = result{state: refused, code: code(refusal), detail: refusal.Reason()}
		return nil
	}
	for _, c := range p.changes {
		if err := t.patch(ctx, patch{p.body, []change{c}}); err != nil {
			return err
		}
	}
	return nil
}

// refusals are the statuses of a change that the entity does not allow. Its state has changed since it was listed, or the
// key is not an admin's.
var refusals = []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity}
