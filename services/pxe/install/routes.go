package install

import (
	"context"
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

type (
	installsAsked struct {
		MAC string `query:"mac" max:"50" doc:"one of the machine's MAC addresses"`
	}
	installAsked struct {
		ID int64 `path:"*"`
	}
	installToRetry struct {
		ID   int64 `path:"*"`
		Body rest.Body[retryBody]

		email *string // of its client, as it is now
	}
	retryBody struct {
		Password secret.String `json:"password" max:"1024" transient:"true" doc:"as where it is created: the one of before is gone"`
	}
)

// ownInstalls is the condition of the installs that the caller sees: a client sees its own.
func ownInstalls(ctx context.Context) []pg.Condition {
	client := principal.From(ctx).Client()
	if client == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "client_id = $1", Args: []any{client}}}
}

const (
	installsPath = "/pxe/install"
	installPath  = installsPath + "/{install_id}"
)

// Routes returns the documented routes.
func (s *Installs) Routes() []rest.Route {
	return slices.Concat(s.changes(), s.views(), s.transitions())
}

// changes create and delete installs.
func (s *Installs) changes() []rest.Route {
	of := table.New[installBody]("install", "install_view", s.Box)
	return rest.Resource[Install, installBody]{
		Path:       installsPath,
		ID:         "install_id",
		Noun:       "install",
		Guard:      guard.Has(permission.PXEInstalls),
		Retry:      rest.RetryRefused,
		Without:    rest.Listing | rest.Viewing | rest.Editing,
		Extensions: rest.Creating | rest.Deleting,
		Table:      "install",
		View:       "install_view",
		Box:        s.Box,
		Prepare:    s.prepareInstall,
		Lock: func(ctx context.Context, tx *pg.Tx, rows ...*installBody) error {
			return lockMachines(ctx, tx, rows...)
		},
		Check: func(ctx context.Context, tx *pg.Tx, _ int64, _, b *installBody) error {
			return s.checkInstall(ctx, tx, b)
		},
		Insert: func(ctx context.Context, tx *pg.Tx, b *installBody) (int64, error) {
			id, err := of.Insert(ctx, tx, b)
			if err != nil {
				return 0, err
			}
			return id, s.beginInstall(ctx, tx, id, b)
		},
		Delete:  s.deleteInstall,
		Related: func(i *Install) []pg.Target { return About(&i.ListedInstall) },
	}.Routes()
}

// views list and show installs, also to clients.
func (s *Installs) views() []rest.Route {
	orOwn := guard.HasOrClient(permission.PXEInstalls)
	return []rest.Route{rest.List[installsAsked, ListedInstall]{
		Path:      installsPath,
		Guard:     orOwn,
		Name:      "listInstalls",
		Summary:   "List installs",
		Doc:       "A client sees its own.",
		Extension: true,
		View:      "install_view",
		Where: func(ctx context.Context, req installsAsked) ([]pg.Condition, error) {
			where := ownInstalls(ctx)
			if req.MAC == "" {
				return where, nil
			}
			var invalid problem.Fields
			macs := script.ParseMACs(&invalid, "?mac", req.MAC)
			if len(invalid) > 0 {
				refused := problem.New(problem.BadRequest, "The query is wrong.")
				refused.Fields = invalid
				return nil, refused
			}
			return append(where, pg.Condition{SQL: "id IN (SELECT install_id FROM install_mac WHERE mac = ANY ($1))", Args: []any{macs}}), nil
		},
		Options: rest.ListOptions{Search: rest.SearchIn("search"), Sorts: map[string]string{"name": "name", "created_at": "created_at"},
			Filters: map[string]string{"status": "status", "profile": "profile_id", "client": "client_id", "dhcp_server": "dhcp_server_id"}},
	}, rest.Read[installAsked, Install]{
		Path:      installPath,
		Guard:     orOwn,
		Name:      "getInstall",
		Summary:   "View an install",
		Doc:       "A client sees of its own what lists have.",
		Extension: true,
		Do: func(ctx context.Context, req installAsked) (Install, error) {
			found, err := View.Get(ctx, s.DB, req.ID, ownInstalls(ctx)...)
			if principal.From(ctx).Client() != 0 {
				found = Install{ListedInstall: found.ListedInstall}
			}
			return found, err
		},
	}}
}

// transitions cancel and retry installs.
func (s *Installs) transitions() []rest.Route {
	has := guard.Has(permission.PXEInstalls)
	return []rest.Route{
		rest.Mutation[installAsked, Install]{
			Method: http.MethodPost, Path: installPath + "/cancel", Guard: has, Name: "cancelInstall", Summary: "Cancel an install", Extension: true,
			Doc:    "What the machine was given so far it may still run; it gets nothing more, and boots its disk from then on.",
			Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
			Do: func(ctx context.Context, tx *pg.Tx, req installAsked) (Install, error) {
				return s.cancel(ctx, tx, req.ID)
			},
		},
		rest.Mutation[installToRetry, Install]{
			Method:    http.MethodPost,
			Path:      installPath + "/retry",
			Guard:     has,
			Name:      "retryInstall",
			Summary:   "Install a machine once more",
			Extension: true,
			Doc: "Of an install that has ended: all is as it was asked for then, and the profile as it is now. The machine has to boot " +
				"from the network again.",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
			Example: `{}`,
			Prepare: s.prepareRetry,
			Do:      s.retryInstall,
		},
	}
}
