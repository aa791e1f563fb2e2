package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issueChanged returns an identity whose certificate was changed before the authority signed it.
func issueChanged(t *testing.T, a *Authority, change func(*x509.Certificate)) *Identity {
	t.Helper()
	certificate := template(time.Hour)
	certificate.URIs = []*url.URL{spiffeID("network")}
	change(certificate)
	issued, err := a.issue(certificate)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(issued.Certificate, []byte(issued.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	p := &credentials{certificate: pair, roots: x509.NewCertPool(), domain: trustDomain}
	p.roots.AddCert(a.certificate)
	return identityWith(p)
}

// identityWith returns an identity with credentials that NewIdentity might refuse.
func identityWith(p *credentials) *Identity {
	id := &Identity{name: "network"}
	p.serverConfig = p.newServerConfig()
	id.credentials.Store(p)
	return id
}

func uri(text string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		c.URIs = []*url.URL{u}
	}
}

// untrusted returns identities whose certificates both ends refuse, by description.
func untrusted(t *testing.T, a *Authority) map[string]*Identity {
	foreign, err := newAuthority(t).Identity("network")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Identity{
		"of another authority": identityWith(
			&credentials{
				certificate: foreign.credentials.Load().certificate,
				roots:       issueChanged(t, a, func(*x509.Certificate) {}).credentials.Load().roots,
				domain:      trustDomain,
			},
		),
		"expired": issueChanged(t, a, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		}),
		"not yet valid": issueChanged(t, a, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }),
		"without a name": issueChanged(t, a, func(c *x509.Certificate) {
			c.URIs, c.DNSNames, c.Subject.CommonName = nil, []string{"network"}, "network"
		}),
		"with two names": issueChanged(t, a, func(c *x509.Certificate) { c.URIs = append(c.URIs, spiffeID("gateway")) }),
		"for signing code": issueChanged(t, a, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
		}),
	}
	for _, text := range []string{"spiffe://elsewhere/network", "https://ironplane/network", "spiffe://ironplane/network/2",
		"spiffe://ironplane/", "spiffe://ironplane", "spiffe://ironplane/Network", "spiffe://ironplane/network?x",
		"spiffe://ironplane/network?", "spiffe://ironplane/network#x", "spiffe://ironplane/%6eetwork", "spiffe:ironplane/network",
		"spiffe://ironplane:443/network", "spiffe://me@ironplane/network", "spiffe://ironplane/" + strings.Repeat("n", maxName+1)} {
		all["of "+text] = issueChanged(t, a, uri(text))
	}
	return all
}

func TestServerRefusesUntrusted(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	address := i.serve(i.network, http.NotFoundHandler())
	try := func(id *Identity) error {
		config := i.gateway.ClientConfig("network")
		config.Certificates = []tls.Certificate{id.credentials.Load().certificate}
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: network\r\n\r\n"))
		_, err = c.Read(make([]byte, 1)) // in TLS 1.3 the client learns of a refusal at the first read
		return err
	}
	if err := try(i.identity("clients")); err != nil {
		t.Fatal(err)
	}
	for name, other := range untrusted(t, i.authority) {
		if try(other) == nil {
			t.Errorf("a process with a certificate %s: got an answer, want a refusal", name)
		}
	}
	if try(identityWith(&credentials{})) == nil {
		t.Error("a process without a certificate: got an answer, want a refusal")
	}
}

func TestClientRefusesUntrusted(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	all := untrusted(t, i.authority)
	all["of another service"] = i.identity("identity")
	all["of the gateway"] = i.gateway
	for name, other := range all {
		address := i.serve(other, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("got a request, want none") }))
		if c, err := i.connect(address); err == nil {
			c.Close()
			t.Errorf("a service with a certificate %s: got a connection, want none", name)
		}
	}
	c, err := i.connect(i.serve(i.network, http.NotFoundHandler()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if version := c.ConnectionState().Version; version != tls.VersionTLS13 {
		t.Errorf("got TLS %x, want %x", version, tls.VersionTLS13)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	config := i.gateway.ClientConfig("network")
	config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if c, err := tls.Dial("tcp", i.serve(i.network, http.NotFoundHandler()), config); err == nil {
		c.Close()
		t.Fatal("got a connection with TLS 1.2, want a refusal")
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	issued, err := i.authority.Issue("network")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := Files{filepath.Join(dir, "network.crt"), filepath.Join(dir, "network.key"), filepath.Join(dir, "ca.crt")}
	for file, content := range map[string][]byte{
		files.Certificate: issued.Certificate, files.Key: []byte(issued.Key.Reveal()), files.CA: i.authority.Certificate(),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id, err := Load("network", files)
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.connect(i.serve(id, http.NotFoundHandler()))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	for name, invalid := range map[string]Files{
		"another's":    files,
		"no file":      {files.Certificate, files.Key, filepath.Join(dir, "none")},
		"no key":       {files.Certificate, files.CA, files.CA},
		"no authority": {files.Certificate, files.Key, files.Key},
	} {
		as := "network"
		if name == "another's" {
			as = "identity"
		}
		if _, err := Load(as, invalid); err == nil || strings.Contains(err.Error(), "PRIVATE KEY") {
			t.Errorf("%s: got %v, want an error without the key", name, err)
		}
	}
	for _, name := range []string{"", "Network", "a/b", "a b", strings.Repeat("n", maxName+1)} {
		if _, err := i.authority.Issue(name); err == nil {
			t.Errorf("%q: got a certificate, want an error", name)
		}
	}
}
