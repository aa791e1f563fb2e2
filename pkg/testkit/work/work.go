// Package work measures in tests how work grows with its input.
package work

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// maxRatio is how many times the work twice the input may take. Quadratic work takes four times as much; linear work came
	// to 2.8 with the race detector.
	maxRatio = 3.0
	// minWork is the minimum duration of a measurement. The clock is precise enough for it.
	minWork = 10 * time.Millisecond
	// maxAttempts is the number of measurements before a test fails. Cache misses and garbage collection disturb single ones.
	maxAttempts = 8
)

// Linear fails the test if work on twice the input takes more than three times the CPU time of this thread. input returns an
// input of about n bytes.
func Linear[T any](t testing.TB, n int, input func(n int) T, work func(T)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	once, twice := input(n), input(2*n)
	var ratio float64
	for range maxAttempts {
		if ratio = float64(cpuTime(func() { work(twice) })) / float64(cpuTime(func() { work(once) })); ratio <= maxRatio {
			return
		}
	}
	t.Errorf("twice the input takes %.1f times the work", ratio)
}

// cpuTime returns the CPU time of this thread for do: the minimum of a few measurements.
func cpuTime(do func()) time.Duration {
	minimum := time.Duration(1<<63 - 1)
	for range 3 {
		times := 0
		began := threadTime()
		for threadTime()-began < minWork {
			do()
			times++
		}
		minimum = min(minimum, (threadTime()-began)/time.Duration(times))
	}
	return max(minimum, 1)
}

func threadTime() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		panic(err) // only for arguments that are not these
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Fill repeats a text up to about n bytes.
func Fill(text string, n int) string { return strings.Repeat(text, n/len(text)+1) }

// Numbered repeats a text with a number, from 0, up to about n bytes.
func Numbered(format string, n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
