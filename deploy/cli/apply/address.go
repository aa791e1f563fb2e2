package apply

import (
	"net/netip"
	"strings"
)

// spellAddresses gives the addresses of an entity the spelling of the API's answers, by which they are compared.
func (i *Item) spellAddresses() {
	for name, value := range i.members {
		isAddress := name != "nickname" && name != "name" && name != "billing_id" && name != "note"
		if text, ok := value.(string); ok && isAddress {
			i.members[name] = spellAddress(text)
		}
	}
}

// spellAddress returns an address, a range or a prefix as the API spells it, and any other text as it is.
func spellAddress(text string) string {
	if first, last, ok := strings.Cut(text, "-"); ok {
		if first, last = spellAddress(first), spellAddress(last); first != last {
			return first + "-" + last
		}
		return first
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
