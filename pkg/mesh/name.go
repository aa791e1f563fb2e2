package mesh

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// trustDomain is whose processes the names are of.
const trustDomain = "ironplane"

// maxName is in bytes.
const maxName = 63

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + name}
}

// nameOf is the name that a verified certificate gives its process: it has one URI, spiffe://ironplane/<name>.
func nameOf(c *x509.Certificate) (string, error) {
	if len(c.URIs) != 1 {
		return "", fmt.Errorf("the certificate has %d URIs, not one", len(c.URIs))
	}
	id := c.URIs[0]
	name, ok := strings.CutPrefix(id.Path, "/")
	plain := id.Opaque == "" && id.User == nil && id.RawPath == "" && id.RawQuery == "" && !id.ForceQuery && id.Fragment == ""
	if id.Scheme != "spiffe" || id.Host != trustDomain || !plain || !ok || !isName(name) || c.IsCA {
		return "", errors.New("the certificate names no process of Ironplane")
	}
	return name, nil
}

func isName(name string) bool {
	strange := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, strange)
}
