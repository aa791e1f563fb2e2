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
	// maxDeviations is the largest difference between two sets of times, in standard deviations. Four occur by chance
	// once in 16,000 comparisons.
	maxDeviations = 4
)

// TestTimes compares the response times for existing accounts with those for unknown names. It sends the requests
// in turn and shuffles them, so that other load on the machine affects all alike.
func TestTimes(t *testing.T) {
	if !*full {
		t.Skip("the comparison of times takes several minutes and an idle machine: run make timing")
	}
	s := newStand(t)
	for _, kind := range []string{"admin", "client"} {
		accounts := [][]account{}
		for range samples/100 + 1 { // the product compares at most a hundred guesses for each name
			accounts = append(accounts, s.makeAccounts(t, kind))
		}
		for _, ask := range []struct {
			label, path string
			body        func(account) map[string]any
			status      int
		}{
			{"login", "/auth/key", account.login, http.StatusUnauthorized},
			{"password reset", "/auth/password-reset", account.passwordReset, http.StatusOK},
		} {
			times := map[string][]time.Duration{}
			for n := range samples + 10 {
				tried := append([]account{s.unknown(kind)}, accounts[n%len(accounts)]...)
				rand.Shuffle(len(tried), func(a, b int) { tried[a], tried[b] = tried[b], tried[a] })
				for _, a := range tried {
					elapsed := s.sendTimed(t, ask.path, ask.body(a), ask.status)
					if n >= 10 { // the first requests fill caches and open connections
						times[a.label] = append(times[a.label], elapsed)
					}
				}
			}
			unknown := times[unknownName]
			t.Logf("%s of %s: %s takes %v at the median", ask.label, kind, unknownName, testkit.Median(unknown).Round(time.Microsecond))
			for _, a := range accounts[0] {
				longer, deviations := compare(times[a.label], unknown)
				t.Logf("  %-28s %.3f times the median, longer in %.1f %% of the pairs (%+.1f standard deviations)",
					a.label, float64(testkit.Median(times[a.label]))/float64(testkit.Median(unknown)), 100*longer, deviations)
				if math.Abs(deviations) > maxDeviations {
					t.Errorf(
						"%s of %s: got %.1f standard deviations between %s and %s, want %v at most",
						ask.label,
						kind,
						deviations,
						a.label,
						unknownName,
						maxDeviations,
					)
				}
			}
		}
	}
}

// sendTimed sends a request from a new address, which has no earlier guesses, and returns the time to the response.
func (s *stand) sendTimed(t *testing.T, path string, body any, status int) time.Duration {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	s.requestCount++
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", s.requestCount>>16, s.requestCount>>8&255, s.requestCount&255)
	w := httptest.NewRecorder()
	began := time.Now()
	s.product.Gateway.ServeHTTP(w, r)
	elapsed := time.Since(began)
	if w.Code != status {
		t.Fatalf("got %d, want %d: %s", w.Code, status, w.Body)
	}
	return elapsed
}

// compare returns the share of pairs in which a is longer than b. deviations says how many standard deviations the
// share is away from a half, by the Mann-Whitney U test.
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
