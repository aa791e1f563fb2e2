package system

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/services/system/audit"
)

// LogItem is a change, or a request that was refused.
type LogItem struct {
	ID        int64          `json:"id" db:"id" doc:"The item's number. Numbers have no gaps."`
	CreatedAt rest.Timestamp `json:"created_at" db:"created_at"`
	IP        string         `json:"ip,omitempty" db:"ip" doc:"The address that the request came from."`
	Type      string         `json:"type" db:"type" doc:"The type of the change, such as port-speed.edited."`
	Desc      string         `json:"desc" db:"desc" doc:"What happened, as a sentence."`
	User      *LogUser       `json:"user,omitempty" db:"user_" doc:"The owner of the key that made the request. Left out if the installation itself made the change."`
	Targets   audit.Targets  `json:"targets" db:"targets" doc:"The items that the change is about."`
}

// LogUser is the owner of the key that made a change.
type LogUser struct {
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
	URL  string `json:"url" db:"url"`
}

// ViewedLogItem is a log item with all its details.
type ViewedLogItem struct {
	LogItem
	Data LogData `json:"data" db:"data_" doc:"The change in detail."`
}

// LogData are the details that only the view of a single item has.
type LogData struct {
	Description string        `json:"description" db:"description" doc:"what happened"`
	Message     string        `json:"message" doc:"Who did what, from which address, and the changed members, as a sentence."`
	Changes     audit.Changes `json:"changes" db:"changes" doc:"The changed members, before and after. Secrets are \"[secret]\"."`
}

// logQuery are the filters of the log, besides those for equality.
type logQuery struct {
	TargetType string         `query:"target_type" doc:"Only items about targets of this type: the path of their collection without the first slash, such as group."`
	TargetID   int64          `query:"target_id" doc:"The target's id; requires target_type."`
	Since      rest.Timestamp `query:"since" doc:"Only items from this time on."`
	Until      rest.Timestamp `query:"until" doc:"Only items before this time."`
}

func (s *Service) logRoutes() []rest.Route {
	view := pg.NewView[ViewedLogItem]("log_item_view")
	return []rest.Route{
		rest.List[logQuery, LogItem]{
			Path:    "/log",
			Guard:   guard.HasOrClient(permission.SystemLogs),
			Name:    "listLogItems",
			Summary: "List log items",
			Doc:     ownLogDoc,
			View:    "log_view",
			Where:   s.filterLog,
			Mask: func(ctx context.Context, q logQuery, item *LogItem) {
				maskLogItem(ctx, q.subject(), item)
			},
			Options: rest.ListOptions{
				Search:  searchLog,
				Default: "-created_at",
				Sorts:   map[string]string{"created_at": "created_at"},
				Filters: map[string]string{"user": "user_url", "type": "type"},
			},
		},
		rest.Read[rest.Item, ViewedLogItem]{
			Path:    "/log/{log_id}",
			Guard:   guard.HasOrClient(permission.SystemLogs),
			Name:    "getLogItem",
			Summary: "View a log item",
			Doc:     ownLogDoc,
			Do: func(ctx context.Context, req rest.Item) (ViewedLogItem, error) {
				item, err := view.Get(ctx, s.db, req.ID)
				if err != nil {
					return item, err
				}
				subject, err := s.findSubject(ctx, &item.LogItem)
				if err != nil {
					return ViewedLogItem{}, err
				}
				if showsChanges := maskLogItem(ctx, subject, &item.LogItem); !showsChanges {
					item.Data.Changes = audit.Changes{}
				}
				item.Data.Description = item.Desc
				user := ""
				if item.User != nil {
					user = item.User.Name
				}
				item.Data.Message = audit.Message(item.Data.Description, user, item.IP, item.Data.Changes)
				return item, nil
			},
		},
	}
}

// searchLog returns the sources of the items about a target, or about targets of a type. Each has an index in the order of time. A
// search among the items of a type uses the index of the search instead.
func searchLog(ctx context.Context, asked url.Values) []pg.Source {
	if isClient(ctx) {
		return findOwnLog(ctx, asked)
	}
	found := rest.SearchIn("search")(ctx, asked)
	targetType := strings.ReplaceAll(asked.Get("target_type"), ".", "/")
	if targetType == "" {
		return found
	}
	id, err := strconv.ParseInt(asked.Get("target_id"), 10, 64)
	view, conditions := "log_by_target_type", []pg.Condition{{SQL: "target_type = $1", Args: []any{targetType}}}
	switch {
	case err == nil:
		view, conditions = "log_by_target", append(conditions, pg.Condition{SQL: "target_id = $1", Args: []any{id}})
	case found != nil:
		view, conditions[0].SQL = "", "EXISTS (SELECT FROM log_target t WHERE t.log_id = log_view.id AND t.type = $1)"
	}
	if found == nil {
		found = []pg.Source{{}}
	}
	found[0].View, found[0].Where = view, append(found[0].Where, conditions...)
	return found
}

// filterLog returns the conditions for the items that the caller sees, and for since and until. It refuses a target_id without a
// target_type.
func (s *Service) filterLog(ctx context.Context, q logQuery) (where []pg.Condition, err error) {
	if q.TargetID != 0 && q.TargetType == "" {
		return nil, problem.New(problem.BadRequest, "The query is invalid: target_id requires target_type.")
	}
	if where, err = s.visibleLog(ctx, q.subject()); err != nil {
		return nil, err
	}
	if !q.Since.IsZero() {
		where = append(where, pg.Condition{SQL: "created_at >= $1", Args: []any{q.Since}})
	}
	if !q.Until.IsZero() {
		where = append(where, pg.Condition{SQL: "created_at < $1", Args: []any{q.Until}})
	}
	return where, nil
}
