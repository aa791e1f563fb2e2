package maintenance_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

func TestFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := maintenance.File(filepath.Join(folder, "maintenance"))
	for _, none := range []maintenance.File{"", file, file + "/below/nothing"} {
		if s := (&maintenance.Switch{File: none}); s.Status() != nil || s.Refuse() != nil {
			t.Errorf("%q: got maintenance, want none", none)
		}
	}
	s := &maintenance.Switch{File: file}
	for content, wanted := range map[string]string{
		"": "No reason was given.", " \n": "No reason was given.", "until 14:00\n": "until 14:00",
		"\xffa\n": "a", strings.Repeat("ä", 400): strings.Repeat("ä", 250), "x" + strings.Repeat("ä", 400): "x" + strings.Repeat("ä", 249),
	} {
		if err := os.WriteFile(string(file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := s.Status(); got == nil || got.Reason != wanted || got.By != maintenance.ByFile || time.Since(got.Since) > time.Hour {
			t.Errorf("%q: got %+v, want %q by the file, since now", content, got, wanted)
		}
		if err := s.Refuse(); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: got %v, want unavailable that says %q", content, err, wanted)
		}
	}
	if maintenance.File(folder).Status() == nil {
		t.Error("a file that cannot be read: got no maintenance, want some")
	}
}

// The file and the stored state both begin maintenance. It ends when both have ended.
func TestSwitch(t *testing.T) {
	t.Parallel()
	s := &maintenance.Switch{File: maintenance.File(filepath.Join(t.TempDir(), "maintenance"))}
	stored := &maintenance.Status{Since: time.Unix(1, 0), Reason: "stored", By: maintenance.BySwitch}
	s.Set(stored)
	if got := s.Status(); got != stored {
		t.Errorf("got %+v, want %+v", got, stored)
	}
	if err := s.File.Begin("of the file"); err != nil {
		t.Fatal(err)
	}
	if got := s.Status(); got == nil || got.Reason != "of the file" {
		t.Errorf("got %+v, want the file's", got)
	}
	s.Set(nil)
	if got := s.Status(); got == nil || got.By != maintenance.ByFile {
		t.Errorf("got %+v, want the file's", got)
	}
	if err := s.File.End(); err != nil || s.Status() != nil {
		t.Errorf("got %+v (%v), want no maintenance", s.Status(), err)
	}
}

// Work pauses during maintenance, which may be active at its beginning, and ends with its context.
func TestRunOutside(t *testing.T) {
	t.Parallel()
	file := maintenance.File(filepath.Join(t.TempDir(), "maintenance"))
	s := &maintenance.Switch{File: file}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(file.Begin("at the start"))
	ctx, stop := context.WithCancel(t.Context())
	began, ended, left := make(chan struct{}), make(chan error), make(chan struct{})
	go func() {
		defer close(left)
		s.RunOutside(ctx, func(ctx context.Context) {
			if s.Status() != nil {
				t.Error("got work that begins during maintenance, want it to wait")
			}
			began <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
		})
	}()
	for range 2 {
		must(file.End())
		<-began
		must(file.Begin("again"))
		if err := <-ended; !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			t.Errorf("got %v while the caller's context has %v, want %v and none", err, ctx.Err(), context.Canceled)
		}
	}
	must(file.End())
	must(file.End())
	<-began
	s.Set(&maintenance.Status{}) // the stored state pauses it, too
	<-ended
	s.Set(nil)
	<-began
	stop()
	<-ended
	<-left
}
