// Package machine is what an agent knows of the machines that boot from it: what the control plane said of each, which address each
// has, and whether it may be given its script. It answers what they ask over HTTP.
package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/durable"
)

const (
	maxMachines = 10_000
	// repeatInterval is when the same is reported once more, and pause how long at least lies between two reports of progress, or two of
	// something refused.
	repeatInterval = time.Minute
	reportInterval = time.Second
	// maxReports is how many reports of a machine there are at once, and maxDiscovered how many of all that nobody named: then there
	// is one a second.
	maxReports, maxDiscovered = 100, 1000

	machineFile, stateFile = ".machine", ".state"
)

// Settings are what the operator chose.
type Settings struct {
	URL      string // where machines reach the agent, without a slash at the end
	IPv6URL  string // where those do that have no IPv4; empty: nowhere
	Discover bool   // whether machines that nobody named are asked what they are
	Pool     Pool   // of addresses for these
}

// Machines are those that the control plane named. What it said, and what became of it, is on the disk.
type Machines struct {
	Settings
	folder  string
	deliver func(siteagent.Report) error
	log     *slog.Logger

	mu            sync.Mutex
	all           map[int64]*machine
	byMAC         map[string]*machine // of several the one of the newest install
	byAddress     map[netip.Addr]*machine
	byToken       map[[sha256.Size]byte]*machine
	unknown       map[string]*unknownMachine // by MAC
	discoverLimit rateLimit                  // of reports of all strangers
}

// machine is one of them.
type machine struct {
	siteagent.Machine // without its files
	state
	lastSent map[string]sentReport // of each What, the last
	limit    rateLimit             // of reports
	pending  *siteagent.Report     // of progress, which is reported with the next pause
}

// state is what became of a machine.
type state struct {
	Attempt     string            `json:"attempt"` // the SHA-256 of the token that the rest is of
	location                      // of IPv4
	ByIPv6      location          `json:"by_ipv6,omitzero"`
	Armed       bool              `json:"armed"` // it has begun to boot, and was not given its script since
	Ended       bool              `json:"ended"` // it said that the installation is done, or has failed
	Undelivered *siteagent.Report `json:"owed,omitempty"`
}

// location is where a machine is, as it asked by one version of the protocol.
type location struct {
	Address netip.Addr `json:"address"` // which it was leased, or seen with
	Port    string     `json:"port"`    // where it was then, as a relay agent said
	Pinned  bool       `json:"pinned"`  // the token is for who is at this port
}

// locationFor is where a client's machine is, as it asks.
func (s *state) locationFor(c Client) *location {
	if c.IsIPv6 {
		return &s.ByIPv6
	}
	return &s.location
}

// hasAddress tells whether an address is the machine's.
func (s *state) hasAddress(address netip.Addr) bool {
	return address.IsValid() && (s.Address == address || s.ByIPv6.Address == address)
}

// unpinned is a place that a machine may leave for another.
func (p location) unpinned() location { return location{Address: p.Address, Port: p.Port} }

// Open reads what there is in a folder, which is made if it is not there. report keeps a report.
func Open(folder string, settings Settings, report func(siteagent.Report) error, log *slog.Logger) (*Machines, error) {
	m := &Machines{Settings: settings, folder: folder, deliver: report, log: log, all: map[int64]*machine{}, byMAC: map[string]*machine{},
		byAddress: map[netip.Addr]*machine{}, byToken: map[[sha256.Size]byte]*machine{}, unknown: map[string]*unknownMachine{}}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		digits, isMachine := strings.CutSuffix(name.Name(), machineFile)
		id, err := strconv.ParseInt(digits, 10, 64)
		if !isMachine || err != nil {
			continue
		}
		one := &machine{}
		if err := errors.Join(m.load(id, machineFile, &one.Machine), m.load(id, stateFile, &one.state)); err != nil {
			return nil, err
		}
		one.Files = siteagent.Files{}
		m.link(one)
		if one.Undelivered != nil {
			if err := m.sendUndelivered(one); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *Machines) path(id int64, ending string) string {
	return filepath.Join(m.folder, strconv.FormatInt(id, 10)+ending)
}

// load reads a file of a machine, if there is one.
func (m *Machines) load(id int64, ending string, into any) error {
	text, err := os.ReadFile(m.path(id, ending))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s, which can be deleted: %w", m.path(id, ending), err)
	}
	return nil
}

func (m *Machines) save(id int64, ending string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		err = durable.Replace(m.path(id, ending), text)
	}
	if err != nil {
		return fmt.Errorf("keep what is known of machine %d: %w", id, err)
	}
	return nil
}

