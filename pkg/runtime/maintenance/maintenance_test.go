package maintenance_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

func TestReason(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := maintenance.File(filepath.Join(folder, "maintenance"))
	for _, none := range []maintenance.File{"", file, file + "/below/nothing"} {
		if _, isActive := none.Reason(); isActive || none.Refuse() != nil {
			t.Errorf("%q: got maintenance, want none", none)
		}
	}
	for content, wanted := range map[string]string{
		"": "No reason was given.", " \n": "No reason was given.", "until 14:00\n": "until 14:00",
		"\xffa\n": "a", strings.Repeat("ä", 400): strings.Repeat("ä", 250), "x" + strings.Repeat("ä", 400): "x" + strings.Repeat("ä", 249),
	} {
		if err := os.WriteFile(string(file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if reason, isActive := file.Reason(); reason != wanted || !isActive {
			t.Errorf("%q: got %q, %t, want %q, true", content, reason, isActive, wanted)
		}
		if err := file.Refuse(); !problem.Is(err, problem.Unavailable) || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: got %v, want unavailable that says %q", content, err, wanted)
		}
	}
	if _, isActive := maintenance.File(folder).Reason(); !isActive {
		t.Error("a file that cannot be read: got no maintenance, want some")
	}
}

// Work pauses during maintenance, which may be active at its beginning, and ends with its context.
func TestRunOutside(t *testing.T) {
	t.Parallel()
	file := maintenance.File(filepath.Join(t.TempDir(), "maintenance"))
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
		file.RunOutside(ctx, func(ctx context.Context) {
			if _, isActive := file.Reason(); isActive {
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
	stop()
	<-ended
	<-left
}
