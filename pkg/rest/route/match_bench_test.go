package route

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkMatch finds the first and the last of the paths of a service with ten resources.
func BenchmarkMatch(b *testing.B) {
	const resources = 10
	matched := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	all := newRouter(slog.New(slog.DiscardHandler))
	for n := range resources {
		for _, path := range []string{"", "/{thing_id}", "/{thing_id}/part", "/{thing_id}/part/{part_id}"} {
			all.handle(fmt.Sprintf("/thing-%d%s", n, path), matched)
		}
	}
	for name, path := range map[string]string{"first": "/thing-0", "last": fmt.Sprintf("/thing-%d/7/part/8", resources-1)} {
		b.Run(name, func(b *testing.B) {
			r, w := httptest.NewRequest("GET", path, nil), new(status)
			b.ReportAllocs()
			for b.Loop() {
				if all.ServeHTTP(w, r); *w != http.StatusNoContent {
					b.Fatalf("got %d, want 204", *w)
				}
			}
		})
	}
}

// status is a response writer that keeps only the status.
type status int

func (*status) Header() http.Header         { return http.Header{} }
func (*status) Write(p []byte) (int, error) { return len(p), nil }
func (s *status) WriteHeader(code int)      { *s = status(code) }
