package testkit

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

const (
	minPollInterval = time.Millisecond
	maxPollInterval = 20 * time.Millisecond
)

// Eventually waits until holds returns true. It fails the test after five minutes, a deadline that only a failing test
// reaches. what says what should have come true, and show returns what else the failure should print, such as a log.
func Eventually(t testing.TB, condition string, holds func() bool, show ...func() string) {
	t.Helper()
	if poll(waitTimeout, holds) {
		return
	}
	more := ""
	for _, s := range show {
		more += "\n" + s()
	}
	t.Fatalf("waited %s in vain until %s%s", waitTimeout, condition, more)
}

// Await calls get until is accepts what it returned, and returns that. It fails the test after five minutes, with the last value.
func Await[T any](t testing.TB, condition string, get func() T, is func(T) bool) (got T) {
	t.Helper()
	Eventually(t, condition, func() bool { got = get(); return is(got) }, func() string { return "got " + JSON(got) })
	return got
}

// poll calls holds at growing intervals until it returns true, or for as long as timeout. It reports whether holds did.
func poll(timeout time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(timeout)
	for interval := minPollInterval; !holds(); interval = min(2*interval, maxPollInterval) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(interval)
	}
	return true
}

// Must fails the test where there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Median returns the value in the middle, the upper one of two.
func Median[T cmp.Ordered](values []T) T {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
