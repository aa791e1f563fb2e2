package identity

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
)

// BrowserDetails is what the server knows about the caller's connection.
type BrowserDetails struct {
	IP string `json:"ip" doc:"The address that the request came from."`
}

func browserRoutes() []rest.Route {
	return []rest.Route{rest.Read[rest.None, BrowserDetails]{
		Name:    "getBrowserDetails",
		Path:    "/browser-details",
		Guard:   guard.Public,
		Summary: "View the caller's own address",
		Do: func(ctx context.Context, _ rest.None) (BrowserDetails, error) {
			return BrowserDetails{principal.FromContext(ctx).IP.String()}, nil
		},
	}}
}
