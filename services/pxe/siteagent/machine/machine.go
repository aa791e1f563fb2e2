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
	// Sign signs a report for people who do not trust the control plane; nil: reports are not signed.
	Sign func(text []byte) (string, error)
	// DHCP returns what the agent offers to machines that boot; nil: nothing.
	DHCP func() siteagent.DHCPHealth
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
	// isConfirmed reports whether the control plane has named the machine since the agent started.
	isConfirmed bool
}

// state is the stored part of what a machine did.
type state struct {
	Attempt     string            `json:"attempt"` // hash of the token that the other members belong to
	location                      // for IPv4
	ByIPv6      location          `json:"by_ipv6,omitzero"`
	Armed       bool              `json:"armed"`          // it has started to boot, and may get its script
	Ended       bool              `json:"ended"`          // its installation has succeeded or failed
	Undelivered *siteagent.Report `json:"owed,omitempty"` // the end of the installation, until the feed has it
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
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		digits, isMachine := strings.CutSuffix(entry.Name(), machineFile)
		id, err := strconv.ParseInt(digits, 10, 64)
		if !isMachine || err != nil {
			continue
		}
		mach := &machine{}
		if err := errors.Join(m.load(id, machineFile, &mach.Machine), m.load(id, stateFile, &mach.state)); err != nil {
			return nil, err
		}
		mach.Files = siteagent.Files{}
		m.link(mach)
		if mach.Undelivered != nil {
			if err := m.sendUndelivered(mach); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *Machines) path(id int64, suffix string) string {
	return filepath.Join(m.folder, strconv.FormatInt(id, 10)+suffix)
}

// load reads one of a machine's stored files, if it exists.
func (m *Machines) load(id int64, suffix string, into any) error {
	text, err := os.ReadFile(m.path(id, suffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s (delete it if it is damaged): %w", m.path(id, suffix), err)
	}
	return nil
}

// save stores one of a machine's files.
func (m *Machines) save(id int64, suffix string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		err = durable.Replace(m.path(id, suffix), text)
	}
	if err != nil {
		return fmt.Errorf("store machine %d: %w", id, err)
	}
	return nil
}

// setState stores a machine's new state, and indexes the machine by it.
func (m *Machines) setState(mach *machine, next state) error {
	if next == mach.state {
		return nil
	}
	if err := m.save(mach.ID, stateFile, next); err != nil {
		return err
	}
	m.unlink(mach)
	mach.state = next
	m.link(mach)
	return nil
}

// Put creates or replaces a machine. It refuses a lower revision with a conflict.
func (m *Machines) Put(next siteagent.Machine) error {
	if err := check(&next); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.all[next.ID]
	switch {
	case mach == nil && len(m.all) == maxMachines:
		return problem.New(problem.TooManyRequests, "The agent already has %d machines, which is the maximum.", maxMachines)
	case mach == nil:
		mach = &machine{}
	case next.Revision < mach.Revision:
		return problem.New(problem.Conflict, "Machine %d already has the newer revision %d.", next.ID, mach.Revision)
	}
	if err := m.save(next.ID, machineFile, next); err != nil {
		return err
	}
	current := mach.state
	if next.Token != "" && hashToken(next.Token) != current.Attempt {
		current = state{Attempt: hashToken(next.Token), location: current.unpinned(), ByIPv6: current.ByIPv6.unpinned(), Armed: current.Armed}
	}
	if mach.IPv4 != nil && (next.IPv4 == nil || *mach.IPv4 != *next.IPv4) {
		current.Address, current.Pinned = netip.Addr{}, false
	}
	if mach.IPv6 != nil && (next.IPv6 == nil || *mach.IPv6 != *next.IPv6) {
		current.ByIPv6.Address, current.ByIPv6.Pinned = netip.Addr{}, false
	}
	next.Files = siteagent.Files{}
	m.unlink(mach)
	mach.Machine, mach.lastSent, mach.isConfirmed = next, nil, true
	m.link(mach)
	return m.setState(mach, current)
}

// Delete deletes a machine, if it exists.
func (m *Machines) Delete(id int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.all[id]
	if mach == nil {
		return nil
	}
	for _, suffix := range []string{machineFile, stateFile} {
		if err := os.Remove(m.path(id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m.unlink(mach)
	return durable.SyncFolder(m.folder)
}

// Revisions returns all machines' revisions, sorted by id.
func (m *Machines) Revisions() []siteagent.MachineRevision {
	m.mu.Lock()
	defer m.mu.Unlock()
	revisions := make([]siteagent.MachineRevision, 0, len(m.all))
	for _, mach := range m.all {
		revisions = append(revisions, siteagent.MachineRevision{
			ID: mach.ID, Revision: mach.Revision, Unconfirmed: mach.Boot == siteagent.BootInstall && !mach.isConfirmed,
		})
	}
	slices.SortFunc(revisions, func(a, b siteagent.MachineRevision) int { return cmp.Compare(a.ID, b.ID) })
	return revisions
}

// link indexes a machine by its addresses and its token.
func (m *Machines) link(mach *machine) {
	m.all[mach.ID] = mach
	for _, mac := range mach.MACs {
		if other := m.byMAC[mac]; other == nil || other.ID < mach.ID {
			m.byMAC[mac] = mach
		}
	}
	for _, address := range []netip.Addr{mach.Address, mach.ByIPv6.Address} {
		if address.IsValid() {
			m.byAddress[address] = mach
		}
	}
	if mach.Token != "" {
		m.byToken[sha256.Sum256([]byte(mach.Token))] = mach
	}
}

// unlink removes a machine from the indexes. Another machine with the same MAC address takes its place.
func (m *Machines) unlink(mach *machine) {
	delete(m.all, mach.ID)
	for _, mac := range mach.MACs {
		if m.byMAC[mac] != mach {
			continue
		}
		delete(m.byMAC, mac)
		for _, other := range m.all {
			if before := m.byMAC[mac]; slices.Contains(other.MACs, mac) && (before == nil || before.ID < other.ID) {
				m.byMAC[mac] = other
			}
		}
	}
	for _, address := range []netip.Addr{mach.Address, mach.ByIPv6.Address} {
		if m.byAddress[address] == mach {
			delete(m.byAddress, address)
		}
	}
	if sum := sha256.Sum256([]byte(mach.Token)); m.byToken[sum] == mach {
		delete(m.byToken, sum)
	}
}

// hashToken identifies a token without revealing it.
func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// isInstalling reports whether a machine has a token and has not reported the end of its installation.
func (mach *machine) isInstalling() bool { return mach.Token != "" && !mach.Ended }

// bootAction returns what the machine boots. A machine that is installed boots its disk. One that the control plane has not confirmed
// since the agent started waits, because the agent's folder may come from a backup or a snapshot: the machine may be in use.
func (mach *machine) bootAction() string {
	switch {
	case mach.Boot != siteagent.BootInstall:
		return mach.Boot
	case mach.Ended:
		return siteagent.BootLocal
	case !mach.isConfirmed:
		return siteagent.BootWait
	}
	return siteagent.BootInstall
}

// waitReason returns why the machine waits.
func (mach *machine) waitReason() string {
	if mach.Boot == siteagent.BootInstall {
		return "The agent has started, and the control plane has not confirmed this install since."
	}
	return mach.Reason
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
		for _, mach := range m.all {
			if err := m.flush(mach); err != nil {
				m.log.Error("send machine report failed", "error", err)
			}
		}
		m.mu.Unlock()
	}
}
