package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// An uploaded file appears once it is complete and verified. An interrupted upload resumes.
func TestUpload(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := start(t, folder)
	content := strings.Repeat("0123456789", 100_000)
	f := newFile("big", content)
	received := func(want int64) {
		t.Helper()
		if got, err := r.client.GetReceived(t.Context(), f.SHA256); err != nil || got != want {
			t.Fatalf("got %d bytes received (%v), want %d", got, err, want)
		}
	}
	upload := fmt.Sprintf("/v1/file/big?sha256=%s&size=%d&offset=0", f.SHA256, f.Size)
	if status, text := r.request("PUT", upload, key, strings.NewReader(content[:300_000])); status != http.StatusBadRequest {
		t.Errorf("got %d %s for half a file, want %d", status, text, http.StatusBadRequest)
	}
	received(300_000)
	r.wantTree(map[string]string{})
	r.stop()
	r = start(t, folder)
	received(300_000)
	if err := r.client.Put(t.Context(), f, f.Size-10, strings.NewReader(content[f.Size-10:])); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("got %v for another offset, want a refusal with %d", err, http.StatusConflict)
	}
	testkit.Must(t, r.client.Put(t.Context(), f, 300_000, strings.NewReader(content[300_000:])))
	r.wantTree(map[string]string{"big": content})

	mismatched := newFile("wrong", "one content")
	if err := r.client.Put(
		t.Context(),
		mismatched,
		0,
		strings.NewReader("two content"),
	); !siteagent.IsRefusal(
		err,
		http.StatusUnprocessableEntity,
	) {
		t.Errorf("got %v for another content, want a refusal with %d", err, http.StatusUnprocessableEntity)
	}
	r.wantTree(map[string]string{"big": content})
}

// A known content is not sent again, and a file is replaced at once.
func TestKnownContent(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	r.put("one", "content")
	f := newFile("folder/two", "content")
	if n, err := r.client.GetReceived(t.Context(), f.SHA256); err != nil || n != f.Size {
		t.Errorf("got %d bytes received (%v), want %d", n, err, f.Size)
	}
	testkit.Must(t, r.client.Put(t.Context(), f, f.Size, http.NoBody))
	r.put("one", "another")
	r.put("empty", "")
	r.wantTree(map[string]string{"one": "another", "folder/two": "content", "empty": ""})
	if err := r.client.Put(t.Context(), newFile("one/below", "x"), 0, strings.NewReader("x")); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("got %v for a path below a file, want a refusal with %d", err, http.StatusConflict)
	}
	if err := r.client.Put(t.Context(), newFile("folder", "x"), 0, strings.NewReader("x")); !siteagent.IsRefusal(err, http.StatusConflict) {
		t.Errorf("got %v for the path of a folder, want a refusal with %d", err, http.StatusConflict)
	}
	testkit.Must(t, r.client.Delete(t.Context(), "folder/two"))
	testkit.Must(t, r.client.Delete(t.Context(), "folder/two"))
	if _, err := os.Stat(filepath.Join(r.folder, "files/folder")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for an empty folder, want %v", err, fs.ErrNotExist)
	}
	// The agent notices files that are changed by hand.
	testkit.Must(t, os.WriteFile(filepath.Join(r.folder, "files/one"), []byte("by hand"), 0o644))
	all, err := r.client.GetManifest(t.Context())
	if err != nil || len(all) != 2 || all[1] != newFile("one", "by hand") {
		t.Errorf("got the files %v (%v), want 2 with one as it was written by hand", all, err)
	}
}
