package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// trustDomain is the trust domain of the certificates that an Authority issues.
const trustDomain = "ironplane"

// maxName is the length of a process name, in bytes.
const maxName = 63

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + name}
}

// spiffeName is the name in a certificate, in parts.
type spiffeName struct{ domain, process string }

// consulPath matches the path that Consul's authority writes for a service: /ns/default/dc/<data center>/svc/<name>.
var consulPath = regexp.MustCompile(`^/ns/default/dc/[a-z0-9_-]+/svc(/[a-z0-9-]+)$`)

// parseName returns the name in a verified certificate. The certificate must have exactly one URI, spiffe://<trust
// domain>/<name>, or Consul's longer form.
func parseName(c *x509.Certificate) (spiffeName, error) {
	if len(c.URIs) != 1 {
		return spiffeName{}, fmt.Errorf("the certificate has %d URIs, not one", len(c.URIs))
	}
	id := c.URIs[0]
	path := id.Path
	if consuls := consulPath.FindStringSubmatch(path); consuls != nil {
		path = consuls[1]
	}
	process, ok := strings.CutPrefix(path, "/")
	plain := id.Opaque == "" && id.User == nil && id.RawPath == "" && id.RawQuery == "" && !id.ForceQuery && id.Fragment == "" &&
		id.Port() == ""
	if id.Scheme != "spiffe" || id.Host == "" || !plain || !ok || !IsName(process) || c.IsCA {
		return spiffeName{}, errors.New("the certificate does not name a process of Ironplane")
	}
	return spiffeName{id.Host, process}, nil
}

// IsName reports whether a text is a valid process name.
func IsName(name string) bool {
	isInvalid := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, isInvalid)
}
