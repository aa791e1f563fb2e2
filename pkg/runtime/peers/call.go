// Package peers defines the requests between processes: how the gateway tells a service who is calling, and how services ask
// each other.
package peers

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// CallHeader carries from the gateway to a service who is calling:
//
// \t<request id> <address> [<key id> <owner type> <owner id> <grants, in hexadecimal> <name, escaped> [acting | <signed
// in>]]
//
// The address is - for a request that did not come from outside. The six fields from the key id on are missing without a
// key. The last field is missing for keys that are not sessions. The sign-in time is in Unix seconds.
const CallHeader = "Ironplane-Call"

// RequestHeader carries, on a service's own request, the id of the request that caused it. The gateway removes it from
// callers' requests.
const RequestHeader = "Ironplane-Request-Id"

// AppendCall appends the value of CallHeader.
func AppendCall(to []byte, c *principal.Call) []byte {
	to = append(to, c.RequestID...)
	to = append(to, ' ')
	if c.IP.IsValid() {
		to = c.IP.AppendTo(to)
	} else {
		to = append(to, '-')
	}
	p := c.Principal
	if p == nil {
		return to
	}
	to = strconv.AppendInt(append(to, ' '), p.KeyID, 10)
	to = append(append(to, ' '), p.Owner.Type...)
	to = strconv.AppendInt(append(to, ' '), p.Owner.ID, 10)
	to = strconv.AppendUint(append(to, ' '), uint64(p.Grants), 16)
	to = append(append(to, ' '), url.PathEscape(p.Name)...)
	switch {
	case p.Acting:
		to = append(append(to, ' '), acting...)
	case !p.SignedIn.IsZero():
		to = strconv.AppendInt(append(to, ' '), p.SignedIn.Unix(), 10)
	}
	return to
}

const acting = "acting"

var errMalformedCall = errors.New("the header of the caller is malformed")

// ParseCall reads what AppendCall wrote. It ignores grants that this version does not know.
func ParseCall(text string) (*principal.Call, error) {
	var fields [8]string
	count := 0
	for ; text != "" && count < len(fields); count++ {
		fields[count], text, _ = strings.Cut(text, " ")
	}
	if text != "" || count != 2 && count < 6 || fields[0] == "" {
		return nil, errMalformedCall
	}
	c := &principal.Call{Peer: principal.Gateway, RequestID: fields[0]}
	var err error
	if fields[1] != "-" {
		if c.IP, err = netip.ParseAddr(fields[1]); err != nil {
			return nil, errMalformedCall
		}
	}
	if count == 2 {
		return c, nil
	}
	c.Principal, err = parsePrincipal(fields[2:])
	return c, err
}

func parsePrincipal(fields []string) (*principal.Principal, error) {
	keyID, err1 := strconv.ParseInt(fields[0], 10, 64)
	id, err2 := strconv.ParseInt(fields[2], 10, 64)
	grants, err3 := strconv.ParseUint(fields[3], 16, 64)
	name, err4 := url.PathUnescape(fields[4])
	kind := principal.OwnerType(fields[1])
	known := kind == principal.Admin || kind == principal.Client || kind == principal.Integration
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || !known || keyID <= 0 || id <= 0 {
		return nil, errMalformedCall
	}
	p := &principal.Principal{
		KeyID: keyID, Owner: principal.Owner{Type: kind, ID: id}, Name: name, Grants: principal.Grants(grants) & principal.All,
	}
	switch session := fields[5]; session {
	case "":
	case acting:
		p.Acting = true
	default:
		at, err := strconv.ParseInt(session, 10, 64)
		if err != nil || at <= 0 {
			return nil, errMalformedCall
		}
		p.SignedIn = time.Unix(at, 0)
	}
	return p, nil
}
