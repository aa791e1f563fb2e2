// Package apply brings items to the state of a file: it creates those that are missing, and edits those that differ.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ironplane/ironplane/pkg/client"
)

// Applier brings items to their wanted state, one after the other: an item may refer to those above it.
type Applier struct {
	API     *client.Client
	Out     io.Writer                           // gets the summary
	Print   func(steps []json.RawMessage) error // prints a plan
	Confirm func(question string) bool          // asks a person

	ids map[string]int64 // by noun and name: the items of the file. 0: one that the plan creates
}

// What a plan does to an item.
const (
	create = "create"
	update = "update"
	none   = "none"
)

// Stopped is the error of a run that did not come to its end.
type Stopped struct {
	Item string // the item that could not be changed, and where the file has it
	Done string // what was done before that
	err  error
}

func (e *Stopped) Error() string { return e.Item + ": " + e.err.Error() }
func (e *Stopped) Unwrap() error { return e.err }

// step is what a plan does to an item.
type step struct {
	Action  string `json:"action"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Changes string `json:"changes,omitempty"`
}

// Plan prints what Apply would do.
func (a *Applier) Plan(ctx context.Context, wanted []*Item) error {
	_, err := a.planAll(ctx, wanted)
	return err
}

// Apply prints the plan and asks whether it is right, unless yes says so. Then it changes each item that differs.
func (a *Applier) Apply(ctx context.Context, wanted []*Item, yes bool) error {
	if !yes {
		changes, err := a.planAll(ctx, wanted)
		if err != nil {
			return err
		}
		if changes > 0 && !a.Confirm(fmt.Sprintf("Apply these %d changes?", changes)) {
			return errors.New("nothing was changed")
		}
	}
	return a.apply(ctx, wanted)
}

// planAll prints the plan, and returns how many items it changes.
func (a *Applier) planAll(ctx context.Context, wanted []*Item) (int, error) {
	a.ids = map[string]int64{}
	var lines []json.RawMessage
	for _, i := range wanted {
		s, err := a.plan(ctx, i)
		if err != nil {
			return 0, &Stopped{i.String(), "", err}
		}
		if s.Action == none {
			continue
		}
		line, err := json.Marshal(s)
		if err != nil {
			return 0, err
		}
		lines = append(lines, line)
	}
	return len(lines), a.Print(lines)
}

// apply plans each item once more, because what stands above it exists now, and changes it.
func (a *Applier) apply(ctx context.Context, wanted []*Item) error {
	a.ids = map[string]int64{}
	counts := map[string]int{}
	for _, i := range wanted {
		s, err := a.plan(ctx, i)
		if err == nil {
			switch s.Action {
			case create:
				err = a.create(ctx, i)
			case update:
				err = a.update(ctx, i)
			}
		}
		if err != nil {
			return &Stopped{i.String(), summary(counts), err}
		}
		counts[s.Action]++
	}
	_, err := fmt.Fprintln(a.Out, summary(counts))
	return err
}

func summary(counts map[string]int) string {
	return fmt.Sprintf("%d created, %d updated, %d unchanged", counts[create], counts[update], counts[none])
}

// plan says what has to be done to an item. It stores the item's id and its changes for apply.
func (a *Applier) plan(ctx context.Context, i *Item) (*step, error) {
	s := &step{Action: none, Kind: i.noun, Name: i.name()}
	body, isComplete, err := a.body(ctx, i)
	if err != nil {
		return nil, err
	}
	i.body = body
	i.id = 0
	if isComplete || !i.isScoped() {
		if i.id, err = a.find(ctx, i); err != nil {
			return nil, err
		}
	}
	a.ids[i.key()] = i.id
	if i.id == 0 {
		s.Action = create
		return s, nil
	}
	if i.changes, err = a.diff(ctx, i); err != nil {
		return nil, err
	}
	if len(i.changes) > 0 {
		s.Action, s.Changes = update, strings.Join(names(i.changes), ", ")
	}
	return s, nil
}
