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

// testImportGoesOnAfterAKill kills the service in the middle of the import of an ISO, and tests that the import
// resumes at the last stored piece.
func testImportGoesOnAfterAKill(t *testing.T, f *fleet, c *testkit.Client) {
	const piece, size = 64 << 20, 72 << 20 // piece is stored at once, so a crash costs at most one
	image := make([]byte, size)
	copy(image, testkit.Gunzip(t, "../../services/pxe/media/image/testdata/windows.iso.gz")) // the rest are zeros
	var mu sync.Mutex
	var ranges []string // the Range headers of the requests
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		ranges = append(ranges, r.Header.Get("Range"))
		first := len(ranges) == 1
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
	defer server.Close()
	at := fmt.Sprintf(
		"/pxe/iso/%d",
		c.Do("POST", "/pxe/iso", fmt.Sprintf(`{"name": "large", "folder": "large", "url": %q}`, server.URL)).Want(http.StatusOK).ID(),
	)
	awaitISO := func(condition string, is func(media.ISOManager) bool) (got media.ISOManager) {
		t.Helper()
		testkit.Eventually(t, condition, func() bool {
			response := c.Do("GET", at, nil)
			if response.Status != http.StatusOK { // the service has just been killed
				return false
			}
			got = testkit.Decode[media.ISOManager](response)
			return is(got)
		}, func() string { return "got " + testkit.JSON(got) })
		return got
	}
	awaitISO("the first piece is stored", func(is media.ISOManager) bool { return is.Progress > 0 })
	kill(t, f.processes[pxe.Name])
	if err := f.startService(t.Context(), pxe.Name); err != nil {
		t.Fatal(err)
	}
	is := awaitISO("the import has ended", func(is media.ISOManager) bool { return is.Status == "ready" || is.Status == "failed" })
	if want := fmt.Sprintf("%x", sha256.Sum256(image)); is.Status != "ready" || *is.SHA256 != want {
		t.Errorf("got %s, want a ready image with the SHA-256 %s", testkit.JSON(is), want)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := fmt.Sprintf("bytes=%d-", piece); len(ranges) != 2 || ranges[1] != want {
		t.Errorf("got the ranges %q, want two, the second %q", ranges, want)
	}
}
