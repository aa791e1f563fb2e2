package pxe_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/filesync"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// An agent that lists half a million files with long paths does not make the service keep them: it deletes some, and
// says that there are more.
func TestAgentListsTooManyFiles(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const maxGrowth = 128 << 20
	s := newSites(t)
	path := strings.Repeat("f", 200) + "/" + strings.Repeat("p", 200) + "/" + strings.Repeat("q", 200) + "/" + strings.Repeat("r", 200)
	sum := strings.Repeat("0", 64)
	f := s.fileServer("taken over", 0, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/v1/manifest":
				for n := range siteagent.MaxFiles {
					_, _ = fmt.Fprintf(w, `{"path": "%s/%08d", "size": 1, "sha256": "%s"}`+"\n", path, n, sum)
				}
				_, _ = fmt.Fprintf(w, `{"end": true, "files": %d}`+"\n", siteagent.MaxFiles)
			case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/v1/file/"):
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNoContent)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	growth := testkit.HeapGrowth(func() {
		s.sync(f)
		s.awaitSync(f, "the sync reports the agent's many files", func(is filesync.FileSync) bool {
			return len(is.Children) == 1 && is.Children[0].Error != nil && strings.Contains(*is.Children[0].Error, "too many other files")
		})
	})
	if growth > maxGrowth {
		t.Errorf("got %d MB more memory, want at most %d MB", growth>>20, maxGrowth>>20)
	}
}
