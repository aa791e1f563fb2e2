package testkit

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a testing.TB that keeps its failure.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

func (f *failing) Fatal(args ...any) { f.text = fmt.Sprint(args...) }

func TestEventually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, f := time.Now(), &failing{TB: t}
		Eventually(f, "a minute has passed", func() bool { return time.Since(began) >= time.Minute })
		if elapsed := time.Since(began); f.text != "" || elapsed > time.Minute+maxPollInterval {
			t.Errorf("got %q after %s, want no failure after a minute", f.text, elapsed)
		}
		Eventually(f, "pigs fly", func() bool { return false }, func() string { return "they walk" })
		if want := "waited 5m0s in vain until pigs fly\nthey walk"; f.text != want {
			t.Errorf("got %q, want %q", f.text, want)
		}
	})
}

func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, f := 0, &failing{TB: t}
		count := func() int { n++; return n }
		if got := Await(f, "it is 5", count, func(n int) bool { return n == 5 }); got != 5 || f.text != "" {
			t.Errorf("got %d, %q, want 5", got, f.text)
		}
		n = 0
		Await(f, "it is negative", count, func(n int) bool { return n < 0 })
		if want := fmt.Sprintf("waited 5m0s in vain until it is negative\ngot %d", n); f.text != want {
			t.Errorf("got %q, want %q", f.text, want)
		}
	})
}

func TestMust(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	Must(f, nil)
	if f.text != "" {
		t.Errorf("got %q, want no failure", f.text)
	}
	Must(f, errors.New("broken"))
	if f.text != "broken" {
		t.Errorf("got %q, want broken", f.text)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := Median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
	if got := Median([]time.Duration{4, 1, 3, 2}); got != 3 {
		t.Errorf("got %v, want 3", got)
	}
}
