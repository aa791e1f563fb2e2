package pxe_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/media"
	"github.com/ironplane/ironplane/services/pxe/storage"
	"github.com/ironplane/ironplane/services/pxe/storage/storagetest"
)

// importer serves the pxe service and works on its imports.
type importer struct {
	*testkit.Client
	store *storage.Store
}

func newImporter(t *testing.T, at string) *importer {
	t.Helper()
	db, err := pool.Open(
		t.Context(),
		testkit.Databases(t, testkit.Service{Name: pxe.Name, Migrations: pxe.Definition.Migrations})[pxe.Name].Reveal(),
		10,
		pool.Options{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	box, err := pxe.Definition.NewBox(seal.NewMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := pxe.New(service.Deps{DB: db.DB, Box: box, Settings: service.Settings{Store: at, AllowedNetworks: "127.0.0.1"}})
	kinds := []service.Job{s.Imports(2*time.Second, 3)}
	ctx, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		if err := jobs.NewRunner(pxe.Name, db.DB, db.Connections(), testkit.Wakes(pxe.Name, db.DB), kinds, log).Work(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		end()
		working.Wait()
	})
	return &importer{
		testkit.NewClient(t, testkit.As(rest.NewHandler(pxe.Name, db.DB, log, s.Routes()), testkit.AdminWith(principal.All))),
		storage.New(db.DB, at),
	}
}

// imported creates an ISO and waits until its import has ended.
func (i *importer) imported(t *testing.T, url string) (is media.ISOManager) {
	t.Helper()
	id := i.WithT(t).
		Do("POST", "/pxe/iso", fmt.Sprintf(`{"name": %q, "folder": "iso-%d", "url": %[1]q}`, url, time.Now().UnixNano())).
		Want(200).
		ID()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		is = testkit.Decode[media.ISOManager](i.WithT(t).Do("GET", fmt.Sprintf("/pxe/iso/%d", id), nil).Want(200))
		if is.Status == "ready" || is.Status == "failed" {
			return is
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s, want it ready or failed", testkit.JSON(is))
		}
	}
}

func windows(t *testing.T) []byte {
	t.Helper()
	return testkit.Gunzip(t, "media/image/testdata/windows.iso.gz")
}

// A server that stops sending is asked for the rest a limited number of times.
func TestISOOfAStallingServer(t *testing.T) {
	t.Parallel()
	i, image := newImporter(t, t.TempDir()), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	half := len(image) / 2
	for name, stalls := range map[string]struct {
		until int64 // how many requests stall
		after int   // bytes
		ready bool
	}{
		"in the middle":   {1, half, true},
		"before it sends": {1, 0, true},
		"always":          {1 << 30, half, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			var from sync.Map
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				from.Store(tries.Add(1), r.Header.Get("Range"))
				w.Header().Set("ETag", `"1"`)
				if tries.Load() > stalls.until {
					http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
					return
				}
				after := stalls.after
				if r.Header.Get("Range") != "" {
					after = 0
				}
				http.ServeContent(&stalling{w, r.Context(), after}, r, "", time.Time{}, bytes.NewReader(image))
			}))
			t.Cleanup(server.Close)
			is := i.imported(t, server.URL)
			if stalls.ready && (is.Status != "ready" || *is.SHA256 != sum) ||
				!stalls.ready && (is.Status != "failed" || *is.Error != "the server sent nothing for 2s") {
				t.Errorf("got %s, want ready: %v (otherwise failed because the server sent nothing for 2s)", testkit.JSON(is), stalls.ready)
			}
			if second, _ := from.Load(int64(2)); stalls.after > 0 && second == "" {
				t.Error("got a second request without a Range, want it to go on where the first one ended")
			}
		})
	}
}

// stalling sends nothing more after so many bytes, until its caller disconnects.
type stalling struct {
	http.ResponseWriter
	ctx  context.Context
	left int
}

func (s *stalling) Write(p []byte) (int, error) {
	if len(p) < s.left {
		s.left -= len(p)
		return s.ResponseWriter.Write(p)
	}
	_, _ = s.ResponseWriter.Write(p[:s.left])
	s.left = 0
	_ = http.NewResponseController(s.ResponseWriter).Flush()
	<-s.ctx.Done()
	panic(http.ErrAbortHandler)
}

// An ISO is imported to S3, also if the connection breaks.
func TestISOOnS3(t *testing.T) {
	t.Parallel()
	url, blobs := storagetest.NewS3(t)
	i, image := newImporter(t, url), windows(t)
	var tries atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if tries.Add(1) == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(image)))
			_, _ = w.Write(image[:len(image)/2])
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	}))
	t.Cleanup(server.Close)
	is := i.imported(t, server.URL)
	if sum := fmt.Sprintf("%x", sha256.Sum256(image)); is.Status != "ready" || *is.SHA256 != sum {
		t.Errorf("got %s, want it ready with the SHA-256 %s", testkit.JSON(is), sum)
	}
	held := 0
	for f, err := range i.store.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		content, err := i.store.Open(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		n, err := io.Copy(sum, content)
		_ = content.Close()
		if held++; err != nil || n != f.Size || fmt.Sprintf("%x", sum.Sum(nil)) != f.SHA256 || !strings.HasPrefix(f.Path, is.Folder) {
			t.Errorf("got %d bytes of %+v (%v), want its size and SHA-256, below %s", n, f, err, is.Folder)
		}
	}
	if n := len(blobs()); held != 4 || n != 2 {
		t.Errorf("got %d files in %d blobs, want 4 in 2", held, n)
	}
}
