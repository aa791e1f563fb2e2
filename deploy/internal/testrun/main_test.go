package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample writes a module whose tests fail in the given ways, and makes it the working directory.
func sample(t *testing.T, tests string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n",
		"sample_test.go": `package sample

import (
	"os"
	"path/filepath"
	"testing"
)

// once fails the first time that it is called.
func once(t *testing.T) {
	if _, err := os.Stat(filepath.Base(t.Name())); err != nil {
		_ = os.WriteFile(filepath.Base(t.Name()), nil, 0o600)
		t.Fatal("got nothing, want luck")
	}
}

func TestGood(t *testing.T) {}
` + tests,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(folder)
	t.Setenv("GOWORK", "off")
}

func TestRetry(t *testing.T) {
	for name, c := range map[string]struct {
		tests  string
		passes bool
		flaky  int
		prints string // a part of what is printed, or of the error
	}{
		"green":            {"", true, 0, "ok  \tsample"},
		"flaky":            {"func TestLuck(t *testing.T) { once(t) }", true, 1, "flaky: sample.TestLuck (-shuffle "},
		"a flaky sub-test": {"func TestLuck(t *testing.T) { t.Run(\"a\", func(t *testing.T) { once(t) }) }", true, 1, "got nothing, want luck"},
		"red":              {"func TestRed(t *testing.T) { t.Fatal(\"got 1, want 2\") }", false, 0, "sample.TestRed failed twice"},
		"panic":            {"func TestPanic(t *testing.T) { panic(\"no\") }", false, 0, "not run again"},
		"a promise":        {"func TestCrashOfAll(t *testing.T) { once(t) }", false, 0, "not run again: sample.TestCrashOfAll"},
		"a race": {
			"func TestRace(t *testing.T) { once2(t) }\nfunc once2(t *testing.T) { t.Error(\"WARNING: DATA RACE\") }", false, 0, "not run again",
		},
		"does not build": {"func TestBuild(t *testing.T) { missing() }", false, 0, "sample failed as a whole"},
		"three": {
			"func TestA(t *testing.T) { once(t) }\nfunc TestB(t *testing.T) { once(t) }\nfunc TestC(t *testing.T) { once(t) }",
			false, 0, "3 tests failed, and at most 2 may be flaky",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sample(t, c.tests)
			arguments := []string{"-shuffle=on", "./..."}
			var screen bytes.Buffer
			first := newRun()
			err := first.start(&screen, arguments)
			flaky := 0
			if err != nil {
				flaky, err = retryFailed(&screen, first, arguments, err)
			}
			if (err == nil) != c.passes {
				t.Errorf("got error %v, want it to pass: %t", err, c.passes)
			}
			if flaky != c.flaky {
				t.Errorf("got %d flaky tests, want %d", flaky, c.flaky)
			}
			output := screen.String()
			if err != nil {
				output += err.Error()
			}
			if !strings.Contains(output, c.prints) {
				t.Errorf("got %q, want %q in it", output, c.prints)
			}
		})
	}
}

func TestAlone(t *testing.T) {
	got := strings.Join(alone(id{"m/a", "TestX"}, []string{"-race", "-timeout", "40m", "./a/...", "example.com/b", "-args", "-full"}), " ")
	want := "m/a -race -timeout 40m -count=1 -run ^TestX$ -args -full"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
