package apply

import (
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// spellAddresses gives the addresses of an entity the spelling of the API's answers, by which they are compared.
func (i *Item) spellAddresses() {
	for name, value := range i.members {
		isAddress := name == "full_ip" || strings.HasPrefix(name, "v4.") || strings.HasPrefix(name, "v6.")
		if text, ok := value.(string); ok && isAddress {
			i.members[name] = spellAddress(text)
		}
	}
}

// spellAddress returns an address, a range or a prefix as the API spells it, and any other text as it is.
func spellAddress(text string) string {
	if r, err := netipx.ParseIPRange(text); err == nil {
		if r.From() == r.To() {
			return r.From().String()
		}
		return r.String()
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return address.String()
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return text
	case prefix.IsSingleIP():
		return prefix.Addr().String()
	default:
		return prefix.String()
	}
}
