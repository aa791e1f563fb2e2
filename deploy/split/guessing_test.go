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
	guessers = 8 // in parallel; each guess comes from a new address
	// maxMemory bounds the memory of each process. Above 512 MiB a process collects garbage more often.
	maxMemory     = 640 << 20
	rounds        = 5
	quietDuration = 3 * time.Second
)

// guesses are the kinds of guesses, and how many of each are sent.
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

// TestFloodOfGuesses sends a hundred thousand wrong keys, codes and passwords from as many addresses. The memory of
// each process stays bounded, and the log shows how much slower other callers are served. The guesser runs at the
// lowest priority: a real one has a computer of its own, so its own work should not slow the servers.
func TestFloodOfGuesses(t *testing.T) {
	requireProc(t)
	if !*full {
		t.Skip("the guesses take minutes: run make guessing")
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
		{"sign-ins from a usual address", 200 * time.Millisecond, func() { signIn(usual) }},
		{"sign-ins from a new address", 200 * time.Millisecond, func() { signIn(randomAddress()) }},
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
		for range rounds { // in turn, so that other load on the machine affects both alike
			for i, o := range others {
				quiet[i] = append(quiet[i], o.measureDuring(func() { time.Sleep(quietDuration) })...)
				busy[i] = append(busy[i], o.measureDuring(func() {
					began := time.Now()
					r.guess(kind, g.times/rounds/len(others))
					guessed += time.Since(began)
				})...)
			}
		}
		t.Logf("%d %s, %.0f a second", g.times, g.label, float64(g.times)/guessed.Seconds())
		for i, o := range others {
			at := func(of []time.Duration, part float64) time.Duration {
				return slices.Sorted(slices.Values(of))[int(float64(len(of)-1)*part)].Round(10 * time.Microsecond)
			}
			t.Logf(
				"  %s: %d requests, median %v instead of %v (%.2f times), 90th percentile %v instead of %v",
				o.label,
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
		if peak > maxMemory {
			t.Errorf("%s: got a peak of %d MiB, want at most %d", name, peak>>20, maxMemory>>20)
		}
	}
}

// other is a request that other callers repeat meanwhile, with a rest in between.
type other struct {
	label string
	rest  time.Duration
	do    func()
}

// measureDuring repeats the request until do returns, and returns the response times.
func (o other) measureDuring(do func()) (durations []time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	for {
		began := time.Now()
		o.do()
		durations = append(durations, time.Since(began))
		select {
		case <-done:
			return durations
		case <-time.After(o.rest):
		}
	}
}

// guessesEnv is the variable that turns this program into a guesser. It holds the URL, the kind of guess and the
// number.
const guessesEnv = "IRONPLANE_TEST_GUESSES_AT"

// guess sends guesses as fast as they are refused, from a process at the lowest priority.
func (r *running) guess(kind, times int) {
	self := exec.CommandContext(r.t.Context(), "nice", "-n", "19", os.Args[0])
	self.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", guessesEnv, r.client.URL, kind, times))
	if out, err := self.CombinedOutput(); err != nil {
		r.t.Errorf("guess %d %s: %v\n%s", times, guesses[kind].label, err, out)
	}
}

// runGuesser sends the guesses that guessesEnv asks for.
func runGuesser(arguments string) error {
	var at string
	var kind, times int
	if _, err := fmt.Sscan(arguments, &at, &kind, &times); err != nil {
		return fmt.Errorf("read the arguments of the guesser: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: guessers}, Timeout: time.Minute}
	var sent atomic.Int64
	var all errgroup.Group
	for range guessers {
		all.Go(func() error {
			for sent.Add(1) <= int64(times) {
				if err := guesses[kind].try(client, at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// guess is one kind of guess.
type guess struct {
	label        string
	times        int
	method, path string
	body         func() any
}

func randomAddress() string {
	return fmt.Sprintf("10.%d.%d.%d", rand.N(256), rand.N(256), rand.N(256))
}

// try sends one guess from a random address, and wants a 401.
func (g guess) try(client *http.Client, at string) error {
	to, key := at+g.path, apikey.New().Reveal()
	if g.method == http.MethodPatch {
		to += key // an unknown challenge
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
	request.Header.Set("X-Forwarded-For", randomAddress())
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
		return fmt.Errorf("%s %s: got %d, want 401", g.method, g.path, response.StatusCode)
	}
	return nil
}
