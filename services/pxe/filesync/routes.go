package filesync

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

type syncBody struct {
	IsWrapped *bool `json:"isWrapped" required:"create" example:"true" doc:"Has no effect, but is required."`
}

type syncRequest struct {
	FileServer int64 `path:"file_server_id"`
	Body       rest.Body[syncBody]
}

type viewRequest struct {
	FileServer int64 `path:"file_server_id"`
}

// syncRecord is what the audit log has of a request to fill file servers.
type syncRecord struct {
	FileServers int `json:"file_servers"`
}

// Routes returns the documented routes.
func (s *Syncs) Routes() []rest.Route {
	const path = "/pxe/file/{file_server_id}/child/sync"
	has := guard.Has(permission.PXESettings)
	return []rest.Route{
		rest.Mutation[syncRequest, rest.Message]{
			Method:  http.MethodPost,
			Path:    path,
			Guard:   has,
			Name:    "syncFileServerChildren",
			Summary: "Sync the descendants of a file server with it",
			Doc: "A file server without a parent is first filled from the store, except its folder local. The sync continues after the " +
				"response: GET returns its progress. A request during a sync makes it compare all files once more. " +
				"See docs/do/site-agent.md.",
			Effect: rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Do: func(ctx context.Context, tx *pg.Tx, req syncRequest) (rest.Message, error) {
				if _, err := req.Body.New(); err != nil {
					return rest.Message{}, err
				}
				return s.syncFiles(ctx, tx, req.FileServer)
			},
		},
		rest.Read[viewRequest, FileSync]{
			Path:      path,
			Guard:     has,
			Extension: true,
			Name:      "getFileServerSync",
			Summary:   "View the sync of a file server's descendants",
			Do: func(ctx context.Context, req viewRequest) (FileSync, error) {
				return s.View(ctx, req.FileServer)
			},
		},
	}
}

// syncFiles requests a sync and records that.
func (s *Syncs) syncFiles(ctx context.Context, tx *pg.Tx, id int64) (rest.Message, error) {
	target := pg.Target{Type: "pxe/file", Noun: "file server", ID: id}
	if err := tx.QueryRow(ctx, "SELECT name, version FROM file_server WHERE id = $1 FOR SHARE", id).
		Scan(&target.Name, &target.Version); err != nil {
		return rest.Message{}, err
	}
	filled, err := s.Request(ctx, tx, id)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Record(pg.Record{Kind: "pxe.file", Action: "synced", Targets: []pg.Target{target}, After: syncRecord{filled}})
	switch filled {
	case 0:
		return rest.Message{Message: fmt.Sprintf("File server %d has no children.", id)}, nil
	case 1:
		return rest.Message{Message: fmt.Sprintf("The sync of file server %d has started. It fills 1 file server.", id)}, nil
	}
	return rest.Message{Message: fmt.Sprintf("The sync of file server %d has started. It fills %d file servers.", id, filled)}, nil
}
