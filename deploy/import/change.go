package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/deploy/import/source"
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
	reserve := func(c change) any {
		if !c.reserve {
			return nil
		}
		return map[string]any{"status": reserved, "note": c.note}
	}
	assign := func(c change) any {
		if c.owner == (source.Customer{}) || t.entities[c.index].state != changed {
			return nil
		}
		return map[string]any{"owner": map[string]any{"id": t.clientIDs[c.owner.Email]}}
	}
	t.progress.begin("changing entities", len(t.changes))
	for _, body := range []func(change) any{reserve, assign} {
		if err := t.change(ctx, body); err != nil {
			return err
		}
	}
	return nil
}

// change sends the bodies of all changes.
func (t *transfer) change(ctx context.Context, body func(change) any) error {
	var bodies []string // in the order of the changes
	waiting := map[string][]change{}
	for _, c := range t.changes {
		of := body(c)
		if of == nil {
			continue
		}
		text, err := json.Marshal(of)
		if err != nil {
			return err
		}
		if waiting[string(text)] == nil {
			bodies = append(bodies, string(text))
		}
		waiting[string(text)] = append(waiting[string(text)], c)
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
	body    string
	changes []change
}

// patch sends a patch. If the API refuses it for one entity, it sends one for each.
func (t *transfer) patch(ctx context.Context, p patch) error {
	ids := make([]string, len(p.changes))
	for i, c := range p.changes {
		ids[i] = strconv.FormatInt(c.id, 10)
	}
	send := func(ctx context.Context) (*http.Response, error) {
		several := func(_ context.Context, r *http.Request) error {
			r.URL.Path = strings.TrimSuffix(r.URL.Path, ids[0]) + strings.Join(ids, ",")
			return nil
		}
		return t.api.api.UpdateIPEntityWithBody(ctx, p.changes[0].id, nil, "application/json", bytes.NewBufferString(p.body), several)
	}
	var response json.RawMessage
	err := t.api.create(ctx, send, &response)
	refusal, isProblem := errors.AsType[*problem](err)
	switch {
	case err == nil:
		t.progress.add(len(p.changes))
		return nil
	case !isProblem || !slices.Contains(refusals, int(refusal.Status)):
		return fmt.Errorf("change IP entities %s: %w", strings.Join(ids, ","), err)
	case len(p.changes) == 1:
		t.entities[p.changes[0].index] = result{state: refused, code: refusal.code(), detail: refusal.reason()}
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