// setState has a machine in another state.
func (m *Machines) setState(one *machine, next state) error {
	if next == one.state {
		return nil
	}
	if err := m.save(one.ID, stateFile, next); err != nil {
		return err
	}
	m.unlink(one)
	one.state = next
	m.link(one)
	return nil
}

// Put takes the place of what was said of a machine before.
func (m *Machines) Put(next siteagent.Machine) error {
	if err := check(&next); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[next.ID]
	switch {
	case one == nil && len(m.all) == maxMachines:
		return problem.New(problem.TooManyRequests, "The agent knows of %d machines already.", maxMachines)
	case one == nil:
		one = &machine{}
	case next.Revision < one.Revision:
		return problem.New(problem.Conflict, "Machine %d has revision %d already.", next.ID, one.Revision)
	}
	if err := m.save(next.ID, machineFile, next); err != nil {
		return err
	}
	current := one.state
	if next.Token != "" && hashToken(next.Token) != current.Attempt {
		current = state{Attempt: hashToken(next.Token), location: current.unpinned(), ByIPv6: current.ByIPv6.unpinned(), Armed: current.Armed}
	}
	if one.IPv4 != nil && (next.IPv4 == nil || *one.IPv4 != *next.IPv4) {
		current.Address, current.Pinned = netip.Addr{}, false
	}
	if one.IPv6 != nil && (next.IPv6 == nil || *one.IPv6 != *next.IPv6) {
		current.ByIPv6.Address, current.ByIPv6.Pinned = netip.Addr{}, false
	}
	next.Files = siteagent.Files{}
	m.unlink(one)
	one.Machine, one.lastSent = next, nil
	m.link(one)
	return m.setState(one, current)
}

// Delete forgets a machine.
func (m *Machines) Delete(id int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[id]
	if one == nil {
		return nil
	}
	for _, ending := range []string{machineFile, stateFile} {
		if err := os.Remove(m.path(id, ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.unlink(one)
	return durable.SyncFolder(m.folder)
}

// Revisions are all machines, in the order of their numbers.
func (m *Machines) Revisions() []siteagent.MachineRevision {
	m.mu.Lock()
	defer m.mu.Unlock()
	revisions := make([]siteagent.MachineRevision, 0, len(m.all))
	for _, one := range m.all {
		revisions = append(revisions, siteagent.MachineRevision{ID: one.ID, Revision: one.Revision})
	}
	slices.SortFunc(revisions, func(a, b siteagent.MachineRevision) int { return cmp.Compare(a.ID, b.ID) })
	return revisions
}

// link makes a machine found by what it has.
func (m *Machines) link(one *machine) {
	m.all[one.ID] = one
	for _, mac := range one.MACs {
		if other := m.byMAC[mac]; other == nil || other.ID < one.ID {
			m.byMAC[mac] = one
		}
	}
	for _, address := range []netip.Addr{one.Address, one.ByIPv6.Address} {
		if address.IsValid() {
			m.byAddress[address] = one
		}
	}
	if one.Token != "" {
		m.byToken[sha256.Sum256([]byte(one.Token))] = one
	}
}

func (m *Machines) unlink(one *machine) {
	delete(m.all, one.ID)
	for _, mac := range one.MACs {
		if m.byMAC[mac] != one {
			continue
		}
		delete(m.byMAC, mac)
		for _, other := range m.all {
			if before := m.byMAC[mac]; slices.Contains(other.MACs, mac) && (before == nil || before.ID < other.ID) {
				m.byMAC[mac] = other
			}
		}
	}
	for _, address := range []netip.Addr{one.Address, one.ByIPv6.Address} {
		if m.byAddress[address] == one {
			delete(m.byAddress, address)
		}
	}
	if sum := sha256.Sum256([]byte(one.Token)); m.byToken[sum] == one {
		delete(m.byToken, sum)
	}
}

// hashToken tells one token from another.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// isInstalling tells whether a machine is being installed, or may be: it has not said that this has come to an end.
func (one *machine) isInstalling() bool { return one.Token != "" && !one.Ended }

// bootAction is what a machine is to boot.
func (one *machine) bootAction() string {
	if one.Boot == siteagent.BootInstall && one.Ended {
		return siteagent.BootLocal
	}
	return one.Boot
}

// Run reports what waits until ctx ends.
func (m *Machines) Run(ctx context.Context) {
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		m.mu.Lock()
		for _, one := range m.all {
			if err := m.flush(one); err != nil {
				m.log.Error("what a machine did cannot be reported", "error", err)
			}
		}
		m.mu.Unlock()
	}
}
