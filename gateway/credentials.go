package gateway

import (
	"net/http"
	"net/url"
	"strings"
)

// extractCredentials returns the request's key and removes it from the request, so that it reaches neither a service nor a log. A
// key in the query is removed even if inQuery is false and the gateway ignores it. hasSecret reports whether the request carried a
// credential in any form.
func extractCredentials(r *http.Request, inQuery bool) (key string, hasSecret bool) {
	key = r.Header.Get("X-Api-Key")
	hasSecret = key != "" || r.Header.Get("Authorization") != ""
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(token)
	}
	r.Header.Del("Authorization")
	r.Header.Del("X-Api-Key")
	if r.URL.RawQuery != "" {
		var found string
		r.URL.RawQuery, found = removeKey(r.URL.RawQuery)
		r.RequestURI = r.URL.RequestURI()
		hasSecret = hasSecret || found != ""
		if inQuery && key == "" {
			key = found
		}
	}
	return key, hasSecret
}

// removeKey returns a query without its parameter "key", and that parameter's value.
func removeKey(query string) (rest, key string) {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err != nil || name != "key" {
			kept = append(kept, part)
			continue
		}
		if value, err := url.QueryUnescape(value); err == nil {
			key = value
		}
	}
	return strings.Join(kept, "&"), key
}
