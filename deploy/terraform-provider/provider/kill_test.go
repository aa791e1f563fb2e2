package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/client"
)

// TestKilled kills the product at random while Terraform creates 200 API keys, whose names may repeat. Nothing is doubled and nothing
// is lost. In the first runs, the outage is often longer than the provider's timeout, so that they fail; a later run finishes.
func TestKilled(t *testing.T) {
	p := newEmptyProduct(t, "killed")
	const items = 200
	w := newWorkspace(t, p, `
provider "ironplane" {
  timeout = "2s"
}

resource "ironplane_api_key" "robot" {
  count = 200
  name  = "robot ${count.index}"
}
`)
	failures, kills := 0, 0
	for run := 1; ; run++ {
		result := make(chan error, 1)
		var out string
		go func() {
			var err error
			out, err = w.run("apply", "-auto-approve", "-parallelism=20")
			result <- err
		}()
		var err error
		for isRunning := true; isRunning; {
			select {
			case err = <-result:
				isRunning = false
			case <-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond):
				if kills == 8 {
					continue // from now on it stays up
				}
				kills++
				p.end(syscall.SIGKILL)
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
				if err := p.start(strings.TrimPrefix(p.URL, "http://")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err == nil && kills == 8 {
			break
		}
		if err != nil {
			failures++
		}
		if run == 30 {
			t.Fatalf("got after %d runs: %v\n%s\nwant a run that finishes", run, err, out)
		}
	}
	if isEmpty, plan := w.isPlanEmpty(); !isEmpty {
		t.Errorf("got a plan that changes something:\n%s", plan)
	}
	count := map[string]int{}
	for key, err := range p.client(t).APIKeys.List(t.Context(), client.APIKeyList{}) {
		if err != nil {
			t.Fatal(err)
		}
		count[key.Name]++
	}
	for i := range items {
		if name := fmt.Sprintf("robot %d", i); count[name] != 1 {
			t.Errorf("got %d keys with the name %s, want 1", count[name], name)
		}
	}
	if len(count) != items+1 { // with the first admin's
		t.Errorf("got keys with %d names, want %d", len(count), items+1)
	}
	t.Logf("%d kills, %d failed runs", kills, failures)
}

// TestLostAnswers loses every answer to a creation until Terraform gives up. The item exists then, and the next run knows.
func TestLostAnswers(t *testing.T) {
	api, origin := open(t)
	lossy, losing := newLossy(t, origin)
	losing.Store(true)
	w := newWorkspace(t, lossy, `
provider "ironplane" {
  timeout = "2s"
}

resource "ironplane_api_key" "lost" {
  name = "lost and found"
}
`)
	count := func() (n int) {
		for _, err := range api.APIKeys.List(t.Context(), client.APIKeyList{Name: "lost and found"}) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if out, err := w.run("apply", "-auto-approve"); err == nil || count() != 1 {
		t.Fatalf("got %v, %d keys and\n%s\nwant a failure, and one key", err, count(), out)
	}
	losing.Store(false)
	state := w.read("terraform.tfstate")
	w.write("terraform.tfstate", aged(t, state))
	if _, plan := w.isPlanEmpty(); !strings.Contains(plan, "too late to send it again") {
		t.Errorf("got the plan\n%s\nwant a warning", plan)
	}
	if count() != 1 {
		t.Errorf("got %d keys after the plan, want one", count())
	}
	w.write("terraform.tfstate", state)
	w.must("apply", "-auto-approve")
	if isEmpty, plan := w.isPlanEmpty(); count() != 1 || !isEmpty {
		t.Errorf("got %d keys and the plan\n%s\nwant one key, and an empty plan", count(), plan)
	}
	w.must("destroy", "-auto-approve")
	if count() != 0 {
		t.Errorf("got %d keys after the destruction, want none", count())
	}
}

// newLossy returns a product behind a proxy that loses the answers to POST requests while the switch is on.
func newLossy(t *testing.T, origin *product) (*product, *atomic.Bool) {
	t.Helper()
	target, err := url.Parse(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	var losing atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ModifyResponse = func(r *http.Response) error {
		if losing.Load() && r.Request.Method == http.MethodPost {
			return errors.New("the answer is lost")
		}
		return nil
	}
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	proxy := httptest.NewServer(forward)
	t.Cleanup(proxy.Close)
	return &product{URL: proxy.URL, Key: origin.Key}, &losing
}

// aged returns a state that was written two days earlier.
func aged(t *testing.T, state string) string {
	t.Helper()
	var decoded map[string]any
	if err := json.Unmarshal([]byte(state), &decoded); err != nil {
		t.Fatal(err)
	}
	instance := decoded["resources"].([]any)[0].(map[string]any)["instances"].([]any)[0].(map[string]any)
	var members map[string][]byte
	var p pending
	private, err := base64.StdEncoding.DecodeString(instance["private"].(string))
	if err := errors.Join(err, json.Unmarshal(private, &members), json.Unmarshal(members[pendingKey], &p)); err != nil {
		t.Fatal(err)
	}
	p.At = p.At.Add(-48 * time.Hour)
	members[pendingKey], err = json.Marshal(p)
	private, err2 := json.Marshal(members)
	instance["private"] = base64.StdEncoding.EncodeToString(private)
	text, err3 := json.Marshal(decoded)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
