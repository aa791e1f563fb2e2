package machine

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	leaseTTL   = time.Hour
	lendTTL    = 10 * time.Minute
	maxUnknown = 1024
)

// Client is a machine that requests an address.
type Client struct {
	MAC       string
	Port      string     // from the relay agent; empty: not known
	Subnet    netip.Addr // from the relay agent; invalid: the agent's own
	IsBooting bool       // it is firmware or iPXE
	IsRenewal bool       // it has its address, and asks without a relay agent
	IsIPv6    bool       // it uses DHCPv6
}

// Lease is an address with its network settings.
type Lease struct {
	Address     netip.Prefix
	Gateway     netip.Addr
	Nameservers []netip.Addr
	Hostname    string
	TTL         time.Duration
}

// Pool is a range of addresses in one subnet, with an optional gateway. Its text is like 10.1.0.200-10.1.0.250/24,10.1.0.1, and
// the empty text is no pool.
type Pool struct {
	First, Last netip.Addr
	Gateway     netip.Addr
	Bits        int
}

// UnmarshalText parses the text. An empty text gives no pool.
func (p *Pool) UnmarshalText(text []byte) (err error) {
	if *p = (Pool{}); len(text) == 0 {
		return nil
	}
	addresses, gateway, routed := strings.Cut(string(text), ",")
	first, rest, ok := strings.Cut(addresses, "-")
	last, err := netip.ParsePrefix(rest)
	*p = Pool{Last: last.Addr(), Bits: last.Bits()}
	if ok && err == nil {
		p.First, err = netip.ParseAddr(first)
	}
	if routed && err == nil {
		p.Gateway, err = netip.ParseAddr(gateway)
	}
	if err != nil || !p.First.Is4() || !p.Last.Is4() || p.First.Compare(p.Last) > 0 || !p.subnet().Contains(p.Last) ||
		routed && !p.subnet().Contains(p.Gateway) {
		return fmt.Errorf("%q is not a range in one subnet, with an optional gateway, such as 10.1.0.200-10.1.0.250/24,10.1.0.1", text)
	}
	return nil
}

// unknownMachine is a machine that the control plane did not name.
type unknownMachine struct {
	machine
	expiresAt time.Time
}

// Admit reports whether to answer a machine that starts to boot. It allows firmware and iPXE their boot script once more.
func (m *Machines) Admit(c Client) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.byMAC[c.MAC]
	if mach == nil {
		return m.Discover && c.IsBooting && !c.IsIPv6
	}
	if !m.isAllowedPort(mach, c) {
		return false
	}
	if c.IsBooting && !mach.Armed {
		next := mach.state
		next.Armed = true
		if err := m.setState(mach, next); err != nil {
			m.log.Error("store machine state failed", "mac", c.MAC, "error", err)
			return false
		}
		mach.lastSent = nil
	}
	return true
}

// isAllowedPort reports whether a machine may use its token at the client's port. A port that is pinned by IPv4 holds for IPv6
// too, and the reverse.
func (m *Machines) isAllowedPort(mach *machine, c Client) bool {
	if c.IsRenewal || !mach.isInstalling() {
		return true
	}
	own, other := mach.location, mach.ByIPv6
	if c.IsIPv6 {
		own, other = other, own
	}
	if own.Pinned && own.Port != c.Port {
		m.tryReport(mach, portRefusal(c, own))
		return false
	}
	if !own.Pinned && other.Pinned && other.Port != "" && other.Port != c.Port {
		m.tryReport(mach, portRefusal(c, other))
		return false
	}
	return true
}

// portRefusal is the report of a request at another port than the pinned one.
func portRefusal(c Client, own location) siteagent.Report {
	return siteagent.Report{
		MAC:      c.MAC,
		Event:    siteagent.EventRefused,
		Response: fmt.Sprintf("no address: it asks at %s, but got its script at %s", describePort(c.Port), describePort(own.Port)),
	}
}

// RefuseRelay reports a request of a relay agent that the operator does not trust.
func (m *Machines) RefuseRelay(c Client, from netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mach := m.byMAC[c.MAC]; mach != nil {
		m.tryReport(
			mach,
			siteagent.Report{
				MAC:      c.MAC,
				Event:    siteagent.EventRefused,
				Response: fmt.Sprintf("no address: the relay agent %s is not in IRONPLANE_AGENT_DHCP_RELAYS", from),
			},
		)
	}
}

// describePort describes a port for people.
func describePort(port string) string {
	if port == "" {
		return "an unknown port"
	}
	return "port " + port
}

// tryReport reports what a machine did, and only logs an error.
func (m *Machines) tryReport(mach *machine, r siteagent.Report) {
	if err := m.report(mach, r); err != nil {
		m.log.Error("send machine report failed", "error", err)
	}
}

// hasLeft reports whether the control plane took all of the machine's addresses away.
func (mach *machine) hasLeft() bool {
	return mach.IPv4 == nil && mach.IPv6 == nil && mach.Boot == siteagent.BootLocal
}

// HasSecureBoot reports whether a machine's firmware loads only programs with signatures.
func (m *Machines) HasSecureBoot(mac string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.byMAC[mac]
	return mach != nil && mach.SecureBoot
}

// FindLease returns the lease for a client. ok is false if the client gets no answer. The lease has no address if the machine has
// left it, or has none of IPv6.
func (m *Machines) FindLease(c Client) (lease Lease, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mach := m.byMAC[c.MAC]; mach != nil {
		return m.findLease(mach, c)
	}
	if !m.Discover || c.IsIPv6 {
		return lease, false
	}
	s := m.lendAddress(c)
	if s == nil || !s.Address.IsValid() {
		return lease, false
	}
	return Lease{Address: netip.PrefixFrom(s.Address, m.Pool.Bits), Gateway: m.Pool.Gateway, TTL: lendTTL}, true
}

