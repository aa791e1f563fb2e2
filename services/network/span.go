package network

import (
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/problem"
)

// span is a part of the address space, as a body names it.
type span struct {
	From   *string `json:"from" doc:"the first address" example:"192.0.2.0"`
	To     *string `json:"to" doc:"the last address" example:"192.0.2.255"`
	Prefix *string `json:"prefix" doc:"instead of from and to" example:"192.0.2.0/24"`

	family      *family
	first, last netip.Addr
	where       string // the member that is wrong where the span is
}

func (s *span) named() bool { return s.From != nil || s.To != nil || s.Prefix != nil }

func (s *span) read(invalid *problem.Fields) {
	s.where = "/to"
	switch {
	case s.Prefix != nil && (s.From != nil || s.To != nil):
		invalid.Add("/prefix", "conflict", "cannot stand beside from and to")
	case s.Prefix != nil:
		s.where, s.family = "/prefix", familyOf(*s.Prefix)
		s.first, s.last, _ = s.family.parseSpace("/prefix", *s.Prefix, invalid)
	case s.From == nil || s.To == nil:
		invalid.Add("/from", "required", "is required with to, or prefix is")
	default:
		s.family = familyOf(*s.From)
		s.first, _ = s.family.parseAddress("/from", *s.From, invalid)
		s.last, _ = s.family.parseAddress("/to", *s.To, invalid)
		if s.first.IsValid() && s.last.IsValid() && s.last.Less(s.first) {
			invalid.Add("/to", "out_of_range", "is below from")
		}
	}
}

func familyOf(text string) *family {
	if strings.Contains(text, ":") {
		return v6
	}
	return v4
}

func (s *span) contains(a netip.Addr) bool { return !a.Less(s.first) && !s.last.Less(a) }
