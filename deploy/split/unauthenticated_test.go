package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/services/identity"
)

// testUnauthenticated calls services directly, without the gateway. They refuse such calls, whatever the headers
// say about the caller.
func testUnauthenticated(t *testing.T, f *fleet) {
	const everything = "x 192.0.2.7 1 admin 1 ffffffff admin"
	foreign := issue(t, principal.Gateway)
	for _, name := range product.Names() {
		ask := func(scheme string, as []tls.Certificate, call string) string {
			transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: as}, DisableKeepAlives: true}
			r, err := http.NewRequestWithContext(t.Context(), "GET", scheme+"://"+f.addresses[name]+"/admin/1", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if call != "" {
				r.Header.Set("Ironplane-Call", call)
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				return "no response"
			}
			defer response.Body.Close()
			return fmt.Sprint(response.StatusCode)
		}
		another := product.Names()[0]
		if another == name {
			another = product.Names()[1]
		}
		peer := []tls.Certificate{load(t, f, another)}
		for label, got := range map[string][2]string{
			"without TLS":                {"400", ask("http", nil, everything)},
			"without a certificate":      {"no response", ask("https", nil, everything)},
			"with a foreign certificate": {"no response", ask("https", []tls.Certificate{foreign}, everything)},
			"with the certificate of " + another + " and a header":  {"403", ask("https", peer, everything)},
			"with the certificate of the gateway, without a header": {"403", ask("https", []tls.Certificate{load(t, f, principal.Gateway)}, "")},
		} {
			if got[0] != got[1] {
				t.Errorf("%s, called %s: got %s, want %s", name, label, got[1], got[0])
			}
		}
		if name == identity.Name {
			if got := ask("https", peer, ""); got != "403" {
				t.Errorf("an admin, requested by %s: got %s, want 403", another, got)
			}
			if got := ask("https", []tls.Certificate{load(t, f, principal.Gateway)}, everything); got != "200" {
				t.Errorf("an admin, requested by the gateway: got %s, want 200", got)
			}
		}
	}
}

// load reads the certificate of a process.
func load(t *testing.T, f *fleet, name string) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(f.file(name+".crt"), f.file(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// issue returns a certificate of another authority.
func issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(issued.Certificate, []byte(issued.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
