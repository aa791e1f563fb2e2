package peers

import (
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

func TestCallArrives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sent := &principal.Call{Peer: principal.Gateway, RequestID: rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "request id")}
		if raw := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"); rapid.Bool().Draw(t, "from outside") {
			sent.IP = netip.AddrFrom16([16]byte(raw)).Unmap()
		}
		if rapid.Bool().Draw(t, "with a key") {
			sent.Principal = &principal.Principal{
				KeyID: rapid.Int64Min(1).Draw(t, "key id"),
				Owner: principal.Owner{
					Type: rapid.SampledFrom([]principal.OwnerType{principal.Admin, principal.Client, principal.Integration}).Draw(t, "type"),
					ID:   rapid.Int64Min(1).Draw(t, "id"),
				},
				Name:   rapid.String().Draw(t, "name"),
				Grants: principal.Grants(rapid.Uint64().Draw(t, "grants")) & principal.All,
			}
		}
		text := AppendCall(nil, sent)
		for _, c := range text {
			if c < ' ' || c > '~' {
				t.Fatalf("got %q, want printable ASCII", text)
			}
		}
		got, err := ParseCall(string(text))
		if err != nil || !reflect.DeepEqual(got, sent) {
			t.Fatalf("%q: got %+v, %v, want %+v", text, got, err, sent)
		}
	})
}

func TestMalformedCalls(t *testing.T) {
	t.Parallel()
	const right = "r 192.0.2.7 4 admin 3 ff Anna"
	if _, err := ParseCall(right); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", " ", "r", "r ", " 192.0.2.7", "r here", "r  192.0.2.7", "r 192.0.2.7 4", "r 192.0.2.7 4 admin",
		"r 192.0.2.7 4 admin 3",
		"r 192.0.2.7 x admin 3 ff Anna", "r 192.0.2.7 0 admin 3 ff Anna", "r 192.0.2.7 4 root 3 ff Anna", "r 192.0.2.7 4 admin -3 ff Anna",
		"r 192.0.2.7 4 admin 3 xx Anna", "r 192.0.2.7 4 admin 3 10000000000000000 Anna", "r 192.0.2.7 4 admin 3 ff %x", right + " x"} {
		if c, err := ParseCall(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, c)
		}
	}
	if c, err := ParseCall(right + " acting"); err != nil || !c.Principal.Acting {
		t.Errorf("got %+v, %v, want an acting principal", c, err)
	}
	if c, err := ParseCall(right + " 1795000000"); err != nil || c.Principal.Acting || c.Principal.SignedIn.Unix() != 1795000000 {
		t.Errorf("got %+v, %v, want a sign-in at 1795000000 of a principal that does not act", c, err)
	}
	// A gateway of a newer version may send grants that this version does not know.
	if c, err := ParseCall("r - 4 admin 3 ffffffffffffffff Anna"); err != nil || c.Principal.Grants != principal.All {
		t.Errorf("got %+v, %v, want all grants", c, err)
	}
}

func FuzzParseCall(f *testing.F) {
	f.Add("r 192.0.2.7 4 admin 3 ff Anna")
	f.Add("r -")
	f.Add("r - 4 client 3 ff Anna acting")
	f.Add("r - 4 client 3 ff Anna 1795000000")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCall(text)
		if err != nil {
			return
		}
		parsed, err := ParseCall(string(AppendCall(nil, c)))
		if err != nil || !reflect.DeepEqual(c, parsed) {
			t.Fatalf("%q: got %+v, %v, want %+v", text, parsed, err, c)
		}
	})
}

func BenchmarkAppendCall(b *testing.B) {
	buffer := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		AppendCall(buffer, caller)
	}
}

func BenchmarkParseCall(b *testing.B) {
	text := string(AppendCall(nil, caller))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCall(text); err != nil {
			b.Fatal(err)
		}
	}
}

// caller is the call that the tests' gateway forwards.
var caller = &principal.Call{
	Peer:      principal.Gateway,
	IP:        netip.MustParseAddr("192.0.2.7"),
	RequestID: "request-1",
	Principal: &principal.Principal{
		KeyID:  4,
		Owner:  principal.Owner{Type: principal.Admin, ID: 3},
		Name:   "Änna B",
		Grants: principal.Grant(permission.NetworkGroups, permission.Read),
	},
}
