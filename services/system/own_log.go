package system

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/system/audit"
)

const ownLogDoc = "A client sees the items about itself, and those of its own requests. Of an item that somebody else caused " +
	"it sees neither ip nor changes. targets has only the client's own items. Its q searches in the type."

// ownLogItems returns the condition for the items that the caller sees. A client sees the items about itself, and those of its own
// requests.
func ownLogItems(ctx context.Context) []pg.Condition {
	if !isClient(ctx) {
		return nil
	}
	own := principal.FromContext(ctx).Principal.Owner
	return []pg.Condition{{
		SQL:  "(user_url = $1 OR EXISTS (SELECT FROM log_target t WHERE t.log_id = id AND t.type = 'client' AND t.target_id = $2))",
		Args: []any{own.URL(), own.ID},
	}}
}

// findOwnLog returns the sources of a client's part of the log: one for each of two indexes. q does not search in what the client
// must not see, such as addresses of others.
func findOwnLog(ctx context.Context, asked url.Values) []pg.Source {
	own := principal.FromContext(ctx).Principal.Owner
	var narrow []pg.Condition
	if q := asked.Get("q"); q != "" {
		narrow = append(narrow, pg.Condition{SQL: "strpos(type, $1) > 0", Args: []any{strings.ToLower(q)}})
	}
	if targetType := strings.ReplaceAll(asked.Get("target_type"), ".", "/"); targetType != "" {
		const sql = "EXISTS (SELECT FROM log_target t WHERE t.log_id = id AND t.type = $1 AND ($2::bigint IS NULL OR t.target_id = $2))"
		var target *int64
		if id, err := strconv.ParseInt(asked.Get("target_id"), 10, 64); err == nil {
			target = &id
		}
		narrow = append(narrow, pg.Condition{SQL: sql, Args: []any{targetType, target}})
	}
	return []pg.Source{
		{
			View:  "log_by_target",
			Where: append(slices.Clip(narrow), pg.Condition{SQL: "target_type = 'client' AND target_id = $1", Args: []any{own.ID}}),
		},
		{Where: append(slices.Clip(narrow), pg.Condition{SQL: "user_url = $1", Args: []any{own.URL()}})},
	}
}

// ownTargets are the types of targets, besides the client itself, that a client sees. Each of these items is the client's, or it was
// when the item was logged.
var ownTargets = []string{"auth/key", "auth/session", "email/message", "entity", "pxe/install"}

// maskLogItem removes from an item what a client must not see. It reports whether the caller sees the changes: a client sees those
// that it made itself.
func maskLogItem(ctx context.Context, item *LogItem) (showsChanges bool) {
	if !isClient(ctx) {
		return true
	}
	own := principal.FromContext(ctx).Principal.Owner.URL()
	isOwn := item.User != nil && item.User.URL == own && !strings.Contains(item.User.Name, principal.ByActor)
	if !isOwn {
		item.IP = ""
	}
	all := len(item.Targets)
	item.Targets = slices.DeleteFunc(item.Targets, func(t audit.Target) bool {
		return t.URL != own && !strings.HasPrefix(t.URL, own+"/") && !(isOwn && strings.HasPrefix(t.URL, "/client/")) &&
			!slices.ContainsFunc(ownTargets, func(kind string) bool { return strings.HasPrefix(t.URL, "/"+kind+"/") })
	})
	if len(item.Targets) < all {
		item.Desc = audit.DescribeTargets(item.Type, item.Targets)
	}
	return isOwn && !strings.HasPrefix(item.Type, "pxe.") // an install's changes name profiles and servers
}
