package alike

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
)

const (
	samples = 200 // of each account and question
	// most bounds, of two distributions of the same times, how far the share of pairs in which one's is longer is from a half, in standard
	// deviations. Four are met by chance once in 16,000 times.
	most = 4
)

// TestTimes compares how long it takes to answer who tries an account with how long by a name that nobody has. It asks in turn, in another
// order each time, so that what else the machine does hits all alike.
func TestTimes(t *testing.T) {
	if !*full {
		t.Skip("tells the time: make timing")
	}
	s := newStand(t)
	for _, kind := range []string{"admin", "client"} {
		of := [][]account{}
		for range samples/100 + 1 { // at one name a hundred guesses are compared
			of = append(of, s.makeAccounts(t, kind))
		}
		for _, ask := range []struct {
			what, path string
			body       func(account) map[string]any
			status     int
		}{
			{"login", "/auth/key", account.login, http.StatusUnauthorized},
			{"password reset", "/auth/password-reset", account.forgotten, http.StatusOK},
		} {
			times := map[string][]time.Duration{}
			for n := range samples + 10 {
				tried := append([]account{s.unknown(kind)}, of[n%len(of)]...)
				rand.Shuffle(len(tried), func(a, b int) { tried[a], tried[b] = tried[b], tried[a] })
				for _, a := range tried {
					took := s.time(t, ask.path, ask.body(a), ask.status)
					if n >= 10 { // the first ones are of caches and connections
						times[a.what] = append(times[a.what], took)
					}
				}
			}
			unknown := times[unknownName]
			t.Logf("%s of %s: %s has a median of %v", ask.what, kind, unknownName, testkit.Median(unknown).Round(time.Microsecond))
			for _, a := range of[0] {
				longer, deviations := compare(times[a.what], unknown)
				t.Logf("  %-28s %.3f times the median; of %.1f %% of the pairs it is the longer one (%+.1f standard deviations)",
					a.what, float64(testkit.Median(times[a.what]))/float64(testkit.Median(unknown)), 100*longer, deviations)
				if math.Abs(deviations) > most {
					t.Errorf(
						"%s of %s: got %.1f standard deviations between %s and %s, want %v at most", ask.what, kind, deviations, a.what, unknownName, most,
					)
				}
			}
		}
	}
}

// time sends a request from an address of its own, which has made no guesses, and answers how long it took.
func (s *stand) time(t *testing.T, path string, body any, status int) time.Duration {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	s.asked++
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", s.asked>>16, s.asked>>8&255, s.asked&255)
	w := httptest.NewRecorder()
	began := time.Now()
	s.product.Gateway.ServeHTTP(w, r)
	took := time.Since(began)
	if w.Code != status {
		t.Fatalf("got %d, want %d: %s", w.Code, status, w.Body)
	}
	return took
}

// compare answers in which share of the pairs one of a is longer than one of b, and how many standard deviations that is from a half (Mann
// and Whitney's U).
func compare(a, b []time.Duration) (longer, deviations float64) {
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				longer++
			case x == y:
				longer += 0.5
			}
		}
	}
	pairs := float64(len(a)) * float64(len(b))
	return longer / pairs, (longer - pairs/2) / math.Sqrt(pairs*float64(len(a)+len(b)+1)/12)
}
