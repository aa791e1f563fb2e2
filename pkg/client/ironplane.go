// Package ironplane is a client of Ironplane's API. `make go-client` generates all other files from the API document.
//
//	api, err := ironplane.New("http://127.0.0.1:8080", key)
//	groups, err := api.ListIPGroupsWithResponse(ctx, nil)
package ironplane

import (
	"context"
	"net/http"
)

// New returns a client for the API at a URL that sends an API key with each request.
func New(url, key string, options ...ClientOption) (*ClientWithResponses, error) {
	return NewClientWithResponses(url, append(options, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))...)
}
