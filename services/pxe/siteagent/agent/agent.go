// Package agent is the site agent: it keeps files, serves them to machines and other agents, and follows the control plane's
// orders. It calls no one but its parent, and only during a pull.
package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/feed"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	minKeyLength = 16 // bytes
	maxGrants    = 1000
	saveInterval = 10 * time.Second
)

// Agent is a site agent.
type Agent struct {
	tree     *tree.Tree
	key      secret.String
	version  string
	log      *slog.Logger
	started  time.Time
	feed     *feed.Feed
	pulls    pulls
	machines *machine.Machines
	refusals *share.Refusals
	limits   limits
	// bodyTimeout is how long a request's body may take to arrive. A file that the control plane sends has no such limit.
	bodyTimeout  time.Duration
	loginTimeout time.Duration // for SFTP

	problems atomic.Pointer[[]string]

	mu       sync.Mutex
	grants   map[[sha256.Size]byte]time.Time // expiry by the SHA-256 of the token
	unserved int                             // how many unserved entries the last look at the folder found
}

// New returns an agent for a tree. The caller closes the agent first, then the tree.
func New(files *tree.Tree, key secret.String, machines machine.Settings, version string, log *slog.Logger) (*Agent, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	a := &Agent{
		tree:    files,
		key:     key,
		version: version,
		log:     log,
		started: time.Now(),
		grants:  map[[sha256.Size]byte]time.Time{},
		pulls:   pulls{next: make(chan siteagent.PullOrder, 1)},

		refusals:     share.NewRefusals(log),
		bodyTimeout:  ioTimeout,
		loginTimeout: loginTimeout,
	}
	a.limits = newLimits(a.refusals)
	var err error
	if a.feed, err = feed.Open(files.Path("said")); err != nil {
		return nil, err
	}
	if err := a.record("started", "The agent started with version "+version+"."); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.machines, err = machine.Open(files.Path("machines"), machines, func(r siteagent.Report) error {
		return a.feed.Append(siteagent.Entry{Kind: "machine", Machine: &r})
	}, log)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Close closes the agent's feed.
func (a *Agent) Close() error { return a.feed.Close() }

// Machines returns the machines that the control plane told the agent about.
func (a *Agent) Machines() *machine.Machines { return a.machines }

// Refusals returns what counts the refusals of all limits. It is a collector of metrics.
func (a *Agent) Refusals() *share.Refusals { return a.refusals }

// SetProblems sets the texts on what keeps the agent from working, for its health.
func (a *Agent) SetProblems(problems []string) { a.problems.Store(&problems) }

// record appends a text for people to the feed.
func (a *Agent) record(kind, text string) error {
	return a.feed.Append(siteagent.Entry{Kind: kind, Text: text})
}

// CheckKey returns an error if an API key is too short.
func CheckKey(key secret.String) error {
	if len(key.Reveal()) < minKeyLength {
		return fmt.Errorf("the API key must have at least %d characters", minKeyLength)
	}
	return nil
}

// Run runs pulls and reports what machines do, until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	save := time.NewTicker(saveInterval)
	defer save.Stop()
	var reporting, pulling sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { a.machines.Run(ctx) })
	defer pulling.Wait()
	cancelPull := func() {}
	defer func() { cancelPull() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-save.C:
			if err := a.tree.Save(); err != nil {
				a.log.Error("save index failed", "error", err)
			}
		case order := <-a.pulls.next:
			cancelPull()
			pulling.Wait()
			pullCtx, cancel := context.WithCancel(ctx)
			cancelPull = cancel
			pulling.Go(func() { a.runPull(pullCtx, order) })
		}
	}
}

// isAPIKey reports whether key is the API key. It takes the same time for every key.
func (a *Agent) isAPIKey(key string) bool {
	got, want := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(a.key.Reveal()))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// hasGrant reports whether a token has a grant that has not expired.
func (a *Agent) hasGrant(token string) bool {
	sum := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.grants[sum])
}

// addGrant adds or renews a grant. It returns false if there are too many.
func (a *Agent) addGrant(sum [sha256.Size]byte, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, expiresAt := range a.grants {
		if time.Now().After(expiresAt) {
			delete(a.grants, other)
		}
	}
	if _, renewed := a.grants[sum]; !renewed && len(a.grants) >= maxGrants {
		return false
	}
	a.grants[sum] = until
	return true
}

// health returns the agent's version, free space, URLs and problems.
func (a *Agent) health() (siteagent.Health, error) {
	free, total, err := a.tree.Space()
	var dhcp siteagent.DHCPHealth
	if a.machines.DHCP != nil {
		dhcp = a.machines.DHCP()
	}
	var problems []string
	if set := a.problems.Load(); set != nil {
		problems = *set
	}
	return siteagent.Health{
		Version:         a.version,
		StartedAt:       a.started,
		Now:             time.Now().UTC(),
		FreeBytes:       free,
		TotalBytes:      total,
		MachinesURL:     a.machines.URL,
		MachinesIPv6URL: a.machines.IPv6URL,
		DHCP:            &dhcp,
		Problems:        problems,
	}, err
}

// manifest returns all files. It records in the feed when the number of entries changes that cannot be served.
func (a *Agent) manifest(ctx context.Context) ([]siteagent.File, error) {
	files, unserved, err := a.tree.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	before := a.unserved
	a.unserved = len(unserved)
	a.mu.Unlock()
	if len(unserved) != before && len(unserved) > 0 {
		return files, a.record(
			"not-served",
			fmt.Sprintf(
				"%d entries of the folder are not served, such as %.200q: they are no files, or their names are not valid text.",
				len(unserved),
				unserved[0],
			),
		)
	}
	return files, nil
}
