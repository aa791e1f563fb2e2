package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

var location = seal.Location{Table: "dhcp_server", Column: "api_key", ID: 7}

// box returns a service's box, derived through the text of a process key.
func box(t *testing.T, service string, masterKeys ...secret.String) *seal.Box {
	t.Helper()
	var texts []string
	for _, key := range masterKeys {
		texts = append(texts, key.Reveal())
	}
	key, err := seal.Derive(
		secret.New(strings.Join(texts, ", ")),
		service,
		seal.Sealing(service),
		seal.Signing(service, "log"),
		seal.Signing(service, "letters"),
	)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := seal.ParseProcessKey(key.Text(), service)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parsed.Box(service)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A sealed value opens only at its location, unchanged, and for its service.
func TestSeal(t *testing.T) {
	t.Parallel()
	master := seal.NewMasterKey()
	b := box(t, "pxe", master)
	for _, value := range []string{"", "x", strings.Repeat("long ", 1000)} {
		sealed := b.Seal(location, secret.New(value))
		if len(value) > 8 && bytes.Contains(sealed, []byte(value)) {
			t.Error("got the value in the sealed bytes, want it hidden")
		}
		opened, err := box(t, "pxe", master).Open(location, sealed)
		if err != nil || opened.Reveal() != value {
			t.Errorf("got %d bytes, %v, want %d", len(opened.Reveal()), err, len(value))
		}
	}
	sealed := b.Seal(location, secret.New("correct horse"))
	if bytes.Equal(sealed, b.Seal(location, secret.New("correct horse"))) {
		t.Error("got the same bytes for the same value twice, want others")
	}
	for _, other := range []seal.Location{
		{Table: "dhcp_server", Column: "api_key", ID: 8}, {Table: "dhcp_server", Column: "name", ID: 7},
		{Table: "file_server", Column: "api_key", ID: 7},
	} {
		if _, err := b.Open(other, sealed); err == nil {
			t.Errorf("%+v: got no error, want one", other)
		}
	}
	if _, err := box(t, "system", master).Open(location, sealed); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("open as another service: got %v, want %v", err, seal.ErrOtherKey)
	}
	for i := range sealed {
		altered := bytes.Clone(sealed)
		altered[i] ^= 1
		if _, err := b.Open(location, altered); err == nil {
			t.Errorf("byte %d altered: got no error, want one", i)
		}
		if _, err := b.Open(location, sealed[:i]); err == nil {
			t.Errorf("the first %d bytes: got no error, want one", i)
		}
	}
}

// The first master key seals and signs. The other ones open and check older values.
func TestRotate(t *testing.T) {
	t.Parallel()
	first, second := seal.NewMasterKey(), seal.NewMasterKey()
	before, both, after := box(t, "pxe", first), box(t, "pxe", second, first), box(t, "pxe", second)
	early, late := before.Seal(location, secret.New("early")), both.Seal(location, secret.New("late"))
	if opened, err := both.Open(location, early); err != nil || opened.Reveal() != "early" {
		t.Errorf("got %q, %v, want early", opened.Reveal(), err)
	}
	if opened, err := after.Open(location, late); err != nil || opened.Reveal() != "late" {
		t.Errorf("got %q, %v, want late", opened.Reveal(), err)
	}
	if _, err := after.Open(location, early); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("got %v, want %v", err, seal.ErrOtherKey)
	}
	signature := before.Signer("log").Sign([]byte("x"))
	if age, ok, err := both.Signer("log").Check([]byte("x"), signature); age != 1 || !ok || err != nil {
		t.Errorf("the second key: got %v, %t, %v, want 1, true, no error", age, ok, err)
	}
	if age, ok, err := after.Signer("log").Check([]byte("x"), both.Signer("log").Sign([]byte("x"))); age != 0 || !ok || err != nil {
		t.Errorf("the first key: got %v, %t, %v, want 0, true, no error", age, ok, err)
	}
	if _, _, err := after.Signer("log").Check([]byte("x"), signature); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("got %v, want %v", err, seal.ErrOtherKey)
	}
	if _, ok, _ := both.Signer("log").Check([]byte("y"), signature); ok {
		t.Error("the signature of another message: got true, want false")
	}
	if _, ok, _ := both.Signer("letters").Check([]byte("x"), signature); ok {
		t.Error("the signature for another purpose: got true, want false")
	}
}

func TestMasterKey(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString([]byte("thirty-one bytes are not enough"))
	for _, invalid := range []string{"", ",", "hunter2 hunter2 hunter2 hunter2 hunter2", short, seal.NewMasterKey().Reveal() + ","} {
		_, err := seal.Derive(secret.New(invalid), "pxe", seal.Sealing("pxe"))
		if err == nil {
			t.Errorf("%q: got a key, want an error", invalid)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got the error %v, want one without the key", err)
		}
	}
}
