package gateway

import (
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/problem"
)

// maxHeadBytes bounds the part of a request's head that is forwarded to a service, in bytes. It is well below what the service's
// HTTP server accepts (process.Serve), because the gateway adds the call.
const maxHeadBytes = 24 << 10

// trimHead removes the headers that services do not read, whether or not the service is in this process. It returns an error for a
// head that the service's HTTP server would refuse.
func trimHead(r *http.Request, service string) error {
	for name := range r.Header {
		if name != "Expect" && !slices.Contains(proxy.ForwardedHeaders, name) { // the gateway needs Expect to read the body
			delete(r.Header, name)
		}
	}
	r.Host = service
	size := len(r.URL.EscapedPath()) + len(r.URL.RawQuery)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	if size > maxHeadBytes {
		return problem.New(
			http.StatusRequestHeaderFieldsTooLarge,
			"Path, query and headers together are longer than %d bytes. Shorten them.",
			maxHeadBytes,
		)
	}
	return nil
}
