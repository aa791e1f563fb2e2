package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/tracing"
)

// forwardable calls write with the headers of a caller that a service gets.
func forwardable(from http.Header, write func(name, value string)) {
	named := connectionNames(from)
	for name, values := range from {
		if hopByHop(name) || ours(name) || slices.Contains(named, name) {
			continue
		}
		for _, value := range values {
			write(name, value)
		}
	}
}

// backwardable copies the headers of a service that a caller gets.
func backwardable(from, to http.Header) {
	named := connectionNames(from)
	for name, values := range from {
		if !hopByHop(name) && !slices.Contains(named, name) {
			to[name] = values
		}
	}
}

// hopByHop tells whether a header is about one connection alone (RFC 9110, 7.6.1).
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// connectionNames are the headers that a message itself says are about this connection alone.
func connectionNames(h http.Header) (names []string) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name)))
		}
	}
	return names
}

// ours tells whether a caller's header says what only we say to a service: how the body is sent, who is calling,
// and which trace it belongs to.
func ours(name string) bool {
	switch name {
	case "Content-Length", "Expect", "Forwarded", "X-Real-Ip", "X-Request-Id":
		return true
	}
	return tracing.Told(name) || strings.HasPrefix(name, "Ironplane-") || strings.HasPrefix(name, "X-Forwarded-")
}
