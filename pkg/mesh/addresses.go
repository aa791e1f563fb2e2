package mesh

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
)

// Addresses are where the instances of services are, by the services' names. As a text:
// clients=10.0.0.1:8443 network=10.0.0.2:8443,10.0.0.3:8443
type Addresses map[string][]string

// UnmarshalText reads the text.
func (a *Addresses) UnmarshalText(text []byte) error {
	*a = Addresses{}
	for _, one := range strings.Fields(string(text)) {
		name, addresses, _ := strings.Cut(one, "=")
		if name == "" || addresses == "" {
			return fmt.Errorf("%q is not <service>=<address>,<address>…", one)
		}
		(*a)[name] = strings.Split(addresses, ",")
	}
	return nil
}

// Upstreams are the services at these addresses.
func (id *Identity) Upstreams(at Addresses, log *slog.Logger) map[string]http.Handler {
	upstreams := map[string]http.Handler{}
	for name, addresses := range at {
		upstreams[name] = id.NewUpstream(name, addresses, log)
	}
	return upstreams
}
