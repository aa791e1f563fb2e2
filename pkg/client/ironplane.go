// Package ironplane calls Ironplane's API. `make clients` generates all but this file from the API document.
//
//	api, err := ironplane.New("http://127.0.0.1:8080", key)
//	groups, err := api.ListIPGroupsWithResponse(ctx, nil)
package ironplane

import (
	"context"
	"net/http"
)

// New makes a client that calls the API at a URL with an API key.
func New(url, key string, options ...ClientOption) (*ClientWithResponses, error) {
	return NewClientWithResponses(url, append(options, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))...)
}
