// Package machine keeps what the control plane said about a site's machines, and where each machine is. It decides which addresses
// and scripts they get, and serves their files over HTTP.
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
	// The same report is repeated after repeatInterval. Two reports of progress, or two refusals, are at least reportInterval
	// apart.
	repeatInterval = time.Minute
	reportInterval = time.Second
	// maxReports and maxDiscovered are how many reports one machine, or all unknown machines, may send at once. After that they
	// may send one a second.
	maxReports, maxDiscovered = 100, 1000

	machineFile, stateFile = ".machine", ".state"
)

// Settings are the operator's settings.
type Settings struct {
	URL      string // the base URL of the agent for machines, without a slash at the end
	IPv6URL  string // the base URL for machines without IPv4; empty: none
	Discover bool   // whether unknown machines are asked what they are
	Pool     Pool   // addresses for unknown machines
}

// Machines are the machines that the control plane named. They and their states are on disk.
type Machines struct {
	Settings
	folder  string
	deliver func(siteagent.Report) error
	log     *slog.Logger

	mu            sync.Mutex
	all           map[int64]*machine
	byMAC         map[string]*machine // of several the machine of the newest install
	byAddress     map[netip.Addr]*machine
	byToken       map[[sha256.Size]byte]*machine
	unknown       map[string]*unknownMachine // by MAC address
	discoverLimit rateLimit                  // for the reports of all unknown machines
}

// machine is one machine with its state.
type machine struct {
	siteagent.Machine // without its files, which stay on disk
	state
	lastSent map[string]sentReport // the last report of each event
	limit    rateLimit             // for its reports
	pending  *siteagent.Report     // progress that waits for reportInterval
}

// state is the stored part of what a machine did.
type state struct {
	Attempt     string            `json:"attempt"` // hash of the token that the other members belong to
	location                      // for IPv4
	ByIPv6      location          `json:"by_ipv6,omitzero"`
	Armed       bool              `json:"armed"` // it has started to boot, and may get its script
	Ended       bool              `json:"ended"` // its installation has succeeded or failed
	Undelivered *siteagent.Report `json:"owed,omitempty"`
}

// location is where a machine is, by one version of IP.
type location struct {
	Address netip.Addr `json:"address"` // leased, or seen
	Port    string     `json:"port"`    // from the relay agent
	Pinned  bool       `json:"pinned"`  // the token is for this port only
}

// locationFor returns the machine's location for the client's version of IP.
func (s *state) locationFor(c Client) *location {
	if c.IsIPv6 {
		return &s.ByIPv6
	}
	return &s.location
}

// hasAddress reports whether an address is the machine's.
func (s *state) hasAddress(address netip.Addr) bool {
	return address.IsValid() && (s.Address == address || s.ByIPv6.Address == address)
}

// unpinned returns the location with a port that may change.
func (p location) unpinned() location { return location{Address: p.Address, Port: p.Port} }

// Open reads the machines in a folder, and creates the folder if it is missing. It calls report to append to the feed.
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

// load reads one of a machine's stored files, if it exists.
func (m *Machines) load(id int64, ending string, into any) error {
	text, err := os.ReadFile(m.path(id, ending))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s (delete it if it is damaged): %w", m.path(id, ending), err)
	}
	return nil
}

func (m *Machines) save(id int64, ending string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		err = durable.Replace(m.path(id, ending), text)
	}
	if err != nil {
		return fmt.Errorf("store machine %d: %w", id, err)
	}
	return nil
}

// setState stores a machine's new state, and indexes the machine by it.
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

// Put creates or replaces a machine. It refuses a lower revision with a conflict.
func (m *Machines) Put(next siteagent.Machine) error {
	if err := check(&next); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.all[next.ID]
	switch {
	case one == nil && len(m.all) == maxMachines:
		return problem.New(problem.TooManyRequests, "The agent already has %d machines, which is the maximum.", maxMachines)
	case one == nil:
		one = &machine{}
	case next.Revision < one.Revision:
		return problem.New(problem.Conflict, "Machine %d already has the newer revision %d.", next.ID, one.Revision)
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

// Delete deletes a machine, if it exists.
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

// Revisions returns all machines' revisions, sorted by id.
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

// link indexes a machine by its addresses and its token.
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

// hashToken identifies a token without revealing it.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// isInstalling reports whether a machine has a token and has not reported the end of its installation.
func (one *machine) isInstalling() bool { return one.Token != "" && !one.Ended }

// bootAction returns what the machine boots. A machine that is installed boots its disk.
func (one *machine) bootAction() string {
	if one.Boot == siteagent.BootInstall && one.Ended {
		return siteagent.BootLocal
	}
	return one.Boot
}

// Run sends pending reports until ctx ends.
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
				m.log.Error("report machine failed", "error", err)
			}
		}
		m.mu.Unlock()
	}
}
