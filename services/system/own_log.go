package system

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/system/audit"
)

const ownLogDoc = "A client sees the items about itself, and those of its own requests. Of an item that somebody else caused " +
	"it sees neither ip nor changes. targets has only the client's own items. Its q searches in the type. With target_type=client and " +
	"target_id it sees the items about a sub client that it reaches whole."

// subject returns the client whose items a client asks for, or 0 if it names none.
func (q logQuery) subject() int64 {
	if q.TargetType != "client" {
		return 0
	}
	return q.TargetID
}

// visibleLog returns the condition for the items that the caller sees. A client sees the items about itself, those of its own requests
// and, if it names a client that it reaches whole, those about that one.
func (s *Service) visibleLog(ctx context.Context, subject int64) ([]pg.Condition, error) {
	if !isClient(ctx) {
		return nil, nil
	}
	own := principal.FromContext(ctx).Principal.Owner
	if subject == 0 || subject == own.ID {
		return []pg.Condition{{
			SQL:  "(user_url = $1 OR EXISTS (SELECT FROM log_target t WHERE t.log_id = id AND t.type = 'client' AND t.target_id = $2))",
			Args: []any{own.URL(), own.ID},
		}}, nil
	}
	isVisible, err := credentials.IsVisible(ctx, s.peers, own.ID, subject)
	if err != nil || !isVisible {
		return []pg.Condition{{SQL: "false"}}, err
	}
	const sql = "EXISTS (SELECT FROM log_target t WHERE t.log_id = id AND t.type = 'client' AND t.target_id = $1)"
	return []pg.Condition{{SQL: sql, Args: []any{subject}}}, nil
}

// maxAsked is how many clients of a log item are looked up, to find out whether the caller sees the item.
const maxAsked = 5

// findSubject returns the client that makes an item visible to the caller: itself, or one that it reaches whole. It returns 0 for
// callers that are no clients, and pgx.ErrNoRows if the caller does not see the item.
func (s *Service) findSubject(ctx context.Context, item *LogItem) (int64, error) {
	if !isClient(ctx) {
		return 0, nil
	}
	own := principal.FromContext(ctx).Principal.Owner
	isOwn := func(t audit.Target) bool { return t.URL == own.URL() }
	if item.User != nil && item.User.URL == own.URL() || slices.ContainsFunc(item.Targets, isOwn) {
		return own.ID, nil
	}
	asked := 0
	for _, target := range item.Targets {
		if owner, ok := principal.ParseOwner(target.URL); !ok || owner.Type != principal.Client {
			continue
		}
		if asked++; asked > maxAsked {
			break
		}
		if isVisible, err := credentials.IsVisible(ctx, s.peers, own.ID, target.ID); err != nil || isVisible {
			return target.ID, err
		}
	}
	return 0, pgx.ErrNoRows
}

// findOwnLog returns the sources of what a client may see of the log, each with an index of its own. q does not search in what the
// client must not see, such as addresses of others.
func findOwnLog(ctx context.Context, asked url.Values) []pg.Source {
	own := principal.FromContext(ctx).Principal.Owner
	var narrow []pg.Condition
	if q := asked.Get("q"); q != "" {
		narrow = append(narrow, pg.Condition{SQL: "strpos(type, $1) > 0", Args: []any{strings.ToLower(q)}})
	}
	about := func(client int64, narrow []pg.Condition) pg.Source {
		target := pg.Condition{SQL: "target_type = 'client' AND target_id = $1", Args: []any{client}}
		return pg.Source{View: "log_by_target", Where: append(slices.Clip(narrow), target)}
	}
	id, err := strconv.ParseInt(asked.Get("target_id"), 10, 64)
	switch targetType := strings.ReplaceAll(asked.Get("target_type"), ".", "/"); {
	case targetType == "client" && err == nil:
		return []pg.Source{about(id, narrow)}
	case targetType != "":
		const sql = "EXISTS (SELECT FROM log_target t WHERE t.log_id = id AND t.type = $1 AND ($2::bigint IS NULL OR t.target_id = $2))"
		var target *int64
		if err == nil {
			target = &id
		}
		narrow = append(narrow, pg.Condition{SQL: sql, Args: []any{targetType, target}})
	}
	byItself := pg.Condition{SQL: "user_url = $1", Args: []any{own.URL()}}
	return []pg.Source{about(own.ID, narrow), {Where: append(slices.Clip(narrow), byItself)}}
}

// ownTargets are the types of targets, besides the client itself, that a client sees. Each of these items is the client's, or it was
// when the item was logged.
var ownTargets = []string{"auth/key", "auth/session", "email/message", "entity", "pxe/install"}

// maskLogItem removes from an item what a client must not see. subject is the client that the caller asked for, or 0. The function reports
// whether the caller sees the changes: a client sees those that it made itself.
func maskLogItem(ctx context.Context, subject int64, item *LogItem) (showsChanges bool) {
	if !isClient(ctx) {
		return true
	}
	own := principal.FromContext(ctx).Principal.Owner.URL()
	isOwn := item.User != nil && item.User.URL == own && !strings.Contains(item.User.Name, principal.ByActor)
	if !isOwn {
		item.IP = ""
	}
	asked := principal.Owner{Type: principal.Client, ID: subject}.URL()
	isHidden := func(t audit.Target) bool {
		return t.URL != own && t.URL != asked && !strings.HasPrefix(t.URL, own+"/") && !(isOwn && strings.HasPrefix(t.URL, "/client/")) &&
			!slices.ContainsFunc(ownTargets, func(kind string) bool { return strings.HasPrefix(t.URL, "/"+kind+"/") })
	}
	shown := slices.Clone(item.Targets)
	for i := range shown {
		if isHidden(shown[i]) {
			shown[i] = audit.Target{}
		}
	}
	if item.Targets = slices.DeleteFunc(item.Targets, isHidden); len(item.Targets) < len(shown) {
		item.Desc = audit.DescribeTargets(item.Type, shown)
	}
	return isOwn && !strings.HasPrefix(item.Type, "pxe.") // an install's changes name profiles and servers
}
