package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"
)

const longestRequestID = 64

// requestID is the caller's own, where it is harmless, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	harmless := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c)
	}
	if id == "" || len(id) > longestRequestID || strings.ContainsFunc(id, func(c rune) bool { return !harmless(c) }) {
		return rand.Text()
	}
	return id
}
