package apikey_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := apikey.New().Reveal()
		if len(key) != 52 || !strings.HasPrefix(key, "ip_") || apikey.DetectFormat(key) != apikey.Issued {
			t.Fatalf("got the key %q, want 52 characters that begin with ip_ and the format %v", key, apikey.Issued)
		}
		at := rapid.IntRange(3, len(key)-1).Draw(t, "at")
		with := rapid.SampledFrom([]byte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-é ")).Draw(t, "with")
		typo := key[:at] + string(with) + key[at+1:]
		if typo != key && apikey.DetectFormat(typo) != apikey.Broken {
			t.Fatalf("%q for %q: got the format %v, want %v", typo, key, apikey.DetectFormat(typo), apikey.Broken)
		}
		if cut := key[:at]; apikey.DetectFormat(cut) != apikey.Broken {
			t.Fatalf("%q: got the format %v, want %v", cut, apikey.DetectFormat(cut), apikey.Broken)
		}
	})
	for _, key := range []string{"", "ip", "x", "IP_" + apikey.New().Reveal()[3:]} {
		if apikey.DetectFormat(key) != apikey.Imported {
			t.Errorf("%q: got the format %v, want %v", key, apikey.DetectFormat(key), apikey.Imported)
		}
	}
}
