package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/secret"
)

// The check reports all failures at once. Optional checks do not fail it.
func TestCheckSaysAllAtOnce(t *testing.T) {
	t.Parallel()
	var c settings
	fails := errors.New("no\nanswer")
	p := Program{Name: "thing", Config: &c, Commands: []Command{{Name: "serve", Summary: "serve it", Run: func(context.Context) error {
		t.Error("got a run of the command, want none")
		return nil
	}}}, Checks: func() []health.Check {
		return []health.Check{
			{Name: "LISTEN: " + c.Listen, Ask: func(context.Context) error { return nil }},
			{Name: "URL", Ask: func(context.Context) error { return fails }},
			{Name: "NETWORKS", Optional: true, Ask: func(context.Context) error { return fails }},
			{Name: "AGENTS", Ask: func(context.Context) error { return health.NotTried("they are elsewhere") }},
		}
	}}
	for _, name := range []string{"check", "--check"} {
		var screen bytes.Buffer
		err := p.Run(t.Context(), []string{name}, []string{"RATE=many", "IRONPLANE_OTHER=x", "IRONPLANE_NOTHING="}, &screen)
		if err == nil || err.Error() != "thing would not start: 4 of 7 checks failed" {
			t.Errorf("got %v, want thing would not start: 4 of 7 checks failed", err)
		}
		const want = `fails    URL is not set: of what
fails    RATE is "many": it must be a number
fails    NAME is not set:
warning  IRONPLANE_OTHER is set, but this program does not read it
ok       LISTEN: 127.0.0.1:1
fails    URL: no
         answer
warning  NETWORKS: no
         answer
skipped  AGENTS: they are elsewhere
`
		if strings.ReplaceAll(screen.String(), ": \n", ":\n") != want {
			t.Errorf("got\n%s\nwant\n%s", &screen, want)
		}
	}
	fails = nil
	var screen bytes.Buffer
	if err := p.Run(
		t.Context(),
		[]string{"check"},
		[]string{"URL=x", "NAME=y"},
		&screen,
	); err != nil ||
		strings.Contains(screen.String(), "fails") {
		t.Errorf("got %v and\n%s\nwant no failure", err, &screen)
	}
}

// A variable that nearly spells one that the program reads fails the check. Others warn: they may be an orchestrator's.
func TestCheckMisspelledVariables(t *testing.T) {
	t.Parallel()
	var c struct {
		Listen   string        `env:"IRONPLANE_LISTEN" doc:"where"`
		Password secret.String `env:"IRONPLANE_SMTP_PASSWORD" doc:"which"`
	}
	p := Program{Name: "thing", Config: &c, Commands: []Command{{Name: "serve"}}, Checks: func() []health.Check { return nil }}
	for variable, want := range map[string]string{
		"IRONPLANE_LISTN":  "fails    IRONPLANE_LISTN is set, but this program does not read it: is it IRONPLANE_LISTEN?",
		"IRONPLANE_LISTNE": "fails    IRONPLANE_LISTNE is set, but this program does not read it: is it IRONPLANE_LISTEN?",
		"IRONPLAN_LISTEN":  "fails    IRONPLAN_LISTEN is set, but this program does not read it: is it IRONPLANE_LISTEN?",
		"IRONPLANE_SMTP_PASWORD_FILE": "fails    IRONPLANE_SMTP_PASWORD_FILE is set, but this program does not read it: is it " +
			"IRONPLANE_SMTP_PASSWORD_FILE?",
		"IRONPLANE_TLS_LISTEN":         "warning  IRONPLANE_TLS_LISTEN is set, but this program does not read it",
		"IRONPLANE_PORT_8080_TCP":      "warning  IRONPLANE_PORT_8080_TCP is set, but this program does not read it",
		"PATH":                         "",
		"IRONPLANE_SMTP_PASSWORD_FILE": "",
	} {
		var screen bytes.Buffer
		value := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(value, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := p.Run(t.Context(), []string{"check"}, []string{variable + "=" + value}, &screen)
		if got := strings.TrimSpace(screen.String()); got != want || (err != nil) != strings.HasPrefix(want, "fails") {
			t.Errorf("got %v and %q, want %q", err, got, want)
		}
	}
}

// outcomes runs checks, and returns their errors by name.
func outcomes(t *testing.T, checks []health.Check) map[string]error {
	t.Helper()
	all := map[string]error{}
	for _, c := range checks {
		all[c.Name] = c.Ask(t.Context())
	}
	return all
}

func TestCheckListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, says := range map[string]string{
		"127.0.0.1:0": "<nil>", "": "<nil>", l.Addr().String(): "is in use", "192.0.2.1:1": "cannot assign", "nowhere": "missing port",
	} {
		if err := CheckListen("LISTEN", address).Ask(t.Context()); !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%q: got %v, want %s", address, err, says)
		}
	}
}

// The checks probe the other services with the process's certificate.
func TestCheckMesh(t *testing.T) {
	t.Parallel()
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	network, err := authority.Identity("network")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(network.Listener(l)) }()
	t.Cleanup(func() { _ = server.Close() })
	folder := t.TempDir()
	files := func(a *mtls.Authority, name string) mtls.Files {
		issued, err := a.Issue(name)
		if err != nil {
			t.Fatal(err)
		}
		f := mtls.Files{Certificate: filepath.Join(folder, "crt"), Key: filepath.Join(folder, "key"), CA: filepath.Join(folder, "ca")}
		for file, text := range map[string][]byte{f.Certificate: issued.Certificate, f.Key: []byte(issued.Key.Reveal()), f.CA: a.Certificate()} {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	at := l.Addr().String()
	answers, is := "IRONPLANE_SERVICES: network answers at "+at, "certificate: valid, and for this process"
	c := MeshConfig{Services: Addresses{"network": {at}, "pxe": {"127.0.0.1:1"}, "gateway": nil}, Files: files(authority, "gateway")}
	found := outcomes(t, c.Checks("gateway"))
	if found[answers] != nil || found[is] != nil || found["certificate: does not expire soon"] != nil ||
		found["IRONPLANE_SERVICES: pxe answers at 127.0.0.1:1"] == nil ||
		len(found) != 4 {
		t.Errorf("got %v, want 4 checks, and a failure of pxe's alone", found)
	}
	if found = outcomes(t, c.Checks("system")); found[is] == nil || !strings.Contains(found[is].Error(), "not for the process system") {
		t.Errorf("the certificate of another service: got %v, want an error that says not for the process system", found)
	}
	c.Files = files(other, "gateway")
	if found = outcomes(t, c.Checks("gateway")); found[answers] == nil {
		t.Errorf("the certificate of another authority: got %v, want a failure of %q", found, answers)
	}
	c.Files = mtls.Files{}
	if found = outcomes(t, c.Checks("gateway")); len(found) != 1 || found["certificate"] == nil {
		t.Errorf("no certificate: got %v, want a failure of the certificate alone", found)
	}
	c.Consul = "http://127.0.0.1:1"
	if found = outcomes(
		t,
		c.Checks("gateway"),
	); found["CONSUL_URL: Consul answers, and lets this process find services"] == nil ||
		found[is] == nil {
		t.Errorf("without Consul: got %v, want failures of CONSUL_URL and %q", found, is)
	}
}
