package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"

	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// currentKeyPath is identity's view of the key of a request.
const currentKeyPath = "/auth/key/current"

// serveSession serves the console's session, which is a key in a cookie that scripts cannot read.
func (g *Gateway) serveSession(e *recorder, r *http.Request, call *principal.Call, c caller) error {
	if !g.config.Console.isOn() {
		return problem.NoSuchPath()
	}
	switch r.Method {
	case http.MethodPost:
		return g.beginSession(e, r, call, c)
	case http.MethodDelete:
		return g.endSession(e, r, call, c)
	case http.MethodGet, http.MethodHead, http.MethodPatch:
	default:
		return problem.NotAllowed(r.Method, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete)
	}
	if call.Principal == nil {
		return errNoSession()
	}
	if r.Method == http.MethodPatch && isSession(call.Principal) {
		response, err := g.askIdentity(r, http.MethodPost, "/auth/key", []byte("{}"))
		if err != nil {
			return err
		}
		var renewed issuedKey
		if !response.read(&renewed) {
			return response.writeTo(e)
		}
		cookie.WriteSession(e.Header(), cookie.Session{Key: renewed.Key, Parent: c.session.Parent}, c.isSecure)
	}
	return g.writeKey(e, r)
}

// errNoSession returns the refusal of a request that needs the cookie of a session.
func errNoSession() error {
	return problem.New(problem.Unauthenticated, "There is no session. Sign in first.")
}

// isSession reports whether a key began with a sign-in, or acts for an account. Lasting keys do neither.
func isSession(p *principal.Principal) bool { return p.Acting || !p.SignedIn.IsZero() }

// issuedKey is identity's answer to a request for a key.
type issuedKey struct {
	Key    string
	Device string
	Owner  struct{ URL string }
	Verify json.RawMessage
}

// beginSession begins a session, and puts its key into the cookie.
func (g *Gateway) beginSession(e *recorder, r *http.Request, call *principal.Call, c caller) error {
	s, err := g.readSignIn(e, r, call)
	if err != nil {
		return err
	}
	switch {
	case s.kind == pastedKey:
		return g.asKey(e, r, call, s.key, func() error {
			view, err := g.viewKey(r)
			if err != nil {
				return err
			}
			if view.status == http.StatusOK {
				cookie.WriteSession(e.Header(), cookie.Session{Key: s.key}, c.isSecure)
			}
			return view.writeTo(e)
		})
	case s.kind == actFor && c.session.Key == "":
		return errNoSession()
	case s.kind == actFor:
		return g.asKey(e, r, call, c.session.Key, func() error { return g.exchange(e, r, call, c, s) })
	}
	return g.exchange(e, r, call, c, s)
}

// exchange asks identity for a session's key. Whatever else identity answers, such as a challenge, is passed on.
func (g *Gateway) exchange(e *recorder, r *http.Request, call *principal.Call, c caller, s signIn) error {
	response, err := g.askIdentity(r, s.method, s.path, s.body)
	if err != nil {
		return err
	}
	issued, ok := s.readKey(response)
	if !ok {
		return response.writeTo(e)
	}
	session := cookie.Session{Key: issued.Key}
	if s.kind == actFor {
		session.Parent = c.session.Key
	}
	cookie.WriteSession(e.Header(), session, c.isSecure)
	if owner, ok := principal.ParseOwner(issued.Owner.URL); ok && issued.Device != "" {
		cookie.WriteDevice(e.Header(), string(owner.Type), issued.Device, c.isSecure)
	}
	return g.asKey(e, r, call, issued.Key, func() error { return g.writeKey(e, r) })
}

// asKey answers by a function that serves the request as one of this key.
func (g *Gateway) asKey(e *recorder, r *http.Request, call *principal.Call, key string, answer func() error) error {
	decided, err := g.admit(r.Context(), e, call.IP, key)
	if err != nil {
		return err
	}
	leave, err := g.enter(call, decided)
	if err != nil {
		return err
	}
	defer leave()
	return answer()
}

// endSession ends a session, or forgets a lasting key. After an acting session the one goes on that began it.
func (g *Gateway) endSession(e *recorder, r *http.Request, call *principal.Call, c caller) error {
	message := "Signed out."
	if p := call.Principal; p != nil && isSession(p) {
		response, err := g.askIdentity(r, http.MethodDelete, currentKeyPath, nil)
		if err != nil {
			return err
		}
		if response.status != http.StatusOK && response.status != http.StatusUnauthorized && response.status != http.StatusNotFound {
			return response.writeTo(e)
		}
	} else if p != nil {
		message = "The key was forgotten. It still works."
	}
	cookie.WriteSession(e.Header(), cookie.Session{Key: c.session.Parent}, c.isSecure)
	e.Header().Set("Content-Type", problem.MediaJSON)
	return json.NewEncoder(e).Encode(struct {
		Message string `json:"message"`
	}{message})
}

// writeKey answers with the view of the request's key.
func (g *Gateway) writeKey(e *recorder, r *http.Request) error {
	view, err := g.viewKey(r)
	if err != nil {
		return err
	}
	return view.writeTo(e)
}

// viewKey asks for the view of the request's key. The key may have been revoked a moment ago.
func (g *Gateway) viewKey(r *http.Request) (*bufferedResponse, error) {
	view, err := g.askIdentity(r, http.MethodGet, currentKeyPath, nil)
	if err == nil && view.status == http.StatusNotFound {
		err = apikey.Invalid()
	}
	return view, err
}

// askIdentity sends a request to the identity service in the name of the caller.
func (g *Gateway) askIdentity(r *http.Request, method, path string, body []byte) (*bufferedResponse, error) {
	identity, ok := g.upstreams["identity"]
	if !ok {
		return nil, problem.NoSuchPath()
	}
	own, err := http.NewRequestWithContext(r.Context(), method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	own.RequestURI, own.RemoteAddr, own.Host = path, r.RemoteAddr, "identity"
	own.Header.Set("Accept", problem.MediaJSON)
	own.Header.Set("User-Agent", r.UserAgent())
	if len(body) > 0 {
		own.Header.Set("Content-Type", problem.MediaJSON)
	}
	w := &bufferedResponse{header: http.Header{}}
	identity.ServeHTTP(w, own)
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w, nil
}

// read decodes the answer, unless it is an error.
func (k *bufferedResponse) read(into any) bool {
	return k.status == http.StatusOK && json.Unmarshal(k.body.Bytes(), into) == nil
}

// writeTo passes the answer on to the caller.
func (k *bufferedResponse) writeTo(e *recorder) error {
	delete(k.header, problem.RouteHeader)
	for name, values := range k.header {
		if !gatewayHeaders[name] {
			e.Header()[name] = values
		}
	}
	e.WriteHeader(k.status)
	_, _ = e.Write(k.body.Bytes()) // an error means that the caller left
	return nil
}

// readBody reads a body of JSON completely.
func (g *Gateway) readBody(e *recorder, r *http.Request, call *principal.Call) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != problem.MediaJSON {
		return nil, problem.New(problem.UnsupportedMedia, "Send the body with Content-Type: application/json.")
	}
	if err := inflate(r, e.Header()); err != nil {
		return nil, err
	}
	release, err := g.bufferBody(r, call)
	if err != nil {
		return nil, err
	}
	defer release()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxAnonymousBufferedBody+1))
	switch {
	case err != nil:
		return nil, errIncompleteBody(err)
	case len(text) > maxAnonymousBufferedBody:
		return nil, problem.New(problem.TooLarge, "The body is larger than %d bytes.", maxAnonymousBufferedBody)
	}
	return text, nil
}
