package importer

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/ironplane/ironplane/pkg/client"
)

// requestTimeout is how long a request that changes something may take.
const requestTimeout = 40 * time.Second

// perPage is how many items of a list are read at a time.
const perPage = 1000

// newClient returns a client of the API at base, with a connection for each worker.
func newClient(base string, key string) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = workers
	return client.New(base, client.WithKey(key), client.WithTransport(finisher{transport}), client.WithRetries(10),
		client.WithIdleTimeout(requestTimeout))
}

// finisher lets requests that change something finish when their context ends, since only the response says whether the change
// was made. The end of the context still ends waiting for a retry.
type finisher struct{ http.RoundTripper }

func (f finisher) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return f.RoundTripper.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout)
	response, err := f.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &finishedBody{response.Body, cancel}
	return response, nil
}

type finishedBody struct {
	io.ReadCloser
	cancel func()
}

func (b *finishedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// code returns the code of the first invalid member, or the title. The report counts by it.
func code(e *client.Error) string {
	if len(e.Fields) > 0 {
		return e.Fields[0].Code
	}
	return e.Title
}
