package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"
)

const maxRequestIDLength = 64

// requestID returns the caller's own request id if it contains only safe characters, or else a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	isSafe := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)
	}
	if id == "" || len(id) > maxRequestIDLength || strings.ContainsFunc(id, func(c rune) bool { return !isSafe(c) }) {
		return rand.Text()
	}
	return id
}
