package process

import (
	"reflect"
	"testing"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	var a Addresses
	want := Addresses{"clients": {"10.0.0.1:8443"}, "pxe": nil, "network": {"10.0.0.2:8443", "10.0.0.3:8443"}}
	if err := a.UnmarshalText(
		[]byte(" clients=10.0.0.1:8443\tpxe network=10.0.0.2:8443,10.0.0.3:8443 "),
	); err != nil ||
		!reflect.DeepEqual(a, want) {
		t.Errorf("got %v, %v, want %v", a, err, want)
	}
	for _, invalid := range []string{"Clients", "clients=", "=10.0.0.1:8443"} {
		if err := a.UnmarshalText([]byte(invalid)); err == nil {
			t.Errorf("%q: got no error, want one", invalid)
		}
	}
}
