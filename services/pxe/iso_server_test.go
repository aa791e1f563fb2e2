package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/names"
)

// Whatever a server does, the import ends as ready, or with the reason.
func TestISOServers(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	whole := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	}
	for name, c := range map[string]struct {
		serve func(tries int64, w http.ResponseWriter, r *http.Request)
		more  string
		fails string // empty: the ISO becomes ready
	}{
		"cuts": {serve: func(_ int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			whole(&cutting{w, len(image)/3 + 1}, r)
		}},
		"cuts-without-ranges": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			if tries < 3 {
				w = &cutting{w, len(image) / 2}
			}
			whole(w, r)
		}},
		"changes": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, tries))
			if tries == 1 {
				http.ServeContent(&cutting{w, 1000}, r, "", time.Time{}, bytes.NewReader(make([]byte, 5000)))
				return
			}
			whole(w, r)
		}},
		"fails-at-first": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			if tries == 1 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			whole(w, r)
		}},
		"redirects":        {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { redirectOnce(w, r, whole) }},
		"without-length":   {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); _, _ = w.Write(image) }},
		"is-what-is-known": {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { whole(w, r) }, more: `, "sha256": "` + sum + `"`},
		"is-another":       {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { whole(w, r) }, more: `, "sha256": "` + strings.Repeat("0", 64) + `"`, fails: "SHA-256 is " + sum},
		"is-none": {
			serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, fails: "is not an ISO",
		},
		"is-empty": {serve: func(int64, http.ResponseWriter, *http.Request) {}, fails: "is not an ISO"},
		"is-damaged": {
			serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image[:len(image)/4]) }, fails: "is truncated",
		},
		"stops-early": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			_, _ = w.Write(image[:len(image)-1])
		}, fails: "is truncated"},
		"lies-shorter": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(image)-1))
			_, _ = w.Write(image[:len(image)-1]) // the last byte is padding that no file has
		}, fails: "is truncated"},
		"lies-longer": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if tries == 1 {
				w.Header().Set("Content-Length", fmt.Sprint(len(image)+1000))
				w = &cutting{w, len(image)}
			}
			whole(w, r)
		}},
		"is-missing": {
			serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, fails: "the server answered 404",
		},
		"is-too-large": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(17)<<30))
		}, fails: "is larger than 16 GiB"},
		"lies-of-ranges": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if tries > 1 {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", len(image)))
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			whole(&cutting{w, 1000}, r)
		}, fails: "another range than requested"},
		"leads-inside":        {serve: leadsTo("http://127.0.0.1/"), fails: "private network"},
		"leads-inside-by-v6":  {serve: leadsTo("http://[::ffff:127.0.0.1]/"), fails: "private network"},
		"leads-to-metadata":   {serve: leadsTo("http://169.254.169.254/latest/meta-data"), fails: "private network"},
		"leads-inside-mapped": {serve: leadsTo("http://[::ffff:169.254.169.254]/"), fails: "private network"},
		"leads-out-plainly":   {serve: leadsTo("http://192.88.99.1/"), fails: "http://"},
		"leads-round": {
			serve: func(_ int64, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, fails: "redirect",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			server := serveISO(t, func(w http.ResponseWriter, r *http.Request) { c.serve(tries.Add(1), w, r) })
			is := s.imported(t, name, server.URL, c.more)
			switch {
			case c.fails != "" && (is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, c.fails)):
				t.Errorf("got %s, want it failed with %q", testkit.JSON(is), c.fails)
			case c.fails == "" && (is.Status != "ready" || *is.SHA256 != sum || len(s.held(t, name+"/")) != 3):
				t.Errorf("got %s, want it ready with 3 files and the SHA-256 %s", testkit.JSON(is), sum)
			case c.fails != "" && len(s.held(t, name)) > 0:
				t.Errorf("got %d files of a failed import, want 0", len(s.held(t, name)))
			}
		})
	}
}

// cutting breaks the connection after so many bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

func redirectOnce(w http.ResponseWriter, r *http.Request, then http.HandlerFunc) {
	if r.URL.Path == "/" {
		http.Redirect(w, r, "/there", http.StatusFound)
		return
	}
	then(w, r)
}

func leadsTo(url string) func(int64, http.ResponseWriter, *http.Request) {
	return func(_ int64, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
}

// A host name may resolve to an allowed address for the check, and to another one for the connection. No address that is
// not allowed is contacted.
func TestISOOfAChangingName(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	server := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(&cutting{w, len(image) / 3}, r, "", time.Time{}, bytes.NewReader(image))
	})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	var inside atomic.Int64
	forbidden, err := net.Listen("tcp", forbiddenHost+":"+port)
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }),
		ReadHeaderTimeout: time.Minute,
	}
	t.Cleanup(func() { _ = other.Close() })
	go func() { _ = other.Serve(forbidden) }()
	var asked atomic.Int64
	host := names.Add(t, func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr(allowedHost)
		}
		return netip.MustParseAddr(forbiddenHost)
	})
	is := s.imported(t, "rebound", "http://"+host+":"+port, "")
	if is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, "private network") || inside.Load() > 0 ||
		asked.Load() < 2 {
		t.Errorf("got %s after %d questions and %d requests to the forbidden address, want it failed after at least 2 and 0",
			testkit.JSON(is), asked.Load(), inside.Load())
	}
	// One that has always led there is refused at once.
	is = s.imported(t, "inside", "http://"+names.Add(t, func() netip.Addr { return netip.MustParseAddr(forbiddenHost) })+":"+port, "")
	if is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, "private network") || inside.Load() > 0 {
		t.Errorf("got %s and %d requests to the forbidden address, want it failed and 0", testkit.JSON(is), inside.Load())
	}
}
