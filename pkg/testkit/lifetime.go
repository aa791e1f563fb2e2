package testkit

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
)

// lifetime is the testing.TB of things that all tests of a program share. It ends in Main, after the last test.
type lifetime struct {
	testing.TB // nil: other methods are not supported outside of a test
	mu         sync.Mutex
	cleanups   []func()
}

var shared lifetime

// Shared returns the testing.TB of what the tests of a program share, such as a running product. What it cleans up lives until
// Main has run all tests. A failure there ends the program.
func Shared() testing.TB { return &shared }

func (l *lifetime) Helper()                           {}
func (l *lifetime) Name() string                      { return "shared" }
func (l *lifetime) Context() context.Context          { return context.Background() }
func (l *lifetime) Output() io.Writer                 { return os.Stderr }
func (l *lifetime) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (l *lifetime) Fatal(args ...any)                 { panic(fmt.Sprintln(args...)) }
func (l *lifetime) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (l *lifetime) Error(args ...any)                 { panic(fmt.Sprintln(args...)) }
func (l *lifetime) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (l *lifetime) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

func (l *lifetime) TempDir() string {
	folder, err := newFolder(false)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// end runs the cleanups in reverse order.
func (l *lifetime) end() {
	for len(l.cleanups) > 0 {
		last := l.cleanups[len(l.cleanups)-1]
		l.cleanups = l.cleanups[:len(l.cleanups)-1]
		last()
	}
}
