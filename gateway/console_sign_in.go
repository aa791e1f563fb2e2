package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
)

// signInKind is the way in which a session of the console begins.
type signInKind int

const (
	pastedKey signInKind = iota
	withPassword
	withSecondFactor
	withCode
	actFor
)

// signIn is a request to begin a session, and the request to identity by which it begins.
type signIn struct {
	kind         signInKind
	key          string // pasted
	method, path string
	body         []byte
}

// readSignIn reads the body of a request to begin a session. The first of these members decides: key, sso, challenge, password,
// owner.
func (g *Gateway) readSignIn(e *recorder, r *http.Request, call *principal.Call) (s signIn, err error) {
	text, err := g.readBody(e, r, call)
	if err != nil {
		return s, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return s, problem.New(problem.BadRequest, "The body is not a JSON object.")
	}
	has := func(name string) bool { return members[name] != nil }
	switch s.method = http.MethodPost; {
	case has("key"):
		if len(members) > 1 || json.Unmarshal(members["key"], &s.key) != nil || s.key == "" {
			return s, problem.Member("/key", "invalid", "must be a text, without other members")
		}
		return s, nil
	case has("sso"):
		s.kind, s.path = withCode, "/auth/sso"
		members["code"] = members["sso"]
		delete(members, "sso")
	case has("challenge"):
		s.kind, s.method = withSecondFactor, http.MethodPatch
		if s.path, err = codePath(members["auth"]); err != nil {
			return s, err
		}
		delete(members, "auth")
	case has("password"):
		s.kind, s.path = withPassword, "/auth/key"
		addDevice(r, members)
	case has("owner"):
		s.kind, s.path = actFor, "/auth/key"
		if len(members) > 1 { // a name would make it a request for a lasting key
			return s, problem.Member("/owner", "invalid", "must be sent without other members")
		}
	default:
		return s, problem.Member("/key", "required", "is required, or one of password, challenge, sso and owner")
	}
	s.body, err = json.Marshal(members)
	return s, err
}

// codePath returns the path where identity takes the answer to a login's challenge.
func codePath(auth json.RawMessage) (string, error) {
	var id int64
	if auth == nil || json.Unmarshal(auth, &id) != nil || id < 0 {
		return "", problem.Member("/auth", "invalid", "must be the id of the authenticator in verify.code.auth")
	}
	return "/auth/verify/auth/" + strconv.FormatInt(id, 10) + "/code/challenge", nil
}

// addDevice adds the token of the browser's last login to a login, unless it has one.
func addDevice(r *http.Request, members map[string]json.RawMessage) {
	var accountType string
	if members["device"] != nil || json.Unmarshal(members["type"], &accountType) != nil {
		return
	}
	if token := cookie.ReadDevice(r, accountType); token != "" {
		members["device"], _ = json.Marshal(token) // a text can be marshalled
	}
}

// readKey returns the key in identity's answer. It returns false if there is none: the answer is an error, or a challenge.
func (s *signIn) readKey(response *bufferedResponse) (issued issuedKey, ok bool) {
	if s.kind != withSecondFactor {
		ok = response.read(&issued)
		return issued, ok && issued.Key != ""
	}
	var confirmed struct {
		Key    issuedKey
		Device string
	}
	ok = response.read(&confirmed)
	issued, issued.Device = confirmed.Key, confirmed.Device
	return issued, ok && issued.Key != ""
}
