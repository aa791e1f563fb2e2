package body

import (
	"strings"
	"testing"
)

func TestIsEmail(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"anna@example.com", "a.b+c_d-e'f&g=h@mail.example.co.uk", "ANNA@EXAMPLE.COM", "ünal@bücher.example",
		"a@xn--bcher-kva.xn--p1ai", "1@2.example",
	} {
		if !IsEmail(good) {
			t.Errorf("got %q refused, want it accepted", good)
		}
	}
	for _, attack := range []string{
		"", "anna", "@example.com", "anna@", "a@b@example.com", "a@[127.0.0.1]", "a@[IPv6:::1]", "a@127.0.0.1",
		"a@1.2.3.example.4", "%00@x", "%00@example.com",
		"root@localhost", "a@x", "b%internal.example@example.com", "host!user@example.com", "|id@example.com", `"a b"@example.com`,
		`"@"@example.com`,
		"Anna <anna@example.com>", "<anna@example.com>", "anna@example.com,eve@example.com", "anna@example.com eve@example.com",
		"a@example.com>", "(x)a@example.com",
		"a@example.com\n", "a@example.com\r\nBcc: eve@example.com", "a\x00@example.com", "a@exam\tple.com", "a@example..com",
		".a@example.com", "a.@example.com",
		"a..b@example.com", "a@-example.com", "a@example-.com", "a@example.com.", "a@ex_ample.com", "a@example.c",
		"\u202ea@example.com", "a\u200b@example.com",
		strings.Repeat("a", 65) + "@example.com", "a@" + strings.Repeat("b.", 130) + "example", "a@" + strings.Repeat("b", 64) + ".example",
	} {
		if IsEmail(attack) {
			t.Errorf("got %q accepted, want it refused", attack)
		}
	}
}
