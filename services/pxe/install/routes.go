package install

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

type (
	listRequest struct {
		MAC string `query:"mac" max:"50" doc:"Only the installs of the machine with this MAC address."`
	}
	itemRequest struct {
		ID int64 `path:"*"`
	}
	retryRequest struct {
		ID    int64  `path:"*"`
		Force string `query:"force" max:"500" doc:"The codes of reasons to pass over, separated by commas."`
		Body  rest.Body[retryBody]

		email   *string        // the present address of the client
		reasons problem.Fields // why the install cannot work
		passed  []string       // the codes of reasons that the caller passes over
	}
	retryBody struct {
		Password secret.String `json:"password" max:"1024" transient:"true" doc:"The password of root, or of Administrator on Windows. The earlier one was deleted when the install ended. The default is a random password."`
	}
)

// visibleInstalls returns the condition for the installs that the caller sees: a client sees its own or, with the filter client, those
// of a client that it reaches whole.
func (s *Installs) visibleInstalls(ctx context.Context, asked url.Values) ([]pg.Condition, error) {
	client := principal.FromContext(ctx).Client()
	if client == 0 {
		return nil, nil
	}
	named, _ := strconv.ParseInt(asked.Get("client"), 10, 64)
	isVisible, err := credentials.IsVisible(ctx, s.Peers, client, named)
	if isVisible {
		client = named
	}
	return []pg.Condition{{SQL: "client_id = $1", Args: []any{client}}}, err
}

// view returns an install. A client sees it without variables and requests.
func (s *Installs) view(ctx context.Context, req itemRequest) (Install, error) {
	found, err := View.Get(ctx, s.DB, req.ID)
	if err != nil || principal.FromContext(ctx).Client() == 0 {
		return found, err
	}
	asked := url.Values{}
	if found.Client != nil {
		asked.Set("client", strconv.FormatInt(found.Client.ID, 10))
	}
	where, err := s.visibleInstalls(ctx, asked)
	if err == nil {
		found, err = View.Get(ctx, s.DB, req.ID, where...)
	}
	return Install{ListedInstall: found.ListedInstall}, err
}

const (
	installsPath = "/pxe/install"
	installPath  = installsPath + "/{install_id}"
)

// Routes returns the documented routes.
func (s *Installs) Routes() []rest.Route {
	return slices.Concat(s.changeRoutes(), s.viewRoutes(), s.transitionRoutes(), []rest.Route{s.reinstall(), s.preview()})
}

// changeRoutes returns the routes that create and delete installs.
func (s *Installs) changeRoutes() []rest.Route {
	create := rest.Mutation[createRequest, Install]{
		Method:    http.MethodPost,
		Path:      installsPath,
		Guard:     guard.Has(permission.PXEInstalls),
		Name:      "createInstall",
		Summary:   "Create an install",
		Doc:       createDoc,
		Extension: true,
		Effect:    rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
		Prepare:   s.prepareCreate,
		Do:        s.create,
	}
	return append(rest.Resource[Install, installBody]{
		Path:       installsPath,
		ID:         "install_id",
		Noun:       "install",
		Guard:      guard.Has(permission.PXEInstalls),
		Retry:      rest.RetryRefused,
		Without:    rest.Listing | rest.Creating | rest.Viewing | rest.Editing,
		Extensions: rest.Deleting,
		Table:      "install",
		View:       "install_view",
		Box:        s.Box,
		Delete:     s.deleteInstall,
		Related:    func(i *Install) []pg.Target { return relatedTargets(&i.ListedInstall) },
	}.Routes(), create)
}

const createDoc = "An install that cannot work is refused with status 422 and all reasons. The code of each says which: " +
	"agent_unreachable: an agent of the site never answered, or not for 5 minutes. agent_failing: the last report of an agent says " +
	"that it cannot work. no_dhcp: the agent serves no DHCP in the machine's network. no_bootloader: the agent lacks a file for the " +
	"firmware. file_missing: a file of the boot script is missing. no_login: nobody could sign in to the machine. " +
	"variable_missing: a template uses a variable without a default. client_mismatch: the IP entity is not assigned to the client. " +
	"The parameter force passes over all of these except client_mismatch."

// viewRoutes returns the routes that list and show installs, also for clients.
func (s *Installs) viewRoutes() []rest.Route {
	orOwn := guard.HasOrClient(permission.PXEInstalls)
	return []rest.Route{rest.List[listRequest, ListedInstall]{
		Path:      installsPath,
		Guard:     orOwn,
		Name:      "listInstalls",
		Summary:   "List installs",
		Doc:       "A client sees its own installs or, with client, those of a sub client that it reaches whole.",
		Extension: true,
		View:      "install_view",
		Where: func(ctx context.Context, req listRequest) ([]pg.Condition, error) {
			if req.MAC == "" {
				return nil, nil
			}
			var invalid problem.Fields
			macs := script.ParseMACs(&invalid, "?mac", req.MAC)
			if len(invalid) > 0 {
				refused := problem.New(problem.BadRequest, "The query is invalid: mac %s.", invalid[0].Message)
				refused.Fields = invalid
				return nil, refused
			}
			return []pg.Condition{{SQL: "id IN (SELECT install_id FROM install_mac WHERE mac = ANY ($1))", Args: []any{macs}}}, nil
		},
		Options: rest.ListOptions{Search: rest.SearchIn("search"), Narrow: s.visibleInstalls,
			Sorts:   map[string]string{"name": "name", "created_at": "created_at"},
			Filters: map[string]string{"status": "status", "profile": "profile_id", "client": "client_id", "dhcp_server": "dhcp_server_id"}},
	}, rest.Read[itemRequest, Install]{
		Path:      installPath,
		Guard:     orOwn,
		Name:      "getInstall",
		Summary:   "View an install",
		Doc:       "A client sees its own installs and those of sub clients that it reaches whole, without variables and requests.",
		Extension: true,
		Do:        s.view,
	}}
}

// transitionRoutes returns the routes that cancel and retry installs.
func (s *Installs) transitionRoutes() []rest.Route {
	has := guard.Has(permission.PXEInstalls)
	return []rest.Route{
		rest.Mutation[itemRequest, Install]{
			Method: http.MethodPost, Path: installPath + "/cancel", Guard: has, Name: "cancelInstall", Summary: "Cancel an install", Extension: true,
			Doc:    "The machine may still run what it has already received. It gets nothing more, and boots its disk from then on.",
			Effect: rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
			Do: func(ctx context.Context, tx *pg.Tx, req itemRequest) (Install, error) {
				return s.cancel(ctx, tx, req.ID)
			},
		},
		rest.Mutation[retryRequest, Install]{
			Method:    http.MethodPost,
			Path:      installPath + "/retry",
			Guard:     has,
			Name:      "retryInstall",
			Summary:   "Retry an install",
			Extension: true,
			Doc: "Starts an install that has ended again, with its original request and the present profile. The machine has to boot " +
				"from the network again. A retry that cannot work is refused as POST /pxe/install is.",
			Effect:  rest.Effect{Logs: rest.LogsItem, Retry: rest.RetryRefused, ViewPath: installPath},
			Example: `{}`,
			Prepare: s.prepareRetry,
			Do:      s.retryInstall,
		},
	}
}
