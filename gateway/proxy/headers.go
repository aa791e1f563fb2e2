package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// ForwardedHeaders are the headers of a caller's request that a service receives. Services read no others.
var ForwardedHeaders = []string{"Accept", "Content-Type", "Idempotency-Key",
	"If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Event-Id", "Range", "User-Agent",
	"Tus-Resumable", "Upload-Length", "Upload-Metadata", "Upload-Offset"} // of uploads in several requests

// copyResponseHeaders copies the headers of a service's response that the caller receives.
func copyResponseHeaders(from, to http.Header) {
	connectionHeaders := parseConnectionHeader(from)
	for name, values := range from {
		if !isHopByHop(name) && !slices.Contains(connectionHeaders, name) {
			to[name] = values
		}
	}
}

// isHopByHop reports whether a header concerns one connection only (RFC 9110, 7.6.1).
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

// parseConnectionHeader returns the headers that a message's Connection header declares as hop-by-hop.
func parseConnectionHeader(h http.Header) (names []string) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	return names
}
