package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestParseSummary(t *testing.T) {
	const processed = "number of transactions actually processed: 100\n"
	for output, want := range map[string]float64{
		processed + "initial connection time = 2 ms\ntps = 33120.5 (without initial connection time)\n":                   33120.5,
		processed + "tps = 10.1 (including connections establishing)\ntps = 12.25 (excluding connections establishing)\n": 12.25,
	} {
		if reads, rate, err := parseSummary(output); err != nil || reads != 100 || rate != want {
			t.Errorf("%q: got %d %v, %v, want 100 %v", output, reads, rate, err, want)
		}
	}
	for _, output := range []string{processed, processed + "tps = NaN (without initial connection time)", "tps = 1 (without initial " +
		"connection time)"} {
		if _, _, err := parseSummary(output); err == nil {
			t.Errorf("%q: got no error, want one", output)
		}
	}
	if _, _, err := parseSummary("number of transactions actually processed: 0\n"); !errors.Is(err, errNoReads) {
		t.Error(err)
	}
}

func TestReadLatencies(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"log.1": "0 1 100 0 1700000000 1\n1 1 200 0 1700000000 2\n", "log.1.1": "2 1 300 0 1700000000 3\n", "script.sql": "x",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readLatencies(filepath.Join(folder, "log.*"))
	if err != nil || all.TotalCount() != 3 || all.ValueAtQuantile(50) != 200 || all.Max() != 300 {
		t.Errorf("got %v, %v, want 3 reads with a median of 200 and 300 at most", all, err)
	}
	if _, err := readLatencies(filepath.Join(folder, "none.*")); err == nil {
		t.Error("got no error without a log, want one")
	}
}
