// Package consul registers a process with the Consul agent of its machine, watches the addresses of other services, and gets
// the process's certificate. While Consul does not answer, the last answers remain in use.
package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Config configures the connection to Consul.
type Config struct {
	Consul    string        `env:"CONSUL_URL" doc:"the URL of the Consul agent (http://…): it registers this process, finds services without configured addresses, and issues the certificate if no files are configured"`
	Token     secret.String `env:"CONSUL_TOKEN" doc:"this process's token for Consul"`
	Advertise string        `env:"IRONPLANE_ADVERTISE" doc:"the host at which others reach this process; by default, the address from which it reaches Consul"`
}

const (
	// waitTimeout is how long Consul may hold a request if nothing changes, and responseTimeout how long any response may
	// take beyond that.
	waitTimeout     = time.Minute
	responseTimeout = 10 * time.Second
	// retryInterval is the pause after a failed request.
	retryInterval = time.Second
)

// Agent is a client of the Consul agent.
type Agent struct {
	client    *api.Client
	advertise string
	log       *slog.Logger

	mu       sync.Mutex
	failures map[string]error // the last error, by the subject of the request
}

// Open returns a client of the Consul agent. It sends no request yet.
func Open(c Config, log *slog.Logger) (*Agent, error) {
	u, err := url.Parse(c.Consul)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("CONSUL_URL is not a URL such as http://127.0.0.1:8500")
	}
	client, err := api.NewClient(
		&api.Config{
			Address:    u.Host,
			Scheme:     u.Scheme,
			HttpClient: &http.Client{Transport: bearer{http.DefaultTransport.(*http.Transport).Clone(), c.Token}},
		},
	)
	if err != nil {
		return nil, fmt.Errorf("CONSUL_URL: %w", err)
	}
	a := &Agent{client: client, advertise: c.Advertise, log: log, failures: map[string]error{}}
	if a.advertise == "" {
		if a.advertise, err = ownAddress(u.Host); err != nil {
			return nil, fmt.Errorf("find the address at which others reach this process (set IRONPLANE_ADVERTISE to skip this): %w", err)
		}
	}
	return a, nil
}

// bearer adds the present token to requests. The token may be in a file that changes.
type bearer struct {
	http.RoundTripper
	token secret.String
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Consul-Token", b.token.Reveal())
	return b.RoundTripper.RoundTrip(r)
}

// ownAddress returns the address from which this machine reaches another one. It sends nothing.
func ownAddress(host string) (string, error) {
	c, err := net.DialTimeout("udp", host, responseTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// Check fails if the last request on any subject failed.
func (a *Agent) Check(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for subject, err := range a.failures {
		return fmt.Errorf("ask Consul for %s: %w", subject, err)
	}
	return nil
}

// noteResult stores the outcome of a request, logs the beginning and the end of failures, and returns err.
func (a *Agent) noteResult(ctx context.Context, subject string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	healthy := len(a.failures) == 0
	if err != nil {
		a.failures[subject] = err
	} else {
		delete(a.failures, subject)
	}
	switch {
	case healthy && err != nil:
		a.log.Warn("consul requests fail", "asked_for", subject, "error", err)
	case !healthy && len(a.failures) == 0:
		a.log.Warn("consul requests succeed again")
	}
	return err
}

// follow repeats a blocking request until ctx ends. Consul answers each one as soon as the index has changed.
func (a *Agent) follow(ctx context.Context, subject string, ask func(q *api.QueryOptions) (index uint64, err error)) {
	var index uint64
	for ctx.Err() == nil {
		next, err := a.ask(ctx, index, ask)
		if a.noteResult(ctx, subject, err) != nil || next < index {
			index = 0 // Consul may have restarted its index
			waitToRetry(ctx)
			continue
		}
		index = next
	}
}

func (a *Agent) ask(ctx context.Context, index uint64, ask func(q *api.QueryOptions) (uint64, error)) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout+waitTimeout/16+responseTimeout) // Consul adds a sixteenth
	defer cancel()
	return ask((&api.QueryOptions{WaitIndex: index, WaitTime: waitTimeout}).WithContext(ctx))
}

func waitToRetry(ctx context.Context) {
	select {
	case <-time.After(retryInterval):
	case <-ctx.Done():
	}
}
