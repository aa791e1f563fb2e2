package system

import (
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system/stream"
)

// eventRoutes returns the route of the event stream.
func (s *Service) eventRoutes() []rest.Route {
	return []rest.Route{
		rest.Raw[rest.None]{
			Method:    http.MethodGet,
			Path:      "/event",
			Guard:     guard.NotClient,
			Extension: true,
			Name:      "streamEvents",
			Summary:   "Follow changes as they are made",
			Doc: "Server-sent events. Each has the id of its log item, and as data the type, the timestamp, the targets, the user and the " +
				"request_id of a change. A caller gets the events whose kinds it may read, as for webhooks. With the header " +
				"Last-Event-ID the caller gets what it has missed; if that is too much, it gets the event reset, and loads what it shows again. " +
				"A key has one stream: another one ends the first. Clients have none.",
			Returns:       []string{stream.MediaType},
			ErrorStatuses: []int{http.StatusBadRequest, http.StatusNotAcceptable},
			Do: func(ctx context.Context, c *rest.RawCall, _ rest.None) error {
				return s.stream.Serve(ctx, c)
			},
		},
	}
}

// pushEvents returns the task that passes new log items on to the open streams.
func (s *Service) pushEvents(woken <-chan struct{}) service.Task {
	return service.Task{Name: "push-events", Run: func(ctx context.Context) error { return s.stream.Run(ctx, woken) }}
}
