package site

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/pxe/reference"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// maxClockOffset is how wrong an agent's clock may be before the times of its reports are corrected.
const maxClockOffset = 30 * time.Second

// readFeed applies an agent's feed up to its end. serves reports whether the agent serves machines.
func (a *Agents) readFeed(ctx context.Context, agent *Agent, target pollTarget) (serves bool, err error) {
	for {
		feed, wasRestored, err := fetchFeed(ctx, agent, target)
		if err != nil {
			return false, Unreachable{err}
		}
		next, current, err := a.storeFeed(ctx, target, feed, wasRestored)
		if err != nil || !current || next.Number >= feed.Last || next.Number == target.Number {
			return current && feed.Health.MachinesURL != "", err
		}
		target = next
	}
}

// advance returns the target after a page of its feed, and the entries to apply. Their times are by this service's clock.
func (t pollTarget) advance(feed *siteagent.Feed, wasRestored bool) (next pollTarget, entries []siteagent.Entry) {
	next = t
	switch {
	case feed.History != t.History:
		next.History, next.Number, next.SkipUntil = feed.History, 0, nil
	case wasRestored:
		next.Number, next.SkipUntil = 0, t.applied()
	}
	offset := clockOffset(feed.Health.Now)
	for _, e := range feed.Entries {
		next.Number, next.EntryAt = e.Number, new(e.At.Truncate(time.Microsecond)) // as precise as the database
		if next.SkipUntil == nil || next.EntryAt.After(*next.SkipUntil) {
			e.At = e.At.Add(offset)
			entries = append(entries, e)
		}
	}
	if next.Number >= feed.Last {
		next.SkipUntil = nil
	}
	return next, entries
}

// applied returns the time, by the agent's clock, up to which its entries were applied. If it is unknown, it is now.
func (t pollTarget) applied() *time.Time {
	switch {
	case t.EntryAt == nil:
		return new(time.Now())
	case t.SkipUntil != nil && t.SkipUntil.After(*t.EntryAt):
		return t.SkipUntil
	}
	return t.EntryAt
}

// clockOffset returns how far an agent's clock is behind, or 0 if it is right or unknown.
func clockOffset(now time.Time) time.Duration {
	if offset := time.Since(now); !now.IsZero() && offset.Abs() > maxClockOffset {
		return offset
	}
	return 0
}

// storeFeed stores a page of an agent's feed and its health. current is false if another process has read the feed
// further; then nothing is stored.
func (a *Agents) storeFeed(ctx context.Context, target pollTarget, feed siteagent.Feed, wasRestored bool) (
	next pollTarget, current bool, err error,
) {
	next, entries := target.advance(&feed, wasRestored)
	reports := []string{}
	for _, e := range entries {
		if e.Machine == nil {
			reports = append([]string{e.At.UTC().Format(time.RFC3339) + " " + e.Text}, reports...)
		}
	}
	health := feed.Health
	err = a.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the health of agents is internal")
		var before *string
		err := tx.QueryRow(ctx, "SELECT CASE WHEN seen_at IS NOT NULL THEN machines_url || ' ' || machines_ipv6_url END FROM site_agent "+
			"WHERE kind = $1 AND id = $2 AND history = $3 AND number = $4 FOR UPDATE", target.Kind, target.ID, target.History, target.Number).
			Scan(&before)
		if current = err == nil; isNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock an agent: %w", err)
		}
		_, err = tx.Exec(
			ctx,
			`
			UPDATE site_agent SET error = NULL, seen_at = now(), version = @version,
				free_bytes = @free_bytes, total_bytes = @total_bytes, started_at = @started_at,
				history = @history, number = @number::bigint, reports = (@reports::text[] || reports)[1:@max_reports],
				machines_url = @machines_url, machines_ipv6_url = @machines_ipv6_url, dhcp = @dhcp, problems = @problems,
				entry_at = @entry_at, skip_until = @skip_until,
				-- An agent that has started waits for its machines to be sent again.
				pushed_at = CASE WHEN started_at IS DISTINCT FROM @started_at THEN '-infinity' ELSE pushed_at END,
				heard_at = CASE WHEN @number::bigint >= @last::bigint THEN now() ELSE heard_at END
			WHERE kind = @kind AND id = @id`,
			pgx.StrictNamedArgs{
				"kind": target.Kind, "id": target.ID, "version": health.Version,
				"free_bytes": health.FreeBytes, "total_bytes": health.TotalBytes, "started_at": health.StartedAt,
				"history": next.History, "number": next.Number, "last": feed.Last,
				"reports": reports, "max_reports": maxReports,
				"machines_url": health.MachinesURL, "machines_ipv6_url": health.MachinesIPv6URL, "dhcp": health.DHCP,
				"problems": health.Problems, "entry_at": next.EntryAt, "skip_until": next.SkipUntil,
			},
		)
		if err != nil {
			return fmt.Errorf("store the health of an agent: %w", err)
		}
		if before == nil || *before != health.MachinesURL+" "+health.MachinesIPv6URL {
			if err := touchInstalls(ctx, tx, target); err != nil {
				return err
			}
		}
		if target.Kind != DHCPServer {
			return nil
		}
		if err := a.ApplyReports(ctx, tx, target.ID, entries); err != nil || next.Number < feed.Last {
			return err
		}
		return a.FreeRevokedSlots(ctx, tx, target.ID, target.AskedAt)
	})
	return next, current, err
}

