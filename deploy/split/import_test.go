package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/media"
)

// An import whose service is killed goes on behind what it had.
func testImportGoesOnAfterAKill(t *testing.T, f *fleet, c *testkit.Client) {
	const piece, size = 64 << 20, 72 << 20 // of what a crash costs at most, and of the ISO
	image := make([]byte, size)
	copy(image, testkit.Gunzip(t, "../../services/pxe/media/image/testdata/windows.iso.gz")) // behind it are zeros
	var mu sync.Mutex
	var asked []string // for which ranges
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Range"))
		first := len(asked) == 1
		mu.Unlock()
		w.Header().Set("ETag", `"1"`)
		if !first {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(image[:piece+1<<20])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer door.Close()
	at := fmt.Sprintf(
		"/pxe/iso/%d",
		c.Do("POST", "/pxe/iso", fmt.Sprintf(`{"name": "large", "folder": "large", "url": %q}`, door.URL)).Want(http.StatusOK).ID(),
	)
	until := func(what string, is func(media.ISOManager) bool) (got media.ISOManager) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			answer := c.Do("GET", at, nil)
			if answer.Status == http.StatusOK { // else the service has just been killed
				if got = testkit.Decode[media.ISOManager](answer); is(got) {
					return got
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %s, want that %s", answer.Text, what)
			}
		}
	}
	until("a piece is there", func(is media.ISOManager) bool { return is.Progress > 0 })
	kill(t, f.processes[pxe.Name])
	if err := f.startService(t.Context(), pxe.Name); err != nil {
		t.Fatal(err)
	}
	is := until("it is imported", func(is media.ISOManager) bool { return is.Status == "ready" || is.Status == "failed" })
	if want := fmt.Sprintf("%x", sha256.Sum256(image)); is.Status != "ready" || *is.SHA256 != want {
		t.Errorf("got %s, want a ready image with the SHA-256 %s", testkit.JSON(is), want)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := fmt.Sprintf("bytes=%d-", piece); len(asked) != 2 || asked[1] != want {
		t.Errorf("got the ranges %q, want two, the second %q", asked, want)
	}
}
