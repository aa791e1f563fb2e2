package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/secret"
)

func TestNoWayOutButReveal(t *testing.T) {
	const value = "correct horse"
	s := secret.New(value)
	held := struct {
		Password secret.String
		Pointer  *secret.String
	}{s, &s}

	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+" "+verb+"\n", s, held)
	}
	marshalled, err := json.Marshal(held)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(marshalled)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "s", s, "held", held)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "s", s, "held", held)
	fmt.Fprint(&out, fmt.Errorf("login: %w", errors.New(fmt.Sprint(s))))

	for _, leak := range []string{value, fmt.Sprintf("%x", value)} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("got the value %q, want it hidden in\n%s", leak, out.String())
		}
	}
	if s.Reveal() != value {
		t.Errorf("got %q, want %q", s.Reveal(), value)
	}
}
