// Package cookie keeps the console's session in cookies that scripts cannot read, and decides which requests may use them.
package cookie

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// SessionPath is where sessions of the console begin and end.
	SessionPath = "/-/console/session"
	// ConsoleHeader is sent with the value 1 by the console's page. A page of another origin cannot send it without a preflight,
	// and preflights do not allow it.
	ConsoleHeader = "X-Ironplane-Console"

	sessionName = "ironplane-session"
	deviceName  = "ironplane-device-" // followed by the account's type
	// hostPrefix makes browsers refuse the cookie from other hosts of the domain, and over plain HTTP.
	hostPrefix = "__Host-"
	// deviceTTL is how long a browser keeps the token by which identity knows it again. Identity forgets it after 30 days, too.
	deviceTTL = 30 * 24 * time.Hour
)

// IsConsole reports whether the request has the console's header.
func IsConsole(r *http.Request) bool {
	return slices.Equal(r.Header[ConsoleHeader], []string{"1"})
}

// CheckOrigin returns a 403 if the browser says that a page of another origin sent the request. isTLS says that the request came by
// https. api is the API's public URL, for proxies that replace the Host header.
func CheckOrigin(r *http.Request, isTLS bool, api string) error {
	refused := problem.New(
		problem.Forbidden,
		"The console's session counts only for the console's own pages. If a proxy replaces the Host header, set IRONPLANE_API_URL.",
	)
	if site, isSent := r.Header["Sec-Fetch-Site"]; isSent && !slices.Equal(site, []string{"same-origin"}) {
		return refused
	}
	origin, isSent := r.Header["Origin"]
	if !isSent {
		return nil
	}
	if len(origin) == 1 && (isOwnOrigin(origin[0], r.Host, isTLS) || api != "" && origin[0] == originOf(api)) {
		return nil
	}
	return refused
}

// isOwnOrigin reports whether an origin is that of a request to this host. A proxy may have ended https unknown to the gateway.
func isOwnOrigin(origin, host string, isTLS bool) bool {
	scheme, name, _ := strings.Cut(origin, "://")
	switch scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
		if isTLS {
			return false
		}
	default:
		return false
	}
	return name != "" && strings.EqualFold(name, host)
}

// originOf returns the origin of an address, or "" if it is none of a web page.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	return u.Scheme + "://" + strings.ToLower(strings.TrimSuffix(u.Host, port))
}

// Session is the content of the session's cookie.
type Session struct {
	Key    string // "": there is no session
	Parent string // the key to return to when an acting session ends; "": none
}

// ReadSession returns the session in a request's cookie. A cookie that was set by https counts before one that was not, and alone
// over TLS.
func ReadSession(r *http.Request, isTLS bool) (s Session, err error) {
	found := r.CookiesNamed(hostPrefix + sessionName)
	if len(found) == 0 && !isTLS {
		found = r.CookiesNamed(sessionName)
	}
	if len(found) == 0 {
		return s, nil
	}
	if len(found) > 1 { // another host of the domain has added one
		return s, problem.New(problem.BadRequest, "The request has several cookies of the console's session. Delete the cookies of this site.")
	}
	key, parent, _ := strings.Cut(found[0].Value, ".")
	return Session{decode(key), decode(parent)}, nil
}

// WriteSession sets the session's cookie, or deletes it if there is no session. Browsers forget it when they end.
func WriteSession(header http.Header, s Session, isSecure bool) {
	c := http.Cookie{Name: sessionName, Path: "/", HttpOnly: true, Secure: isSecure, SameSite: http.SameSiteStrictMode}
	if isSecure {
		c.Name = hostPrefix + sessionName
	}
	switch {
	case s.Key == "":
		c.MaxAge = -1
	case s.Parent == "":
		c.Value = encode(s.Key)
	default:
		c.Value = encode(s.Key) + "." + encode(s.Parent)
	}
	header.Add("Set-Cookie", c.String())
}

// ReadDevice returns the token by which identity knows the browser of an account's owner, or "".
func ReadDevice(r *http.Request, accountType string) string {
	if c, err := r.Cookie(deviceName + accountType); err == nil {
		return decode(c.Value)
	}
	return ""
}

// WriteDevice sets the cookie with a device's token. Only sign-ins get it.
func WriteDevice(header http.Header, accountType, token string, isSecure bool) {
	c := http.Cookie{
		Name:     deviceName + accountType,
		Value:    encode(token),
		Path:     SessionPath,
		MaxAge:   int(deviceTTL.Seconds()),
		HttpOnly: true,
		Secure:   isSecure,
		SameSite: http.SameSiteStrictMode,
	}
	header.Add("Set-Cookie", c.String())
}

// encode returns a text with characters that cookies may have. Imported keys have others.
func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// decode returns the text that encode was called with, or "" for any other value.
func decode(value string) string {
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return ""
	}
	return string(text)
}