// findLease returns the lease of a known machine.
func (m *Machines) findLease(mach *machine, c Client) (lease Lease, ok bool) {
	if !m.isAllowedPort(mach, c) {
		return lease, false
	}
	assigned := mach.IPv4
	if c.IsIPv6 {
		assigned = mach.IPv6
	}
	if lease = (Lease{Hostname: mach.Hostname, TTL: leaseTTL}); assigned != nil {
		lease.Address = netip.MustParsePrefix(assigned.Prefix)
		if assigned.Gateway != "" {
			lease.Gateway = netip.MustParseAddr(assigned.Gateway)
		}
	} else if mach.hasLeft() {
		m.tryReport(
			mach,
			siteagent.Report{MAC: c.MAC, Event: siteagent.EventRefused, Response: cleanLine("no address: "+mach.Reason, maxTextLength)},
		)
	} else if !c.IsIPv6 {
		m.tryReport(mach, siteagent.Report{MAC: c.MAC, Event: siteagent.EventRefused, Response: "no address: it has no IPv4 address"})
		return lease, false
	}
	for _, text := range mach.Nameservers {
		if a := netip.MustParseAddr(text); a.Is6() == c.IsIPv6 {
			lease.Nameservers = append(lease.Nameservers, a)
		}
	}
	return lease, true
}

// ConfirmLease records that a client has an address. From then on requests from that address are the machine's. ok is false if the
// client may not have it.
func (m *Machines) ConfirmLease(c Client, address netip.Addr) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.byMAC[c.MAC]
	if mach == nil {
		return m.confirmLent(c, address)
	}
	if !m.isAllowedPort(mach, c) {
		return false
	}
	if c.IsRenewal {
		return mach.Address == address
	}
	next := mach.state
	*next.locationFor(c) = location{Address: address, Port: c.Port, Pinned: mach.isInstalling()}
	moved := mach.locationFor(c).Address != address
	if other := m.byAddress[address]; other != nil && other != mach {
		otherState := other.state
		otherState.locationFor(c).Address = netip.Addr{}
		if err := m.setState(other, otherState); err != nil {
			m.log.Error("store lease failed", "mac", c.MAC, "error", err)
			return false
		}
	}
	if err := m.setState(mach, next); err != nil {
		m.log.Error("store lease failed", "mac", c.MAC, "error", err)
		return false
	}
	if moved || c.IsBooting || mach.isInstalling() {
		m.tryReport(
			mach,
			siteagent.Report{MAC: c.MAC, Address: address.String(), Event: siteagent.EventLeased, Response: "the address " + address.String()},
		)
	}
	return true
}

// DeclineLease records that a client found its address in use.
func (m *Machines) DeclineLease(c Client, address netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mach := m.byMAC[c.MAC]; mach != nil {
		m.tryReport(
			mach,
			siteagent.Report{
				MAC:      c.MAC,
				Address:  address.String(),
				Event:    siteagent.EventRefused,
				Response: "nothing: it reports that another machine uses the address " + address.String(),
			},
		)
	} else if s := m.unknown[c.MAC]; s != nil && s.Address == address { // keep the address out of use for a while
		delete(m.unknown, c.MAC)
		m.unknown[address.String()] = s
	}
	m.log.Warn("machine declined its address", "mac", c.MAC, "address", address)
}

// lendAddress returns the unknown machine of a client, with its last address if possible.
func (m *Machines) lendAddress(c Client) *unknownMachine {
	now := time.Now()
	s := m.unknown[c.MAC]
	if s == nil {
		for mac, other := range m.unknown {
			if now.After(other.expiresAt) {
				delete(m.unknown, mac)
			}
		}
		if len(m.unknown) >= maxUnknown {
			return nil
		}
		s = &unknownMachine{machine: machine{Machine: siteagent.Machine{MACs: []string{c.MAC}}}}
		s.Address = m.freeAddress(c)
		m.unknown[c.MAC] = s
	}
	s.expiresAt = now.Add(lendTTL)
	return s
}

// freeAddress returns the first free address of the pool, if the client is in the pool's subnet.
func (m *Machines) freeAddress(c Client) netip.Addr {
	if !m.Pool.First.IsValid() || c.Subnet.IsValid() && !m.Pool.subnet().Contains(c.Subnet) {
		return netip.Addr{}
	}
	used := map[netip.Addr]bool{m.Pool.Gateway: true}
	for _, other := range m.unknown {
		used[other.Address] = true
	}
	for _, mach := range m.all {
		if mach.IPv4 != nil {
			used[netip.MustParsePrefix(mach.IPv4.Prefix).Addr()] = true
		}
	}
	for a := m.Pool.First; a.Compare(m.Pool.Last) <= 0; a = a.Next() {
		if !used[a] {
			return a
		}
	}
	return netip.Addr{}
}

func (p Pool) subnet() netip.Prefix { return netip.PrefixFrom(p.First, p.Bits).Masked() }

// confirmLent records the address of an unknown machine.
func (m *Machines) confirmLent(c Client, address netip.Addr) bool {
	if !m.Discover || c.IsIPv6 {
		return false
	}
	s := m.lendAddress(c)
	if s == nil || m.Pool.First.IsValid() && s.Address != address {
		return false
	}
	s.Address = address
	return true
}

// findUnknown returns the unknown machine at an address, or nil.
func (m *Machines) findUnknown(address netip.Addr) *unknownMachine {
	for _, s := range m.unknown {
		if s.Address == address && time.Now().Before(s.expiresAt) {
			return s
		}
	}
	return nil
}
