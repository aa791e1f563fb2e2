package feed_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/feed"
)

func open(t *testing.T, folder string) *feed.Feed {
	t.Helper()
	f, err := feed.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func appendText(t *testing.T, f *feed.Feed, text string) {
	t.Helper()
	if err := f.Append(siteagent.Entry{Kind: "test", Text: text}); err != nil {
		t.Fatal(err)
	}
}

// readAll returns all entries' texts, read in several steps, and checks their numbers.
func readAll(t *testing.T, f *feed.Feed, after int64) (texts []string) {
	t.Helper()
	for {
		found, err := f.ReadAfter(after)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Entries) == 0 {
			if after != found.Last {
				t.Fatalf("got %d entries, want %d", after, found.Last)
			}
			return texts
		}
		for _, e := range found.Entries {
			if after++; e.Number != after {
				t.Fatalf("got entry %d, want %d", e.Number, after)
			}
			texts = append(texts, e.Text)
		}
	}
}

// After a crash the feed has all entries that Append stored, and nothing of an incomplete one.
func TestFeed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var want []string
	for round, torn := range []string{"", `{"number":`, "\x00\x00\n", `{"number":7000,"kind":"test"}` + "\n"} {
		f := open(t, folder)
		for i := range 600 {
			want = append(want, fmt.Sprint(round, i))
			appendText(t, f, want[len(want)-1])
		}
		if got := readAll(t, f, 0); !slices.Equal(got, want) {
			t.Fatalf("round %d: got %d entries, want the %d that were written", round, len(got), len(want))
		}
		if got := readAll(t, f, 598); !slices.Equal(got, want[598:]) {
			t.Errorf("round %d: got %d entries after 598, want %d", round, len(got), len(want)-598)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		segments, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
		if err != nil || len(segments) != len(want)/1001+1 {
			t.Fatalf("got the segments %v (%v), want %d", segments, err, len(want)/1001+1)
		}
		newest, err := os.OpenFile(segments[len(segments)-1], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newest.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		_ = newest.Close()
	}
	f := open(t, folder)
	if got := readAll(t, f, 0); !slices.Equal(got, want) {
		t.Errorf("got %d entries, want the %d that were written", len(got), len(want))
	}
	found, err := f.ReadAfter(5000)
	if err != nil || len(found.Entries) > 0 || found.Entries == nil || found.Last != 2400 {
		t.Errorf("got %+v (%v), want an empty list and 2400 as the last", found, err)
	}
	// Without its history file the feed starts another history.
	if err := os.Remove(filepath.Join(folder, "history")); err != nil {
		t.Fatal(err)
	}
	other, err := open(t, folder).ReadAfter(0)
	if err != nil || other.Last != 0 || other.History == found.History {
		t.Errorf("got %+v (%v), want another history without entries", other, err)
	}
}
