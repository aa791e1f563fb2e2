// Package consul is how a process is found by others and finds them, and who certifies it, where that is not said in
// files: by the Consul agent of its machine. What Consul said last holds as long as it is away.
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

// Config is where the agent is, and who we are to it.
type Config struct {
	Consul    string        `env:"CONSUL_URL" doc:"the Consul agent that registers this process, says where services are that are named without addresses, and certifies it where no files do: http://…"`
	Token     secret.String `env:"CONSUL_TOKEN" doc:"this process's token for Consul"`
	Advertise string        `env:"IRONPLANE_ADVERTISE" doc:"the host by which others reach this process; otherwise the address by which it reaches Consul"`
}

const (
	// waitTimeout is how long Consul may take to say that nothing has changed, and responseTimeout any answer beyond that.
	waitTimeout     = time.Minute
	responseTimeout = 10 * time.Second
	// retryInterval is how long a Consul that failed is left alone.
	retryInterval = time.Second
)

// Agent is the way to Consul.
type Agent struct {
	client    *api.Client
	advertise string
	log       *slog.Logger

	mu       sync.Mutex
	failures map[string]error // why it did not answer, by what it was asked for
}

// Open does not ask anything yet.
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
			return nil, fmt.Errorf("find out by which address others reach this process, which IRONPLANE_ADVERTISE can say: %w", err)
		}
	}
	return a, nil
}

// bearer asks with the token that there is now, which may be in a file that changes.
type bearer struct {
	http.RoundTripper
	token secret.String
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Consul-Token", b.token.Reveal())
	return b.RoundTripper.RoundTrip(r)
}

// ownAddress is the address by which this machine reaches another one. Nothing is sent.
func ownAddress(host string) (string, error) {
	c, err := net.DialTimeout("udp", host, responseTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// Check tells whether Consul answered all that it was last asked for.
func (a *Agent) Check(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for subject, err := range a.failures {
		return fmt.Errorf("ask for %s: %w", subject, err)
	}
	return nil
}

// noteResult notes how Consul answered, and says so where that is news.
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
		a.log.Warn("Consul does not answer as it should", "asked_for", subject, "error", err)
	case !healthy && len(a.failures) == 0:
		a.log.Warn("Consul answers again")
	}
	return err
}

// follow asks again and again for something, each time as soon as it is another than index says, until ctx ends.
func (a *Agent) follow(ctx context.Context, subject string, ask func(q *api.QueryOptions) (index uint64, err error)) {
	var index uint64
	for ctx.Err() == nil {
		next, err := a.ask(ctx, index, ask)
		if a.noteResult(ctx, subject, err) != nil || next < index {
			index = 0 // it may have begun to count anew
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
