// Package egress is how services ask addresses that callers gave them: never those of the installation's own network,
// unless who runs it allows that.
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
	// ErrOwnNetwork says that an address is refused.
	ErrOwnNetwork = errors.New("it leads to an address of a network of one's own, which IRONPLANE_ALLOWED_NETWORKS does not name")
	// ErrUnencrypted says that a request would go out unencrypted.
	ErrUnencrypted = errors.New("it leads to an address that begins with http://, which is for networks that IRONPLANE_ALLOWED_NETWORKS names")
	// ErrRedirects says that an address leads on and on.
	ErrRedirects = errors.New("it was redirected too often")
)

// Networks are allowed though they are one's own.
type Networks []netip.Prefix

// Parse reads networks, or addresses, with blanks or commas between.
func Parse(text string) (all Networks, err error) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		network, err := netip.ParsePrefix(part)
		if address, addressErr := netip.ParseAddr(part); addressErr == nil {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no network such as 10.20.0.0/16", part)
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

// nonPublic are the networks that are not of the whole Internet, besides those that package netip knows, and those in which others
// can stand for an address of them.
var nonPublic = func() (all Networks) {
	for _, text := range []string{"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:db8::/32", "2002::/16", "fec0::/10"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// IsPublic tells whether an address is one of the whole Internet.
func IsPublic(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsGlobalUnicast() && !address.IsPrivate() && address.Zone() == "" && !nonPublic.contain(address)
}

type plainKey struct{}

// check is asked of each connection, once it is known where it really leads: after redirects and whatever DNS answers.
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

// Client makes requests to addresses that callers gave. It goes through no proxy, whose address would be the one that is looked at.
func (n Networks) Client() *http.Client { return n.ClientTrusting(nil) }

// Dial connects to an address that callers gave, by a protocol that encrypts.
func (n Networks) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dialer().DialContext(ctx, network, address)
}

func (n Networks) dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, ControlContext: n.check}
}

// ClientTrusting is a Client that speaks TLS like this; nil: with whom public authorities vouch for.
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
			case r.Method != via[0].Method: // what was sent would get lost
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// markingTransport lets check know which connections are not encrypted.
type markingTransport struct{ *http.Transport }

func (m markingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		r = r.WithContext(context.WithValue(r.Context(), plainKey{}, true))
	}
	return m.Transport.RoundTrip(r)
}

// Describe is what went wrong with a request, without the address, in which there may be a secret, and without what DNS and routers of
// one's own say.
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
		return "there is no host of that name"
	case unresolved:
		return "the host's address cannot be found out"
	case ok && timeout.Timeout():
		return "it did not answer in time"
	case unconnected && connecting.Op == "dial":
		return "it cannot be connected to: " + connecting.Err.Error()
	}
	return err.Error()
}
