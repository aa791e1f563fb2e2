package system_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/certificate"
)

// getSSL returns the SSL settings.
func (r *running) getSSL() system.SSL {
	r.t.Helper()
	return testkit.Decode[system.SSL](r.Do("GET", "/http/ssl", nil).Want(200))
}

// gatewayState returns the state for a gateway that knows this edition of the certificate.
func (r *running) gatewayState(known string) (state certificate.GatewayState) {
	r.t.Helper()
	testkit.Must(r.t, r.Peers(principal.Gateway).Ask(r.t.Context(), system.Name, "/internal/certificate?known="+known, &state))
	return state
}

// A certificate is ordered, fails while the authority does not work, is passed to gateways, becomes required, and is deleted.
func TestSSL(t *testing.T) {
	t.Parallel()
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the authority does not work", http.StatusServiceUnavailable)
	}))
	t.Cleanup(authority.Close)
	s := run(t, service.Settings{APIURL: "https://api.example.com:8443", ACMEDirectory: authority.URL})
	if got := s.getSSL(); got.Enabled || got.Required || got.Status != "off" {
		t.Errorf("at first: got %+v, want it off", got)
	}
	none := s.gatewayState("")
	if none.Chain != "" || none.Required || none.Authority != "api.example.com:8443" {
		t.Errorf("gateways at first: got %+v, want no certificate and the authority api.example.com:8443", none)
	}
	s.Do("POST", "/http/ssl", `{"email": "invalid"}`).WantErrors("/email", "invalid")
	s.Do("DELETE", "/http/ssl", nil).Want(409)

	const order = `{"email": "ops@example.com"}`
	s.Do("POST", "/http/ssl", order).Want(200)
	failed := testkit.Await(t, "the order has failed", s.getSSL, func(is system.SSL) bool { return is.Status == "failed" })
	if failed.Enabled || *failed.Email != "ops@example.com" || !strings.Contains(*failed.Error, "authority does not work") {
		t.Errorf("got %+v, want the authority's words for ops@example.com", failed)
	}
	if got := testkit.Decode[system.SSL](s.Do("POST", "/http/ssl", order).Want(200)); got.Status != "ordering" || got.Error != nil {
		t.Errorf("ordered again: got %+v, want it ordering", got)
	}
	testkit.Await(t, "the second order has failed", s.getSSL, func(is system.SSL) bool { return is.Status == "failed" })

	// The state after the authority has issued a certificate.
	key := s.Deps.Box.Seal(seal.Location{Table: "ssl", Column: "key", ID: 1}, secret.New("a key"))
	testkit.Execute(t, s.DB, `UPDATE ssl SET error = NULL, name = 'api.example.com', chain = 'a chain', key = $1, edition = gen_random_uuid(),
		not_after = now() + interval '90 days', renew_at = now() + interval '60 days'`, key)
	if got := s.getSSL(); !got.Enabled || got.Status != "valid" || *got.Name != "api.example.com" || got.ExpiresAt == nil {
		t.Errorf("with a certificate: got %+v, want a valid one", got)
	}
	state := s.gatewayState(none.Edition)
	if state.Chain != "a chain" || state.Key != "a key" {
		t.Errorf("gateways: got %+v, want the certificate with its key", state)
	}
	if unchanged := s.gatewayState(state.Edition); unchanged.Edition != state.Edition || unchanged.Chain != "" || unchanged.Key != "" {
		t.Errorf("gateways that know it: got %+v, want the edition alone", unchanged)
	}
	s.Do("POST", "/http/ssl", order).Want(200) // changes nothing

	tag := s.Do("GET", "/http/ssl", nil).Want(200).Header.Get("ETag")
	s.Do("PATCH", "/http/ssl", `{"required": true}`, "If-Match", tag).Want(200)
	s.Do("PATCH", "/http/ssl", `{"required": false}`, "If-Match", tag).Want(412)
	s.Do("PATCH", "/http/ssl", `{"required": true}`).Want(200) // changes nothing
	if !s.getSSL().Required || !s.gatewayState("").Required {
		t.Error("got TLS not required, want it required")
	}
	s.Do("DELETE", "/http/ssl", nil, "If-Match", tag).Want(412)
	s.Do("DELETE", "/http/ssl", nil).Want(200)
	if got := s.getSSL(); got.Enabled || got.Required || got.Status != "off" {
		t.Errorf("deleted: got %+v, want it off", got)
	}
	if deleted := s.gatewayState(state.Edition); deleted.Edition == state.Edition || deleted.Chain != "" || deleted.Required {
		t.Errorf("gateways after the deletion: got %+v, want another edition without a certificate", deleted)
	}
	s.awaitLog("type=http.ssl.deleted", 1)
}

// The service responds to the authority's challenges by HTTP and in TLS handshakes. Only gateways may ask for the latter.
func TestACMEChallenge(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{APIURL: "http://192.0.2.1"})
	s.Do("POST", "/http/ssl", `{"email": "ops@example.com"}`).Want(409) // an address has no certificate
	authority := s.As(nil)
	authority.Do("GET", "/.well-known/acme-challenge/token", nil).Want(404)
	testkit.Execute(
		t,
		s.DB,
		"INSERT INTO acme_challenge (token, type, name, key_auth) VALUES ('token', 'http-01', 'api.example.com', 'token.thumbprint')",
	)
	if got := authority.Do("GET", "/.well-known/acme-challenge/token", nil).Want(200).Text; got != "token.thumbprint" {
		t.Errorf("got %q, want token.thumbprint", got)
	}
	var issued certificate.Issued
	if err := s.Peers("clients").Ask(t.Context(), system.Name, "/internal/acme-handshake?name=api.example.com", &issued); err == nil {
		t.Error("got a certificate for the handshake of another service, want a refusal")
	}
}
