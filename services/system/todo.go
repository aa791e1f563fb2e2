package system

import (
	"context"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/mail"
)

// TodoItem is a step to set up the installation.
type TodoItem struct {
	ID          int64           `json:"id" db:"id"`
	Slug        string          `json:"slug" db:"slug" doc:"The step's name for programs."`
	CompletedAt *rest.Timestamp `json:"completed_at,omitempty" db:"completed_at" doc:"When the step was completed for the first time. Left out until then."`
}

func (s *Service) todoRoutes() []rest.Route {
	view := pg.NewView[TodoItem]("todo")
	return []rest.Route{
		rest.List[rest.None, TodoItem]{
			Path:    "/todo",
			Guard:   guard.Has(permission.SystemSettings),
			Name:    "listTodoItems",
			Summary: "List todo items",
			View:    "todo",
			Options: rest.ListOptions{Sorts: map[string]string{"slug": "slug"}, Filters: map[string]string{"slug": "slug"}},
		},
		rest.Read[rest.Item, TodoItem]{
			Path:    "/todo/{todo_id}",
			Guard:   guard.Has(permission.SystemSettings),
			Name:    "getTodoItem",
			Summary: "View a todo item",
			Do:      func(ctx context.Context, req rest.Item) (TodoItem, error) { return view.Get(ctx, s.db, req.ID) },
		},
	}
}

// completingActions are the actions that can complete an item. Other changes need no lookup.
var completingActions = []pg.Action{pg.Created, mail.Sent, "verified", "installed"}

// completeTodos marks the items that these changes completed for the first time.
func completeTodos(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
	first := map[string]events.Event{}
	for _, e := range changes {
		if _, seen := first[e.Type]; !seen && slices.Contains(completingActions, e.Action) {
			first[e.Type] = e
		}
	}
	for kind, e := range first {
		if _, err := tx.Exec(ctx, "UPDATE todo SET completed_at = $2 WHERE done_by = $1 AND completed_at IS NULL", kind, e.At); err != nil {
			return fmt.Errorf("complete the todo item of %s: %w", kind, err)
		}
	}
	return nil
}
