package gateway

import (
	"net/http"
	"slices"

	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/problem"
)

// maxHeadBytes bounds what of a request's head is handed to a service, in bytes: well below what its HTTP server takes
// (process.Serve), since who is calling comes on top.
const maxHeadBytes = 24 << 10

// trimHead leaves of a head what services read, whether or not they are in this process: what their HTTP servers would
// refuse never reaches them.
func trimHead(r *http.Request, service string) error {
	for name := range r.Header {
		if name != "Expect" && !slices.Contains(proxy.ForwardedHeaders, name) { // Expect is for the body, and goes no further
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
		return problem.New(http.StatusRequestHeaderFieldsTooLarge, "Path, query and headers are longer than %d bytes.", maxHeadBytes)
	}
	return nil
}
