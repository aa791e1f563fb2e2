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

var place = seal.Place{Table: "dhcp_server", Column: "api_key", ID: 7}

// box is a service's box, by way of the text that a process is given.
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
	told, err := seal.ParseProcessKey(key.Text(), service)
	if err != nil {
		t.Fatal(err)
	}
	b, err := told.Box(service)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is sealed opens at its place, whole and for its service alone.
func TestSeal(t *testing.T) {
	t.Parallel()
	master := seal.NewMasterKey()
	b := box(t, "pxe", master)
	for _, value := range []string{"", "x", strings.Repeat("long ", 1000)} {
		sealed := b.Seal(place, secret.New(value))
		if len(value) > 8 && bytes.Contains(sealed, []byte(value)) {
			t.Error("the value is not sealed")
		}
		opened, err := box(t, "pxe", master).Open(place, sealed)
		if err != nil || opened.Reveal() != value {
			t.Errorf("opened %d bytes: %v", len(opened.Reveal()), err)
		}
	}
	sealed := b.Seal(place, secret.New("correct horse"))
	if bytes.Equal(sealed, b.Seal(place, secret.New("correct horse"))) {
		t.Error("the same twice looks the same")
	}
	for _, other := range []seal.Place{
		{Table: "dhcp_server", Column: "api_key", ID: 8}, {Table: "dhcp_server", Column: "name", ID: 7},
		{Table: "file_server", Column: "api_key", ID: 7},
	} {
		if _, err := b.Open(other, sealed); err == nil {
			t.Errorf("opened at %+v", other)
		}
	}
	if _, err := box(t, "system", master).Open(place, sealed); !errors.Is(err, seal.ErrOtherKey) {
		t.Errorf("another service opens it: %v", err)
	}
	for i := range sealed {
		altered := bytes.Clone(sealed)
		altered[i] ^= 1
		if _, err := b.Open(place, altered); err == nil {
			t.Errorf("byte %d does not matter", i)
		}
		if _, err := b.Open(place, sealed[:i]); err == nil {
			t.Errorf("%d bytes are enough", i)
		}
	}
}

// The first master key seals and signs; the others open and check what was made before.
func TestRotate(t *testing.T) {
	t.Parallel()
	first, second := seal.NewMasterKey(), seal.NewMasterKey()
	before, both, after := box(t, "pxe", first), box(t, "pxe", second, first), box(t, "pxe", second)
	early, late := before.Seal(place, secret.New("early")), both.Seal(place, secret.New("late"))
	if opened, err := both.Open(place, early); err != nil || opened.Reveal() != "early" {
		t.Error(err)
	}
	if opened, err := after.Open(place, late); err != nil || opened.Reveal() != "late" {
		t.Error(err)
	}
	if _, err := after.Open(place, early); !errors.Is(err, seal.ErrOtherKey) {
		t.Error(err)
	}
	signature := before.Signer("log").Sign([]byte("x"))
	if age, ok, err := both.Signer("log").Check([]byte("x"), signature); age != 1 || !ok || err != nil {
		t.Error(age, ok, err)
	}
	if age, ok, err := after.Signer("log").Check([]byte("x"), both.Signer("log").Sign([]byte("x"))); age != 0 || !ok || err != nil {
		t.Error(age, ok, err)
	}
	if _, _, err := after.Signer("log").Check([]byte("x"), signature); !errors.Is(err, seal.ErrOtherKey) {
		t.Error(err)
	}
	if _, ok, _ := both.Signer("log").Check([]byte("y"), signature); ok {
		t.Error("the signature is that of another message, too")
	}
	if _, ok, _ := both.Signer("letters").Check([]byte("x"), signature); ok {
		t.Error("the signature is good for another purpose, too")
	}
}

func TestMasterKey(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString([]byte("thirty-one bytes are not enough"))
	for _, wrong := range []string{"", ",", "hunter2 hunter2 hunter2 hunter2 hunter2", short, seal.NewMasterKey().Reveal() + ","} {
		_, err := seal.Derive(secret.New(wrong), "pxe", seal.Sealing("pxe"))
		if err == nil {
			t.Errorf("%q is taken", wrong)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Error("the error shows it")
		}
	}
}
