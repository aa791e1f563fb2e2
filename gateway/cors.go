package gateway

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/rs/cors"
)

// Origins are the origins of web pages whose scripts may call the API, such as https://panel.example.com.
type Origins []string

// UnmarshalText parses a comma-separated list of origins. Each must be written exactly as browsers send it, because any other text
// would never match.
func (o *Origins) UnmarshalText(text []byte) error {
	*o = nil
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if !isOrigin(part) {
			return fmt.Errorf(
				"%q is no origin as browsers write it: https://panel.example.com, https://panel.example.com:8443 or http://localhost:3000, in lower "+
					"case and without a path",
				part,
			)
		}
		*o = append(*o, part)
	}
	return nil
}

func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || text != u.Scheme+"://"+u.Host || strings.HasSuffix(text, ":") {
		return false
	}
	host, port := u.Hostname(), u.Port()
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-:") != "" || port != "" && strings.TrimLeft(port, "0") != port {
		return false
	}
	switch u.Scheme {
	case "https":
		return port != "443"
	case "http":
		address, err := netip.ParseAddr(host)
		return port != "80" && (host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && address.IsLoopback())
	default:
		return false
	}
}

// preflightTTL is how long a browser caches the response to a preflight. It is the longest time that browsers accept.
const preflightTTL = 2 * time.Hour

// newCORS returns the handler of preflight requests. Keys travel in headers that scripts set, never in cookies, so credentials are
// not allowed.
func newCORS(origins Origins) *cors.Cors {
	if len(origins) == 0 {
		return nil
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{
			"Authorization",
			"X-Api-Key",
			"Content-Type",
			"Content-Encoding",
			"If-Match",
			"If-None-Match",
			"Idempotency-Key",
			"Last-Event-ID",
			"Range",
			"X-Request-Id",
			"Tus-Resumable",
			"Upload-Length",
			"Upload-Metadata",
			"Upload-Offset",
		},
		ExposedHeaders: []string{"API-Version", "ETag", "Link", "RateLimit", "RateLimit-Policy", "Retry-After", "X-Request-Id", "X-Total-Count",
			"Location", "Tus-Resumable", "Upload-Expires", "Upload-Length", "Upload-Metadata", "Upload-Offset"},
		MaxAge: int(preflightTTL.Seconds()),
	})
}

// isPreflight reports whether a browser asks for permission before it sends a page's request. Such a request has no key and
// reaches no service.
func (g *Gateway) isPreflight(r *http.Request) bool {
	return g.cors != nil && r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}
