package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/measure/seed/rows"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/network"
)

const (
	listedEntities = 1_000_000
	// maxListMemory bounds the memory that a process needs to pass on a complete list.
	maxListMemory = 32 << 20
	listTimeout   = 10 * time.Minute
)

// TestMemoryOfCompleteList tests that a list of a million entities takes little memory of the gateway and the
// service.
func TestMemoryOfCompleteList(t *testing.T) {
	requireProc(t)
	if !*full {
		t.Skip("the million entities take minutes: run make scale")
	}
	r := start(t)
	r.fill(listedEntities)
	r.client.Do("GET", "/entity?per_page=1000", nil).Want(200) // loads the programs' own pages into memory
	for range 3 {
		before, pids := map[string]int{}, r.children()
		for _, name := range []string{principal.Gateway, network.Name} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pids[name]), []byte("5"), 0o200); err != nil { // resets VmHWM
				t.Fatal(err)
			}
			before[name] = memory(t, pids[name], "VmRSS")
		}
		if items := r.countEntities(); items != listedEntities {
			t.Errorf("got %d items, want %d", items, listedEntities)
		}
		for name, resident := range before {
			extra := memory(t, pids[name], "VmHWM") - resident
			t.Logf("the list: %d KiB more memory in the %s, which had %d KiB", extra>>10, name, resident>>10)
			if extra > maxListMemory {
				t.Errorf("got %d KiB more memory in the %s, want at most %d", extra>>10, name, maxListMemory>>10)
			}
		}
	}
}

// fill inserts entities into the databases of the run.
func (r *running) fill(entities int) {
	r.t.Helper()
	urls := map[string]secret.String{}
	for _, name := range product.Names() {
		url, err := os.ReadFile(filepath.Join(r.data, "run", name+".database-url"))
		if err != nil {
			r.t.Fatal(err)
		}
		urls[name] = secret.New(string(url))
	}
	key, err := product.ReadMasterKey(r.data)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := rows.Fill(r.t.Context(), urls, rows.Options{Entities: entities, Seed: 1, MasterKey: key, Progress: io.Discard}); err != nil {
		r.t.Fatal(err)
	}
}

// countEntities requests the list of all entities and counts them. Only an entity begins with its id.
func (r *running) countEntities() (items int) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.client.URL+"/entity", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.client.Key)
	response, err := (&http.Client{Timeout: listTimeout}).Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	const begin = `{"id":`
	between := []byte("}," + begin)
	text := make([]byte, 1<<20)
	for kept := 0; ; {
		n, err := response.Body.Read(text[kept:])
		all := text[:kept+n]
		items += bytes.Count(all, between)
		if err == io.EOF {
			return items + 1
		}
		if err != nil {
			r.t.Fatal(err)
		}
		tail := all[max(0, len(all)-len(between)+1):] // the separator may continue in the next part
		kept = copy(text, tail)
	}
}

// memory returns the value of a line of /proc/<pid>/status, in bytes.
func memory(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"+name+":"))
	kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
