package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// bufferPool holds the buffers with which httputil's proxy copies bodies.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte     { return *b.pool.Get().(*[]byte) }
func (b *bufferPool) Put(used []byte) { b.pool.Put(&used) }

// BenchmarkProxies reads a small response through a proxy over mTLS, whose other end is this process, too. It compares Upstream
// with httputil's proxy.
func BenchmarkProxies(b *testing.B) {
	i := newTestMesh(b)
	answer := []byte(`{"id":7,"name":"1 Gbit/s","speed":1000,"switchPortCount":false}` + "\n")
	address := i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	standardProxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "https", Host: address})
			r.Out.Header.Set(peers.CallHeader, string(peers.AppendCall(nil, caller)))
		},
		Transport:  &http.Transport{TLSClientConfig: i.gateway.ClientConfig("network"), MaxIdleConnsPerHost: maxIdleConnections},
		BufferPool: &bufferPool{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
	}
	for name, proxy := range map[string]http.Handler{"mesh": New(i.gateway, "network", []string{address}, i.log), "httputil": standardProxy} {
		b.Run(name, func(b *testing.B) {
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				proxy.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), caller)))
			}))
			defer front.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					got, err := client.Get(front.URL)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, got.Body)
					got.Body.Close()
				}
			})
		})
	}
}

// BenchmarkUpstream measures Upstream alone, with the service's end of the connection.
func BenchmarkUpstream(b *testing.B) {
	i := newTestMesh(b)
	upstream := New(i.gateway, "network", []string{i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "answer")
	}))}, i.log)
	r := httptest.NewRequest("GET", "/port-speed/7", nil)
	r = r.WithContext(principal.NewContext(r.Context(), caller))
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		if upstream.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatalf("got %d %s, want 200", w.Code, w.Body)
		}
	}
}
