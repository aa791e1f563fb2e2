package scale

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

const (
	// maxExtraBytes is the additional memory that a complete list may use in the process, including the caller.
	maxExtraBytes = 32 << 20
	listRuns      = 3
	listTimeout   = 10 * time.Minute
)

// TestCompleteList lists all entities through the gateway into a file. It compares the time with that of PostgreSQL's COPY as
// JSON, and checks the memory.
func TestCompleteList(t *testing.T) {
	if *entities == 0 && *data == "" {
		t.Skip("make scale runs this test")
	}
	i := start(t, *data, *entities, func(*installation, *pgx.ConnConfig) {})
	folder := createSharedFolder(t)
	var ratios []float64
	for range listRuns {
		copied := i.copyOut(t, filepath.Join(folder, "copy"))
		listed, extra := i.listOut(t, filepath.Join(folder, "list"))
		ratios = append(ratios, copied.Seconds()/listed.Seconds())
		t.Logf("%d entities: COPY %v, list %v with %d KiB of additional memory", i.entities, copied, listed, extra>>10)
		if extra > maxExtraBytes {
			t.Errorf("got %d KiB of additional memory for a list, want %d at most", extra>>10, maxExtraBytes>>10)
		}
	}
	t.Logf("the list is %.2f times as fast as COPY (%.2f)", testkit.Median(ratios), ratios)
	if testkit.Median(ratios) < 1 {
		t.Errorf("got a list %.2f times as fast as COPY, want 1 or more", testkit.Median(ratios))
	}
}

// createSharedFolder creates a folder that PostgreSQL may write to.
func createSharedFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "ironplane-scale-")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	testkit.Must(t, os.Chmod(folder, 0o777))
	return folder
}

func (i *installation) copyOut(t testing.TB, path string) time.Duration {
	t.Helper()
	started := time.Now()
	_, err := i.conn.Exec(t.Context(), "COPY (SELECT row_to_json(v) FROM ip_entity_view v) TO '"+path+"'")
	testkit.Must(t, err)
	return time.Since(started)
}

func (i *installation) listOut(t testing.TB, path string) (elapsed time.Duration, extra uint64) {
	t.Helper()
	file, err := os.Create(path)
	testkit.Must(t, err)
	defer file.Close()
	memory := watchMemory()
	started := time.Now()
	response := i.list(t)
	defer response.Body.Close()
	out := bufio.NewWriterSize(file, 64<<10)
	_, err = io.Copy(out, response.Body)
	testkit.Must(t, err)
	testkit.Must(t, out.Flush())
	elapsed = time.Since(started)
	extra = memory()
	if items := count(t, file); items != i.entities {
		t.Errorf("got %d items, want %d", items, i.entities)
	}
	return elapsed, extra
}

// list requests all entities.
func (i *installation) list(t testing.TB) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.client.URL+"/entity", nil)
	testkit.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+i.client.Key)
	caller := http.Client{Timeout: listTimeout}
	response, err := caller.Do(request)
	testkit.Must(t, err)
	return response
}

// count returns the number of items in a complete list. It counts the separators "},{", which occur only between items.
func count(t testing.TB, list io.ReadSeeker) int64 {
	t.Helper()
	_, err := list.Seek(0, io.SeekStart)
	testkit.Must(t, err)
	text := bufio.NewScanner(list)
	text.Buffer(make([]byte, 64<<10), 64<<10)
	text.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if at := bytes.Index(data, []byte("},{")); at >= 0 {
			return at + 2, data[:at+1], nil
		}
		return bufio.ScanLines(data, atEOF)
	})
	items, last := int64(0), ""
	for ; text.Scan(); items++ {
		last = text.Text()
	}
	testkit.Must(t, text.Err())
	if !strings.HasSuffix(last, "}]") {
		t.Errorf("got a list that ends with %q, want }]", last)
	}
	return items
}

// watchMemory measures the process' memory until the returned function is called. That function returns the peak minus the
// memory at the start.
func watchMemory() func() uint64 {
	runtime.GC()
	before := heldMemory()
	var peak uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				peak = max(peak, heldMemory())
			case <-done:
				tick.Stop()
				return
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		return max(peak, before) - before
	}
}

// heldMemory returns the memory that the Go runtime holds.
func heldMemory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}
