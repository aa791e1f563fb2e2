package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
)

const (
	guessers = 8 // at once, and each guess from an address of its own
	// mostMemory is what a process has at most after that: beyond 512 MiB it collects garbage sooner.
	mostMemory = 640 << 20
	rounds     = 5
	quietTime  = 3 * time.Second
)

// guesses are what is tried, and how often.
var guesses = []guess{
	{"keys", 39_000, http.MethodGet, "/auth/key/current", func() any { return nil }},
	{
		"codes",
		60_000,
		http.MethodPatch,
		"/auth/verify/auth/0/code/",
		func() any { return map[string]string{"token": fmt.Sprintf("%06d", rand.N(1_000_000))} },
	},
	{"passwords", 1_000, http.MethodPost, "/auth/key", func() any {
		return map[string]string{"type": "admin", "email": fmt.Sprintf("%d@example.com", rand.Uint32()), "password": "wrong"}
	}},
}

// A hundred thousand wrong keys, codes and passwords from as many addresses leave the memory of each process bounded. How much slower
// others
// are answered meanwhile is printed. Who guesses has his own computer in life: here he has what is left of this one's processors, so that
// what is seen is what his guesses take of the servers, and not what it takes him to make them.
func TestFloodOfGuesses(t *testing.T) {
	needsProc(t)
	if !*full {
		t.Skip("it takes minutes: make guessing")
	}
	r := start(t, "IRONPLANE_TRUSTED_PROXIES=127.0.0.1")
	pids := r.children()
	login := map[string]string{"type": "admin", "email": "anna@example.com", "password": "a long walk in the rain"}
	r.client.Do("POST", "/admin", map[string]string{"email": login["email"], "password": login["password"]}).Want(http.StatusOK)
	signIn := func(from string) {
		r.client.WithKey("").Do("POST", "/auth/key", login, "X-Forwarded-For", from).Want(http.StatusOK)
	}
	const usual = "203.0.113.7"
	signIn(usual)
	others := []other{
		{"reads", 20 * time.Millisecond, func() { r.client.Do("GET", "/port-speed?per_page=1", nil).Want(http.StatusOK) }},
		{"logins from where the account was signed in to", 200 * time.Millisecond, func() { signIn(usual) }},
		{"logins from elsewhere", 200 * time.Millisecond, func() { signIn(somewhere()) }},
	}
	for kind, g := range guesses {
		r.guess(kind, g.times/50)
	}
	before := map[string]int{}
	for name, pid := range pids {
		before[name] = memory(t, pid, "VmRSS")
	}
	for kind, g := range guesses {
		quiet, busy := make([][]time.Duration, len(others)), make([][]time.Duration, len(others))
		var guessed time.Duration
		for range rounds { // in turn, so that what else the machine does hits both alike
			for i, o := range others {
				quiet[i] = append(quiet[i], o.while(func() { time.Sleep(quietTime) })...)
				busy[i] = append(busy[i], o.while(func() {
					began := time.Now()
					r.guess(kind, g.times/rounds/len(others))
					guessed += time.Since(began)
				})...)
			}
		}
		t.Logf("%d %s, %.0f a second", g.times, g.what, float64(g.times)/guessed.Seconds())
		for i, o := range others {
			at := func(of []time.Duration, part float64) time.Duration {
				return slices.Sorted(slices.Values(of))[int(float64(len(of)-1)*part)].Round(10 * time.Microsecond)
			}
			t.Logf(
				"  %s: %d have a median of %v instead of %v (%.2f times), one in ten takes %v instead of %v",
				o.what,
				len(busy[i]),
				at(busy[i], .5),
				at(quiet[i], .5),
				float64(at(busy[i], .5))/float64(at(quiet[i], .5)),
				at(busy[i], .9),
				at(quiet[i], .9),
			)
		}
	}
	for name, pid := range pids {
		peak := memory(t, pid, "VmHWM")
		t.Logf("%s had %d MiB after the first guesses, and %d MiB at most", name, before[name]>>20, peak>>20)
		if peak > mostMemory {
			t.Errorf("%s: got a peak of %d MiB, want at most %d", name, peak>>20, mostMemory>>20)
		}
	}
}

// other is what others do meanwhile, and how long they rest in between.
type other struct {
	what string
	rest time.Duration
	do   func()
}

// while are the times that it took while something else was done.
func (o other) while(do func()) (took []time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		began := time.Now()
		o.do()
		took = append(took, time.Since(began))
		select {
		case <-done:
			return took
		case <-time.After(o.rest):
		}
	}
}

// guessesAt has a process of this program guess so many of these at an address, and do nothing else.
const guessesAt = "IRONPLANE_TEST_GUESSES_AT"

// guess guesses so often, as fast as it is refused, by a process that has what others leave of the processors.
func (r *running) guess(kind, times int) {
	self := exec.CommandContext(r.t.Context(), "nice", "-n", "19", os.Args[0])
	self.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", guessesAt, r.client.URL, kind, times))
	if out, err := self.CombinedOutput(); err != nil {
		r.t.Errorf("guess %d %s: %v\n%s", times, guesses[kind].what, err, out)
	}
}

// guessAs is what that process does.
func guessAs(asked string) error {
	var at string
	var kind, times int
	if _, err := fmt.Sscan(asked, &at, &kind, &times); err != nil {
		return fmt.Errorf("read what is to be guessed: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: guessers}, Timeout: time.Minute}
	var made atomic.Int64
	var all errgroup.Group
	for range guessers {
		all.Go(func() error {
			for made.Add(1) <= int64(times) {
				if err := guesses[kind].try(client, at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// guess is one kind of them.
type guess struct {
	what         string
	times        int
	method, path string
	body         func() any
}

func somewhere() string {
	return fmt.Sprintf("10.%d.%d.%d", rand.N(256), rand.N(256), rand.N(256))
}

// try tries one, from an address of its own.
func (g guess) try(client *http.Client, at string) error {
	to, key := at+g.path, apikey.New().Reveal()
	if g.method == http.MethodPatch {
		to += key // in the place of a challenge
	}
	text, err := json.Marshal(g.body())
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(context.Background(), g.method, to, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forwarded-For", somewhere())
	if g.method == http.MethodGet {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("%s %s answers %d", g.method, g.path, response.StatusCode)
	}
	return nil
}
