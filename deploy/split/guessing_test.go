package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/apikey"
)

const (
	guessers = 8 // at once, and each guess from an address of its own
	// mostMemory is what a process has at most after that: beyond 512 MiB it collects garbage sooner.
	mostMemory = 640 << 20
	quietTime  = 3 * time.Second
)

// guesses are what is tried, how often, and how it is refused.
var guesses = []struct {
	what         string
	times        int
	method, path string
	body         func() any
	status       int
}{
	{"keys", 60_000, "GET", "/auth/key/current", func() any { return nil }, http.StatusUnauthorized},
	{"codes", 35_000, "PATCH", "/auth/verify/auth/0/code/", func() any { return map[string]string{"token": fmt.Sprintf("%06d", rand.N(1_000_000))} }, http.StatusUnauthorized},
	{"passwords", 5_000, "POST", "/auth/key", func() any {
		return map[string]string{"type": "admin", "email": fmt.Sprintf("%d@example.com", rand.Uint32()), "password": "wrong"}
	}, http.StatusUnauthorized},
}

// A hundred thousand wrong keys, codes and passwords from as many addresses leave the memory of each process bounded. How much slower others
// are answered meanwhile is printed: it hangs on how many processors there are, of which those who guess take their part here, too.
func TestFloodOfGuesses(t *testing.T) {
	needsProc(t)
	if !*full {
		t.Skip("it takes minutes: make guessing")
	}
	r := start(t, "IRONPLANE_TRUSTED_PROXIES=127.0.0.1")
	pids := r.children()
	for _, g := range guesses {
		r.guess(g.method, g.path, g.body, g.status, g.times/50)
	}
	before := map[string]int{}
	for name, pid := range pids {
		before[name] = memory(t, pid, "VmRSS")
	}
	for _, g := range guesses {
		var quiet, busy []time.Duration
		began := time.Now()
		for range 5 { // in turn, so that what else the machine does hits both alike
			quiet = append(quiet, r.others(func() { time.Sleep(quietTime) })...)
			busy = append(busy, r.others(func() { r.guess(g.method, g.path, g.body, g.status, g.times/5) })...)
		}
		middle := func(of []time.Duration, part float64) time.Duration {
			return slices.Sorted(slices.Values(of))[int(float64(len(of)-1)*part)]
		}
		t.Logf("%d %s: others are answered after %v instead of %v (%.2f times), one in a hundred after %v instead of %v; it took %v", g.times, g.what, middle(busy, .5), middle(quiet, .5),
			float64(middle(busy, .5))/float64(middle(quiet, .5)), middle(busy, .99), middle(quiet, .99), time.Since(began).Round(time.Second))
	}
	for name, pid := range pids {
		peak := memory(t, pid, "VmHWM")
		t.Logf("%s had %d MiB after the first guesses, and %d MiB at most", name, before[name]>>20, peak>>20)
		if peak > mostMemory {
			t.Errorf("%s had %d MiB", name, peak>>20)
		}
	}
}

// guess guesses so often, as fast as it is refused.
func (r *running) guess(method, path string, body func() any, status, times int) {
	r.t.Helper()
	var made atomic.Int64
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: guessers}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for range guessers {
		all.Go(func() {
			for made.Add(1) <= int64(times) {
				to, key := r.client.URL+path, apikey.New().Reveal()
				if method == "PATCH" {
					to += key // in the place of a challenge
				}
				text, err := json.Marshal(body())
				if err != nil {
					r.t.Error(err)
					return
				}
				request, err := http.NewRequestWithContext(r.t.Context(), method, to, bytes.NewReader(text))
				if err != nil {
					r.t.Error(err)
					return
				}
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", rand.N(256), rand.N(256), rand.N(256)))
				if method == "GET" {
					request.Header.Set("Authorization", "Bearer "+key)
				}
				answer, err := client.Do(request)
				if err != nil {
					r.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != status {
					r.t.Errorf("%s %s answers %d", method, path, answer.StatusCode)
					return
				}
			}
		})
	}
	all.Wait()
}

// others are the times after which somebody with a key is answered while do is done.
func (r *running) others(do func()) (took []time.Duration) {
	r.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		began := time.Now()
		r.client.Do("GET", "/port-speed?per_page=1", nil).Want(http.StatusOK)
		took = append(took, time.Since(began))
		select {
		case <-done:
			return took
		case <-time.After(20 * time.Millisecond):
		}
	}
}
