package network

import (
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/rest"
)

// PortSpeed is a link speed that a switch port is sold at.
type PortSpeed struct {
	rest.Versioned
	ID              int64   `json:"id" db:"id"`
	Name            string  `json:"name" db:"name"`
	BillingID       *string `json:"billing_id,omitempty" db:"billing_id"`
	Speed           int32   `json:"speed" db:"speed" doc:"Mbit/s"`
	SwitchPortCount bool    `json:"switchPortCount" doc:"whether a switch port uses the speed"` // always false: there are no switches yet
}

// portSpeedBody requires name and speed on create, although the documented API does not: a port speed without them
// would mean nothing.
type portSpeedBody struct {
	Name      string  `json:"name" db:"name" required:"create,edit" example:"1 Gbit/s"`
	BillingID *string `json:"billing_id" db:"billing_id" required:"edit" example:"GE"`
	Speed     int32   `json:"speed" db:"speed" required:"create,edit" min:"1" max:"2147483647" example:"1000" doc:"Mbit/s"`
}

func (s *Service) portSpeeds() []rest.Route {
	return rest.Resource[PortSpeed, portSpeedBody]{
		Path:        "/port-speed",
		ID:          "port_speed_id",
		Noun:        "port speed",
		Guard:       guard.Has(permission.NetworkSwitches),
		Table:       "port_speed",
		Retry:       rest.RetryRefused,
		EditExample: `{"name": "2.5 Gbit/s", "billing_id": "GE", "speed": 2500}`,
		List: rest.ListOptions{
			Search:  rest.SearchIn("search"),
			Sorts:   map[string]string{"name": "name", "speed": "speed"},
			Filters: map[string]string{"billing_id": "billing_id", "name": "name", "speed": "speed"},
		},
	}.Routes()
}