// touchInstalls raises the revision of the unfinished installs of an agent whose address changed. Their files contain
// the address, so they must be rendered and pushed again.
func touchInstalls(ctx context.Context, tx *pg.Tx, target pollTarget) error {
	column := map[Kind]string{DHCPServer: "dhcp_server_id", FileServer: "file_server_id"}[target.Kind]
	_, err := tx.Exec(ctx, `UPDATE install SET revision = nextval('install_revision')
		WHERE id IN (SELECT id FROM install WHERE `+column+` = $1 AND `+reference.InstallUnfinished+` ORDER BY id FOR UPDATE)`, target.ID)
	if err != nil {
		return fmt.Errorf("raise the revision of installs: %w", err)
	}
	return nil
}

// fetchFeed reads an agent's feed after the last entry that was read. It reads all of it if the agent has a new history, or if its
// folder was restored from a backup or a snapshot: then the feed lacks that entry, or has another one with its number.
func fetchFeed(ctx context.Context, agent *Agent, target pollTarget) (feed siteagent.Feed, wasRestored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	feed, err = agent.GetFeed(ctx, max(target.Number-1, 0))
	if err == nil && target.Number > 0 {
		isSame := feed.History == target.History
		if wasRestored = isSame && !continues(&feed, target); isSame && !wasRestored {
			feed.Entries = slices.DeleteFunc(feed.Entries, func(e siteagent.Entry) bool { return e.Number <= target.Number })
		} else {
			feed, err = agent.GetFeed(ctx, 0)
		}
	}
	return sanitize(feed), wasRestored, err
}

// continues reports whether a feed still has the last entry that was read of it, or has deleted it because it is old.
func continues(feed *siteagent.Feed, target pollTarget) bool {
	if feed.Last < target.Number {
		return false
	}
	if target.EntryAt == nil || len(feed.Entries) == 0 || feed.Entries[0].Number != target.Number {
		return true
	}
	return feed.Entries[0].At.Truncate(time.Microsecond).Equal(*target.EntryAt)
}

// sanitize limits the texts of a feed about the agent itself, because agents are not trusted.
func sanitize(feed siteagent.Feed) siteagent.Feed {
	feed.History = siteagent.Sanitize(feed.History, maxTextLength)
	h := &feed.Health
	for _, text := range []*string{&h.Version, &h.MachinesURL, &h.MachinesIPv6URL} {
		*text = siteagent.Sanitize(*text, maxTextLength)
	}
	if h.DHCP != nil {
		h.DHCP.Mode = siteagent.DHCPMode(siteagent.Sanitize(string(h.DHCP.Mode), maxTextLength))
	}
	problems := make([]string, min(len(h.Problems), maxProblems))
	for i := range problems {
		problems[i] = siteagent.Sanitize(h.Problems[i], maxTextLength)
	}
	h.Problems = problems
	for i := range feed.Entries {
		feed.Entries[i].Text = siteagent.Sanitize(feed.Entries[i].Text, maxTextLength)
	}
	return feed
}
