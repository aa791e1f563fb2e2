package system

import (
	"context"
	"net/url"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/audit"
)

// LogItem is a change that somebody made, or was refused.
type LogItem struct {
	ID        int64          `json:"id" db:"id" doc:"the place in the log, which has no gaps"`
	CreatedAt rest.Timestamp `json:"created_at" db:"created_at"`
	IP        string         `json:"ip,omitempty" db:"ip" doc:"where the request came from"`
	Type      string         `json:"type" db:"type" doc:"what happened, for programs: port-speed.edited"`
	Desc      string         `json:"desc" db:"desc" doc:"what happened, in a sentence"`
	User      *LogUser       `json:"user,omitempty" db:"user_" doc:"whose key it was; left out where it was the installation itself"`
	Targets   audit.Targets  `json:"targets" db:"targets"`
}

// LogUser is whose key it was.
type LogUser struct {
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
	URL  string `json:"url" db:"url"`
}

// ViewedLogItem is an item with all that is known of it.
type ViewedLogItem struct {
	LogItem
	Data LogData `json:"data" db:"data_"`
}

// LogData is what only the view of one item has.
type LogData struct {
	Description string        `json:"description" db:"description" doc:"what happened"`
	Message     string        `json:"message" doc:"who did it, from where, and what became of what"`
	Changes     audit.Changes `json:"changes" db:"changes" doc:"of each changed member what it was and what it is; secrets are \"[secret]\""`
}

// logQuery is what a list of items may be narrowed down by, besides equality.
type logQuery struct {
	TargetType string         `query:"target_type" doc:"With target_id: only items about this thing. Its collection's path without the first slash, such as group."`
	TargetID   int64          `query:"target_id" doc:"With target_type: the thing's id."`
	Since      rest.Timestamp `query:"since" doc:"Only items from this moment on."`
	Until      rest.Timestamp `query:"until" doc:"Only items before this moment."`
}

func (s *Service) logRoutes() []rest.Route {
	view := pg.NewView[ViewedLogItem]("log_item_view")
	return []rest.Route{
		rest.List[logQuery, LogItem]{
			Path:    "/log",
			Guard:   guard.Has(permission.SystemLogs),
			Name:    "listLogItems",
			Summary: "List log items",
			View:    "log_view",
			Where:   filterLog,
			Options: rest.ListOptions{
				Search:  searchLog,
				Default: "-created_at",
				Sorts:   map[string]string{"created_at": "created_at"},
				Filters: map[string]string{"user": "user_url", "type": "type"},
			},
		},
		rest.Read[rest.Item, ViewedLogItem]{
			Path:    "/log/{log_id}",
			Guard:   guard.Has(permission.SystemLogs),
			Name:    "getLogItem",
			Summary: "View a log item",
			Do: func(ctx context.Context, req rest.Item) (ViewedLogItem, error) {
				item, err := view.Get(ctx, s.db, req.ID)
				user := ""
				if item.User != nil {
					user = item.User.Name
				}
				item.Data.Message = audit.Message(item.Data.Description, user, item.IP, item.Data.Changes)
				return item, err
			},
		},
	}
}

// searchLog finds items about a thing by an index of their own.
func searchLog(ctx context.Context, asked url.Values) []pg.Source {
	found := rest.SearchIn("search")(ctx, asked)
	if asked.Get("target_type") == "" {
		return found
	}
	if found == nil {
		found = []pg.Source{{}}
	}
	found[0].View = "log_by_target"
	return found
}

func filterLog(_ context.Context, q logQuery) (where []pg.Condition, err error) {
	if (q.TargetType == "") != (q.TargetID == 0) {
		return nil, problem.New(problem.BadRequest, "The query is wrong: target_type and target_id go together.")
	}
	if q.TargetType != "" {
		where = append(where, pg.Condition{SQL: "target_type = $1 AND target_id = $2", Args: []any{q.TargetType, q.TargetID}})
	}
	if !q.Since.IsZero() {
		where = append(where, pg.Condition{SQL: "created_at >= $1", Args: []any{q.Since}})
	}
	if !q.Until.IsZero() {
		where = append(where, pg.Condition{SQL: "created_at < $1", Args: []any{q.Until}})
	}
	return where, nil
}
