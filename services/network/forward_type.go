package network

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// ForwardType is a way of forwarding. The migrations create them; callers cannot.
type ForwardType struct {
	rest.Versioned
	ID   int64  `json:"id" db:"id"`
	Name string `json:"name" db:"name"`
	Slug string `json:"slug" db:"slug"`
}

var forwardTypeView = pg.NewView[ForwardType]("forward_type")

func (s *Service) forwardTypes() []rest.Route {
	return []rest.Route{
		rest.List[rest.None, ForwardType]{
			Path:    "/forward/type",
			Guard:   guard.Has(permission.NetworkForward),
			Name:    "listForwardingTypes",
			Summary: "List forwarding types",
			View:    "forward_type",
			Options: rest.ListOptions{Search: rest.SearchIn("search"), Filters: map[string]string{"slug": "slug"}},
		},
		rest.Read[rest.Item, ForwardType]{
			Path:    "/forward/type/{type_id}",
			Guard:   guard.Has(permission.NetworkForward),
			Name:    "getForwardingType",
			Summary: "View a forwarding type",
			Do: func(ctx context.Context, req rest.Item) (ForwardType, error) {
				return forwardTypeView.Get(ctx, s.db, req.ID)
			},
		},
	}
}
