package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// ForwardedHeaders are the headers of a caller that a service gets, and all that it reads.
var ForwardedHeaders = []string{"Accept", "Content-Type", "Idempotency-Key",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range", "User-Agent",
	"Tus-Resumable", "Upload-Length", "Upload-Metadata", "Upload-Offset"} // as uploads in several requests have them

// copyResponseHeaders copies the headers of a service that a caller gets.
func copyResponseHeaders(from, to http.Header) {
	connectionHeaders := parseConnectionHeader(from)
	for name, values := range from {
		if !isHopByHop(name) && !slices.Contains(connectionHeaders, name) {
			to[name] = values
		}
	}
}

// isHopByHop tells whether a header is about one connection alone (RFC 9110, 7.6.1).
func isHopByHop(name string) bool {
	switch name {
	case "Connection",
		"Keep-Alive",
		"Proxy-Authenticate",
		"Proxy-Authorization",
		"Proxy-Connection",
		"Te",
		"Trailer",
		"Transfer-Encoding",
		"Upgrade":
		return true
	}
	return false
}

// parseConnectionHeader are the headers that a message itself says are about this connection alone.
func parseConnectionHeader(h http.Header) (names []string) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	return names
}
