package filesync

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/rest"
)

// FileSync is how far it is that file servers hold what another one holds.
type FileSync struct {
	Status   string           `json:"status" enum:"none,running,done,partial,failed" doc:"partial: some are done, and others failed; none: it was never asked for"`
	Children []FileServerSync `json:"children" doc:"those below it, each behind its parent; the first is the one itself where it has no parent, and is filled from the store"`
}

// FileServerSync is how far one of them is.
type FileServerSync struct {
	FileServer rest.Ref        `json:"file_server" db:"file_server_"`
	Parent     *rest.Ref       `json:"parent,omitempty" db:"parent_" doc:"whose files it gets; left out where these are the store's"`
	Status     string          `json:"status" db:"status" enum:"none,waiting,running,retrying,done,failed" doc:"waiting: for its parent, or for others of its parent; retrying: the last attempt failed, and another one follows"`
	Attempt    int32           `json:"attempt" db:"attempt" doc:"how often it was tried"`
	Files      int64           `json:"files" db:"files" doc:"which are as they are to be"`
	FilesTotal int64           `json:"files_total" db:"files_total"`
	Bytes      int64           `json:"bytes" db:"bytes"`
	BytesTotal int64           `json:"bytes_total" db:"bytes_total"`
	Error      *string         `json:"error,omitempty" db:"error" doc:"why the last attempt failed"`
	AskedAt    *rest.Timestamp `json:"asked_at,omitempty" db:"asked_at"`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty" db:"started_at"`
	FinishedAt *rest.Timestamp `json:"finished_at,omitempty" db:"finished_at"`
}

// mostShown is how many file servers are shown at most.
const mostShown = 10_000

// View is how far those are that Ask fills; pgx.ErrNoRows: there is no such file server.
func (s *Syncs) View(ctx context.Context, id int64) (is FileSync, err error) {
	var there bool
	if err := s.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM file_server WHERE id = $1)", id).Scan(&there); err != nil {
		return is, fmt.Errorf("read file server %d: %w", id, err)
	}
	if !there {
		return is, pgx.ErrNoRows
	}
	rows, err := s.DB.Query(ctx, below+`SELECT f.id, f.name, p.id, p.name, coalesce(s.status, 'none'), coalesce(s.attempt, 0),
			coalesce(s.files, 0), coalesce(s.files_total, 0), coalesce(s.bytes, 0), coalesce(s.bytes_total, 0), s.error, s.asked_at, s.started_at, s.finished_at, `+busy+`
		FROM filled JOIN file_server f USING (id) LEFT JOIN file_server p ON p.id = f.parent_id LEFT JOIN file_sync s ON s.server_id = f.id
		ORDER BY filled.depth, f.id LIMIT $2`, id, mostShown)
	if err != nil {
		return is, fmt.Errorf("read how far file servers are: %w", err)
	}
	goesOn := map[int64]bool{}
	is.Children, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c FileServerSync, err error) {
		var parent *int64
		var name *string
		var busy bool
		err = row.Scan(
			&c.FileServer.ID,
			&c.FileServer.Name,
			&parent,
			&name,
			&c.Status,
			&c.Attempt,
			&c.Files,
			&c.FilesTotal,
			&c.Bytes,
			&c.BytesTotal,
			&c.Error,
			&c.AskedAt,
			&c.StartedAt,
			&c.FinishedAt,
			&busy,
		)
		under := c.Status == "waiting" || c.Status == "running" || c.Status == "retrying"
		if goesOn[c.FileServer.ID] = under && (busy || parent != nil && goesOn[*parent]); under && !goesOn[c.FileServer.ID] {
			c.Status = "failed" // its job was cancelled while nobody did it
			if c.Error == nil {
				c.Error = &cancelled
			}
		}
		if parent != nil {
			c.Parent = &rest.Ref{ID: *parent, Name: *name}
		}
		return c, err
	})
	if err != nil {
		return is, fmt.Errorf("read how far file servers are: %w", err)
	}
	is.Status = together(is.Children)
	return is, nil
}

var cancelled = "it was cancelled"

func together(all []FileServerSync) string {
	count := map[string]int{}
	for _, one := range all {
		count[one.Status]++
	}
	switch {
	case count["waiting"]+count["running"]+count["retrying"] > 0:
		return "running"
	case count["failed"] > 0 && count["done"] > 0:
		return "partial"
	case count["failed"] > 0:
		return "failed"
	case count["done"] > 0:
		return "done"
	}
	return "none"
}
