package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain runs the test binary as a server if bench starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serverCommand {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestBench runs all measurements for the shortest duration.
func TestBench(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	profiles := t.TempDir()
	s, err := parse(
		[]string{"-duration", "1s", "-warmup", "0s", "-rounds", "1", "-connections", "4", "-rows", "100", "-prefix", "18", "-profiles", profiles},
	)
	if err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	if err := bench(t.Context(), s, &screen); err != nil {
		t.Fatalf("%v\n%s", err, &screen)
	}
	_, table, _ := strings.Cut(screen.String(), "to pgbench\n")
	if strings.Count(screen.String(), "to pgbench\n") != 3 || strings.Count(screen.String(), "Creating 16384 IP entities of a /18") != 1 {
		t.Errorf("got a report that lacks measurements, want 3 comparisons to pgbench and one /18:\n%s", &screen)
	}
	for _, name := range []string{
		pgbenchName, serviceName, nginxName, gatewayName, splitName, nginxTLSName, gatewayTLSName, nginxHTTP2Name, gatewayHTTP2Name,
	} {
		if !strings.Contains(table, name) && !strings.Contains(screen.String(), strings.Split(name, ",")[0]+" is skipped") {
			t.Errorf("got a table without %s, want it there:\n%s", name, &screen)
		}
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("got %v left behind (%v), want nothing", left, err)
	}
	for _, kind := range []string{"service", "gateway"} {
		if info, err := os.Stat(profiles + "/" + kind + ".prof"); err != nil || info.Size() == 0 {
			t.Errorf("got no profile of the %s (%v), want one", kind, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, arguments := range []string{
		"-duration 500ms", "-duration 1500ms", "-duration 0s", "-warmup -1s", "-rounds 0",
		"-rows 0", "-prefix 15", "-connections -1", "-only alocate", "fast",
	} {
		if _, err := parse(strings.Fields(arguments)); err == nil {
			t.Errorf("%s: got no error, want a refusal", arguments)
		}
	}
}
