package mtls

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// send sends a request to a service as another process, with these values of the caller's header.
func (i *install) send(id *Identity, address string, header ...string) (status int, text string) {
	i.t.Helper()
	transport := &http.Transport{TLSClientConfig: id.ClientConfig("network"), DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(i.t.Context(), "GET", "https://"+address+"/secret", http.NoBody)
	if err != nil {
		i.t.Fatal(err)
	}
	r.Header[peers.CallHeader] = header
	response, err := transport.RoundTrip(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// echoCaller responds with what is known of the caller.
func echoCaller(w http.ResponseWriter, r *http.Request) {
	call := principal.FromContext(r.Context())
	_, _ = io.WriteString(w, call.Peer+"|"+string(peers.AppendCall(nil, call))+"|"+r.Header.Get(peers.CallHeader))
}

func TestReceiveCaller(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	var logged bytes.Buffer
	i.log = slog.New(slog.NewTextHandler(&logged, nil))
	address := i.serve(i.network, http.HandlerFunc(echoCaller))
	header := string(peers.AppendCall(nil, caller))

	if status, text := i.send(i.gateway, address, header); status != 200 || text != "gateway|"+header+"|" {
		t.Errorf("the gateway: got %d %s, want 200 gateway|%s|", status, text, header)
	}
	if status, text := i.send(i.identity("clients"), address); status != 200 || text != "clients| -|" {
		t.Errorf("another service: got %d %s, want 200 clients| -|", status, text)
	}
	if logged.Len() > 0 {
		t.Errorf("got the log %s, want none", &logged)
	}
	refused := map[string]func() (int, string){
		"another service that names a caller": func() (int, string) { return i.send(i.identity("clients"), address, header) },
		"a service that names one to itself":  func() (int, string) { return i.send(i.network, address, header) },
		"another service with an empty name":  func() (int, string) { return i.send(i.identity("clients"), address, "") },
		"the gateway without a caller":        func() (int, string) { return i.send(i.gateway, address) },
		"the gateway with two":                func() (int, string) { return i.send(i.gateway, address, header, header) },
		"the gateway with half of one":        func() (int, string) { return i.send(i.gateway, address, header[:30]) },
	}
	for name, send := range refused {
		logged.Reset()
		if status, text := send(); status != http.StatusForbidden || strings.Contains(text, "|") {
			t.Errorf("%s: got %d %s, want %d", name, status, text, http.StatusForbidden)
		}
		if !strings.Contains(logged.String(), "refused a request") || strings.Contains(logged.String(), "nna") ||
			strings.Contains(logged.String(), "secret") {
			t.Errorf("%s: got the log %q, want a refusal without the caller", name, &logged)
		}
	}
}

// Without a client certificate, Receive refuses every request.
func TestReceiveWithoutTLS(t *testing.T) {
	t.Parallel()
	for _, state := range []*tls.ConnectionState{nil, {}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = state
		r.Header.Set(peers.CallHeader, string(peers.AppendCall(nil, caller)))
		recorder := httptest.NewRecorder()
		Receive(http.HandlerFunc(echoCaller), slog.New(slog.DiscardHandler)).ServeHTTP(recorder, r)
		if recorder.Code != http.StatusForbidden {
			t.Errorf("got %d %s, want %d", recorder.Code, recorder.Body, http.StatusForbidden)
		}
	}
}

func BenchmarkReceive(b *testing.B) {
	id := newInstall(b).gateway
	handler := Receive(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: nil}
	r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, id.credentials.Load().certificate.Leaf)
	header := []string{string(peers.AppendCall(nil, caller))}
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		r.Header[peers.CallHeader] = header
		handler.ServeHTTP(w, r)
	}
	if w.Code != http.StatusOK {
		b.Fatalf("got %d %s, want %d", w.Code, w.Body, http.StatusOK)
	}
}
