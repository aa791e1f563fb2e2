package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// trustDomain is whose processes an Authority's names are of.
const trustDomain = "ironplane"

// maxName is in bytes.
const maxName = 63

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + name}
}

// spiffeName is what a certificate calls a process.
type spiffeName struct{ domain, process string }

// consulPath is how Consul's authority names a service: /ns/default/dc/<data center>/svc/<name>.
var consulPath = regexp.MustCompile(`^/ns/default/dc/[a-z0-9_-]+/svc(/[a-z0-9-]+)$`)

// parseName is the name that a verified certificate gives its process: it has one URI, spiffe://<trust domain>/<name>, or
// the longer one that Consul writes.
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
		return spiffeName{}, errors.New("the certificate names no process of Ironplane")
	}
	return spiffeName{id.Host, process}, nil
}

// IsName tells whether a text can be the name of a process.
func IsName(name string) bool {
	isInvalid := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, isInvalid)
}
