package filesync

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/rest"
)

// FileSync is the progress of a sync.
type FileSync struct {
	Status   string           `json:"status" enum:"none,running,done,partial,failed" doc:"none: a sync was never requested. partial: some file servers are done, and others failed."`
	Children []FileServerSync `json:"children" doc:"The descendants of the file server, each after its parent. If the file server has no parent, it is the first itself: it is filled from the store."`
}

// FileServerSync is the progress of one file server.
type FileServerSync struct {
	FileServer rest.Ref        `json:"file_server" db:"file_server_" doc:"The file server."`
	Parent     *rest.Ref       `json:"parent,omitempty" db:"parent_" doc:"The file server that this one gets its files from. Left out if it gets them from the store."`
	Status     string          `json:"status" db:"status" enum:"none,waiting,running,retrying,done,failed" doc:"waiting: for its parent, or for other children of the parent. retrying: the last attempt failed, and another follows."`
	Attempt    int32           `json:"attempt" db:"attempt" doc:"The number of attempts."`
	Files      int64           `json:"files" db:"files" doc:"How many files are complete."`
	FilesTotal int64           `json:"files_total" db:"files_total" doc:"How many files the file server must hold."`
	Bytes      int64           `json:"bytes" db:"bytes" doc:"How many bytes are transferred."`
	BytesTotal int64           `json:"bytes_total" db:"bytes_total" doc:"The size of all files in bytes."`
	Error      *string         `json:"error,omitempty" db:"error" doc:"Why the last attempt failed."`
	AskedAt    *rest.Timestamp `json:"asked_at,omitempty" db:"asked_at" doc:"When the sync was last requested."`
	StartedAt  *rest.Timestamp `json:"started_at,omitempty" db:"started_at" doc:"When the sync started."`
	FinishedAt *rest.Timestamp `json:"finished_at,omitempty" db:"finished_at"`
}

// maxShown is how many file servers a view contains.
const maxShown = 10_000

// View returns the progress of the file servers that Request fills. It fails with pgx.ErrNoRows if the file server does
// not exist.
func (s *Syncs) View(ctx context.Context, id int64) (is FileSync, err error) {
	var exists bool
	if err := s.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM file_server WHERE id = $1)", id).Scan(&exists); err != nil {
		return is, fmt.Errorf("read file server %d: %w", id, err)
	}
	if !exists {
		return is, pgx.ErrNoRows
	}
	rows, err := s.DB.Query(ctx, filledSQL+`SELECT f.id, f.name, p.id, p.name, coalesce(s.status, 'none'), coalesce(s.attempt, 0),
			coalesce(s.files, 0), coalesce(s.files_total, 0), coalesce(s.bytes, 0), coalesce(s.bytes_total, 0), s.error, s.asked_at, s.started_at, s.finished_at, `+hasJobSQL+`
		FROM filled JOIN file_server f USING (id) LEFT JOIN file_server p ON p.id = f.parent_id LEFT JOIN file_sync s ON s.server_id = f.id
		ORDER BY filled.depth, f.id LIMIT $2`, id, maxShown)
	if err != nil {
		return is, fmt.Errorf("read the progress of file servers: %w", err)
	}
	isActive := map[int64]bool{}
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
		if isActive[c.FileServer.ID] = under && (busy || parent != nil && isActive[*parent]); under && !isActive[c.FileServer.ID] {
			c.Status = "failed" // the job was cancelled while no process worked on it
			if c.Error == nil {
				c.Error = &cancelledReason
			}
		}
		if parent != nil {
			c.Parent = &rest.Ref{ID: *parent, Name: *name}
		}
		return c, err
	})
	if err != nil {
		return is, fmt.Errorf("read the progress of file servers: %w", err)
	}
	is.Status = combineStatuses(is.Children)
	return is, nil
}

// cancelledReason is the error of a sync whose job was cancelled.
var cancelledReason = "the sync was cancelled"

// combineStatuses returns the status of a sync by those of its file servers.
func combineStatuses(all []FileServerSync) string {
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
