// Package egress makes requests to addresses that callers chose. It refuses addresses in private networks, unless the
// operator allows them.
package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

var (
	// ErrOwnNetwork means that an address is in a private network that is not allowed.
	ErrOwnNetwork = errors.New("the address is in a private network. Add the network to IRONPLANE_ALLOWED_NETWORKS to allow it")
	// ErrUnencrypted means that a request would leave the operator's networks without encryption.
	ErrUnencrypted = errors.New(
		"the address begins with http://, which is allowed only for networks in IRONPLANE_ALLOWED_NETWORKS. Use https://",
	)
	// ErrRedirects means that a request was redirected too often.
	ErrRedirects = errors.New("the request was redirected more than 5 times")
)

// Networks are private networks to which requests are allowed.
type Networks []netip.Prefix

// Parse reads networks and addresses, separated by spaces or commas.
func Parse(text string) (all Networks, err error) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		network, err := netip.ParsePrefix(part)
		if address, addressErr := netip.ParseAddr(part); addressErr == nil {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.20.0.0/16", part)
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

func (n Networks) contain(address netip.Addr) bool {
	for _, network := range n {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// nonPublic are networks that are not public, besides those that package netip knows, and networks whose addresses stand
// for others, which may be private.
var nonPublic = func() (all Networks) {
	for _, text := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:db8::/32", "2002::/16", "fec0::/10"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// IsPublic tells whether an address belongs to the public Internet.
func IsPublic(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsGlobalUnicast() && !address.IsPrivate() && address.Zone() == "" && !nonPublic.contain(address)
}

type plainKey struct{}

// check approves each connection when its final address is known: after redirects and name resolution.
func (n Networks) check(ctx context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read the address: %w", err)
	}
	switch allowed := n.contain(to.Addr().Unmap()); {
	case allowed:
		return nil
	case !IsPublic(to.Addr()):
		return ErrOwnNetwork
	case ctx.Value(plainKey{}) != nil:
		return ErrUnencrypted
	}
	return nil
}

const (
	dialTimeout    = 10 * time.Second
	idleTimeout    = 30 * time.Second
	maxIdle        = 8 // connections to one host
	maxHeaderBytes = 16 << 10
	maxRedirects   = 5
)

// Client returns a client for addresses that callers chose. It uses no proxy, because then only the proxy's address
// would be checked.
func (n Networks) Client() *http.Client { return n.ClientTrusting(nil) }

// Dial connects to an address that a caller chose. The protocol on the connection must encrypt.
func (n Networks) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dialer().DialContext(ctx, network, address)
}

func (n Networks) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, ControlContext: n.check}
}

// ClientTrusting returns a Client with this TLS configuration; nil: it trusts public authorities.
func (n Networks) ClientTrusting(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: markingTransport{
			&http.Transport{
				DialContext:            n.dialer().DialContext,
				TLSClientConfig:        config,
				TLSHandshakeTimeout:    dialTimeout,
				IdleConnTimeout:        idleTimeout,
				MaxIdleConnsPerHost:    maxIdle,
				MaxResponseHeaderBytes: maxHeaderBytes,
				ForceAttemptHTTP2:      true,
			},
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			switch {
			case len(via) > maxRedirects:
				return ErrRedirects
			case r.Method != via[0].Method: // the redirect would drop the body
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// markingTransport marks unencrypted requests for check.
type markingTransport struct{ *http.Transport }

func (m markingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		r = r.WithContext(context.WithValue(r.Context(), plainKey{}, true))
	}
	return m.Transport.RoundTrip(r)
}

// Describe returns why a request failed, as callers may read it. It leaves out the address, which may contain a secret,
// and details about DNS and routers of the operator's network.
func Describe(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	resolving, unresolved := errors.AsType[*net.DNSError](err)
	connecting, unconnected := errors.AsType[*net.OpError](err)
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	switch {
	case errors.Is(err, ErrOwnNetwork):
		return ErrOwnNetwork.Error()
	case errors.Is(err, ErrUnencrypted):
		return ErrUnencrypted.Error()
	case unresolved && resolving.IsNotFound:
		return "the host does not exist"
	case unresolved:
		return "the host's address could not be resolved"
	case ok && timeout.Timeout():
		return "the host did not respond in time"
	case unconnected && connecting.Op == "dial":
		return "the connection failed: " + connecting.Err.Error()
	}
	return err.Error()
}

// Check fails if the text of IRONPLANE_ALLOWED_NETWORKS cannot be parsed.
func Check(text string) error {
	if _, err := Parse(text); err != nil {
		return fmt.Errorf("IRONPLANE_ALLOWED_NETWORKS: %w", err)
	}
	return nil
}
