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
	// mostExtra is what a complete list may add to the memory of the process, whose caller is in it, too.
	mostExtra = 32 << 20
	listRuns  = 3
	listTime  = 10 * time.Minute
)

// TestCompleteList lists all entities through the gateway into a file, by turns with Postgres' own COPY of them as
// JSON, and compares the times and the sizes.
func TestCompleteList(t *testing.T) {
	if *entities == 0 && *data == "" {
		t.Skip("it takes minutes: make scale")
	}
	i := start(t, *data, *entities, func(*installation, *pgx.ConnConfig) {})
	folder := shared(t)
	var ratios []float64
	for range listRuns {
		copied := i.copyOut(t, filepath.Join(folder, "copy"))
		listed, extra := i.listOut(t, filepath.Join(folder, "list"))
		ratios = append(ratios, copied.Seconds()/listed.Seconds())
		t.Logf("%d entities: COPY %v, list %v, which took %d KiB more memory", i.entities, copied, listed, extra>>10)
		if extra > mostExtra {
			t.Errorf("got %d KiB more memory for a list, want %d at most", extra>>10, mostExtra>>10)
		}
	}
	t.Logf("the list is %.2f times as fast as COPY (%.2f)", testkit.Median(ratios), ratios)
	if testkit.Median(ratios) < 1 {
		t.Errorf("got a list %.2f times as fast as COPY, want 1 or more", testkit.Median(ratios))
	}
}

// shared is a folder that Postgres may write into, too.
func shared(t testing.TB) string {
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

func (i *installation) listOut(t testing.TB, path string) (took time.Duration, extra uint64) {
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
	took = time.Since(started)
	extra = memory()
	if items := count(t, file); items != i.entities {
		t.Errorf("got %d items, want %d", items, i.entities)
	}
	return took, extra
}

// list asks for all entities.
func (i *installation) list(t testing.TB) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.client.URL+"/entity", nil)
	testkit.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+i.client.Key)
	caller := http.Client{Timeout: listTime}
	response, err := caller.Do(request)
	testkit.Must(t, err)
	return response
}

// count counts the items in a complete list: only what stands between two has a brace on both sides.
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

// watchMemory answers a function that ends the watch and says how much more the process had at its peak than now.
func watchMemory() func() uint64 {
	runtime.GC()
	before := held()
	var peak uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				peak = max(peak, held())
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

// held is the memory that Go has from the system.
func held() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased
}
