package process

import (
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// Addresses maps services to the addresses of their instances. As text: clients=10.0.0.1:8443
// network=10.0.0.2:8443,10.0.0.3:8443. A name alone has no configured address.
type Addresses map[string][]string

// UnmarshalText parses the text.
func (a *Addresses) UnmarshalText(text []byte) error {
	*a = Addresses{}
	for _, entry := range strings.Fields(string(text)) {
		name, addresses, hasAddresses := strings.Cut(entry, "=")
		switch {
		case !mtls.IsName(name) || hasAddresses && addresses == "":
			return fmt.Errorf("%q is not <service> or <service>=<address>,<address>…", entry)
		case hasAddresses:
			(*a)[name] = strings.Split(addresses, ",")
		default:
			(*a)[name] = nil
		}
	}
	return nil
}
