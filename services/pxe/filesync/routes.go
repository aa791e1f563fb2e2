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
	IsWrapped *bool `json:"isWrapped" required:"create" example:"true" doc:"means nothing, and has to be there"`
}

type fileSync struct {
	FileServer int64 `path:"file_server_id"`
	Body       rest.Body[syncBody]
}

type fileSyncOf struct {
	FileServer int64 `path:"file_server_id"`
}

// asked is what the log says of a request to fill file servers.
type asked struct {
	FileServers int `json:"file_servers"`
}

// Routes returns the documented routes.
func (s *Syncs) Routes() []rest.Route {
	const path = "/pxe/file/{file_server_id}/child/sync"
	has := guard.Has(permission.PXESettings)
	return []rest.Route{
		rest.Mutation[fileSync, rest.Message]{
			Method:  http.MethodPost,
			Path:    path,
			Guard:   has,
			Name:    "syncFileServerChildren",
			Summary: "Have all children of a file server, and theirs, hold what it holds",
			Doc: "The files of a file server without parent are first made those of the store, but for its folder local. It goes on after the " +
				"answer: GET says how far it is. Asked for again while it goes on, " +
				"it looks at all files once more. See docs/do/site-agent.md.",
			Effect: rest.Effect{Logs: rest.LogsSummary, Retry: rest.RetryRepeats},
			Do: func(ctx context.Context, tx *pg.Tx, req fileSync) (rest.Message, error) {
				if _, err := req.Body.New(); err != nil {
					return rest.Message{}, err
				}
				return s.syncFiles(ctx, tx, req.FileServer)
			},
		},
		rest.Read[fileSyncOf, FileSync]{
			Path:      path,
			Guard:     has,
			Extension: true,
			Name:      "getFileServerSync",
			Summary:   "View how far the children of a file server are",
			Do: func(ctx context.Context, req fileSyncOf) (FileSync, error) {
				return s.View(ctx, req.FileServer)
			},
		},
	}
}

func (s *Syncs) syncFiles(ctx context.Context, tx *pg.Tx, id int64) (rest.Message, error) {
	target := pg.Target{Type: "pxe/file", Noun: "file server", ID: id}
	if err := tx.QueryRow(ctx, "SELECT name, version FROM file_server WHERE id = $1 FOR SHARE", id).
		Scan(&target.Name, &target.Version); err != nil {
		return rest.Message{}, err
	}
	filled, err := s.Ask(ctx, tx, id)
	if err != nil {
		return rest.Message{}, err
	}
	tx.Record(pg.Record{Kind: "pxe.file", Action: "synced", Targets: []pg.Target{target}, After: asked{filled}})
	switch filled {
	case 0:
		return rest.Message{Message: fmt.Sprintf("File server %d has no children.", id)}, nil
	case 1:
		return rest.Message{Message: fmt.Sprintf("The sync of file server %d has begun: one is filled.", id)}, nil
	}
	return rest.Message{Message: fmt.Sprintf("The sync of file server %d has begun: %d are filled.", id, filled)}, nil
}
