package network

import (
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// span is a range of addresses in a body: from and to, or prefix.
type span struct {
	From   *string `json:"from" doc:"the first address" example:"192.0.2.0"`
	To     *string `json:"to" doc:"the last address" example:"192.0.2.255"`
	Prefix *string `json:"prefix" doc:"instead of from and to: all addresses of a prefix" example:"192.0.2.0/24"`

	family      *family
	first, last netip.Addr
	spanMember  string // the member that errors about the span name
}

// isSet reports whether the body has any of the span's members.
func (s *span) isSet() bool { return s.From != nil || s.To != nil || s.Prefix != nil }

// read parses the span.
func (s *span) read(invalid *problem.Fields) {
	s.spanMember = "/to"
	switch {
	case s.Prefix != nil && (s.From != nil || s.To != nil):
		invalid.Add("/prefix", "conflict", "cannot be combined with from and to")
	case s.Prefix != nil:
		s.spanMember, s.family = "/prefix", familyOf(*s.Prefix)
		s.first, s.last, _ = s.family.parseSpace("/prefix", *s.Prefix, invalid)
	case s.From == nil || s.To == nil:
		invalid.Add("/from", "required", "is required together with to, unless prefix is set")
	default:
		s.family = familyOf(*s.From)
		s.first, _ = s.family.parseAddress("/from", *s.From, invalid)
		s.last, _ = s.family.parseAddress("/to", *s.To, invalid)
		if s.first.IsValid() && s.last.IsValid() && s.last.Less(s.first) {
			invalid.Add("/to", "out_of_range", "must not be below from")
		}
	}
}

// familyOf guesses the family of a text: IPv6 if it has a colon.
func familyOf(text string) *family {
	if strings.Contains(text, ":") {
		return v6
	}
	return v4
}

func (s *span) contains(a netip.Addr) bool { return !a.Less(s.first) && !s.last.Less(a) }
