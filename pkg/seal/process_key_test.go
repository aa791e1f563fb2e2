package seal_test

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

func derive(t *testing.T, process string, purposes ...seal.Purpose) secret.String {
	t.Helper()
	key, err := seal.Derive(seal.NewMasterKey(), process, purposes...)
	if err != nil {
		t.Fatal(err)
	}
	return key.Text()
}

// Values that the first release sealed or signed open for ever, because the derivation of keys never changes.
func TestOldValuesOpen(t *testing.T) {
	t.Parallel()
	master := secret.New(base64.StdEncoding.EncodeToString([]byte("a master key of 32 bytes, for you")))
	from := func(text string) []byte {
		value, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	opened, err := box(t, "network", master).Open(location, from("517a89edd02c07f6f3a9d44504259eb4fccf18137005fd9fc9dabd4c078f41848af2535b08"))
	if err != nil || opened.Reveal() != "early" {
		t.Errorf("got %q, %v, want early", opened.Reveal(), err)
	}
	key, err := seal.Derive(master, "system", seal.Signing("system", "audit log"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := key.Signer(seal.Signing("system", "audit log"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := signer.Check(
		[]byte("x"),
		from("9751bc1544540b8606f72c8d6266125ff1f885ea4e5c39df28699336ff8ea2281182d6f3"),
	); !ok ||
		err != nil {
		t.Errorf("got %t, %v, want true, no error", ok, err)
	}
}

// A process key opens and signs only what its process needs.
func TestPurposes(t *testing.T) {
	t.Parallel()
	key, err := seal.ParseProcessKey(derive(t, "pxe", seal.Sealing("pxe")), "pxe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := key.Box("pxe"); err != nil {
		t.Error(err)
	}
	if _, err := key.Box("network"); err == nil {
		t.Error("a box for network: got no error, want one")
	}
	for _, p := range []seal.Purpose{seal.Signing("system", "audit log"), seal.Signing("pxe", "anything")} {
		if _, err := key.Signer(p); err == nil || !strings.Contains(err.Error(), p.Use) {
			t.Errorf("a signer for %s: got %v, want an error that names the use", p.Use, err)
		}
	}
}

func TestParseProcessKey(t *testing.T) {
	t.Parallel()
	good := derive(t, "pxe", seal.Sealing("pxe")).Reveal()
	for text, says := range map[string]string{
		"":                                     "must begin with ironplane-key-1:",
		seal.NewMasterKey().Reveal():           "must begin with ironplane-key-1:",
		good + ",":                             "must begin with ironplane-key-1:",
		good[:len(good)-1]:                     "is incomplete",
		good[:60] + good[61:] + good[60:61]:    "is incomplete",
		strings.Replace(good, "pxe", "net", 1): "is incomplete",
		derive(t, "network", seal.Sealing("network")).Reveal(): "this is the key of the process network, not of pxe",
	} {
		_, err := seal.ParseProcessKey(secret.New(text), "pxe")
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an error that says %q", err, says)
		} else if len(text) > 60 && strings.Contains(err.Error(), text[50:60]) {
			t.Errorf("got the error %v, want one without the key", err)
		}
	}
	if _, err := seal.ParseProcessKey(secret.New(" "+good+" ,\n"+good+"\n"), "pxe"); err != nil {
		t.Error(err)
	}
}
