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

// Client is who asks for an address.
type Client struct {
	MAC       string
	Port      string     // where it is, as a relay agent says; empty: none does
	Subnet    netip.Addr // an address of its subnet, as a relay agent says; none: it is in the agent's own
	IsBooting bool       // it is firmware, or iPXE
	IsRenewal bool       // it has its address, and asks without a relay agent
	IsIPv6    bool       // it asks by DHCPv6
}

// Lease is an address, and what goes with it.
type Lease struct {
	Address     netip.Prefix
	Gateway     netip.Addr
	Nameservers []netip.Addr
	Hostname    string
	TTL         time.Duration
}

// Pool is a range of addresses of one subnet. As a text: 10.1.0.200-10.1.0.250/24, and 10.1.0.1 behind a comma for the gateway;
// none is empty.
type Pool struct {
	First, Last netip.Addr
	Gateway     netip.Addr
	Bits        int
}

// UnmarshalText reads the text. Empty, there is none.
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
		return fmt.Errorf("%q is not addresses of one subnet such as 10.1.0.200-10.1.0.250/24,10.1.0.1, the gateway behind the comma", text)
	}
	return nil
}

// unknownMachine is a machine that nobody named.
type unknownMachine struct {
	machine
	expiresAt time.Time
}

// Admit tells whether a machine that begins to ask is to be answered. Firmware and iPXE have their script once more then.
func (m *Machines) Admit(c Client) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byMAC[c.MAC]
	if one == nil {
		return m.Discover && c.IsBooting && !c.IsIPv6
	}
	if !m.isAllowedPort(one, c) {
		return false
	}
	if c.IsBooting && !one.Armed {
		next := one.state
		next.Armed = true
		if err := m.setState(one, next); err != nil {
			m.log.Error("a machine that boots gets nothing", "mac", c.MAC, "error", err)
			return false
		}
		one.lastSent = nil
	}
	return true
}

// isAllowedPort tells whether a machine asks from where its token is for. What a relay agent said of IPv4 holds for IPv6, too, and the
// other way round.
func (m *Machines) isAllowedPort(one *machine, c Client) bool {
	if c.IsRenewal || !one.isInstalling() {
		return true
	}
	own, other := one.location, one.ByIPv6
	if c.IsIPv6 {
		own, other = other, own
	}
	if own.Pinned && own.Port != c.Port {
		m.tryReport(one, portRefusal(c, own))
		return false
	}
	if !own.Pinned && other.Pinned && other.Port != "" && other.Port != c.Port {
		m.tryReport(one, portRefusal(c, other))
		return false
	}
	return true
}

func portRefusal(c Client, own location) siteagent.Report {
	return siteagent.Report{
		MAC:      c.MAC,
		Event:    siteagent.EventRefused,
		Response: fmt.Sprintf("no address: it asks from %s, and was given its script at %s", describePort(c.Port), describePort(own.Port)),
	}
}

// RefuseRelay is told of a client for which somebody asks who is no relay agent.
func (m *Machines) RefuseRelay(c Client, from netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		m.tryReport(
			one,
			siteagent.Report{
				MAC:      c.MAC,
				Event:    siteagent.EventRefused,
				Response: fmt.Sprintf("no address: %s asks for it, which IRONPLANE_AGENT_DHCP_RELAYS does not name as a relay agent", from),
			},
		)
	}
}

func describePort(port string) string {
	if port == "" {
		return "no port that a relay agent names"
	}
	return "port " + port
}

// tryReport reports what a machine did, where nobody waits for the outcome.
func (m *Machines) tryReport(one *machine, r siteagent.Report) {
	if err := m.report(one, r); err != nil {
		m.log.Error("what a machine did cannot be reported", "error", err)
	}
}

// hasLeft tells whether a machine has none of its addresses any more.
func (one *machine) hasLeft() bool {
	return one.IPv4 == nil && one.IPv6 == nil && one.Boot == siteagent.BootLocal
}

// FindLease is what a client is to have. ok: it is answered. It may have no address: it has left it, or asks for one of IPv6 and was
// given none.
func (m *Machines) FindLease(c Client) (lease Lease, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		return m.findLease(one, c)
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

func (m *Machines) findLease(one *machine, c Client) (lease Lease, ok bool) {
	if !m.isAllowedPort(one, c) {
		return lease, false
	}
	assigned := one.IPv4
	if c.IsIPv6 {
		assigned = one.IPv6
	}
	if lease = (Lease{Hostname: one.Hostname, TTL: leaseTTL}); assigned != nil {
		lease.Address = netip.MustParsePrefix(assigned.Prefix)
		if assigned.Gateway != "" {
			lease.Gateway = netip.MustParseAddr(assigned.Gateway)
		}
	} else if one.hasLeft() {
		m.tryReport(
			one,
			siteagent.Report{MAC: c.MAC, Event: siteagent.EventRefused, Response: cleanLine("no address: "+one.Reason, maxTextLength)},
		)
	} else if !c.IsIPv6 {
		m.tryReport(one, siteagent.Report{MAC: c.MAC, Event: siteagent.EventRefused, Response: "no address: it has none of IPv4"})
		return lease, false
	}
	for _, text := range one.Nameservers {
		if a := netip.MustParseAddr(text); a.Is6() == c.IsIPv6 {
			lease.Nameservers = append(lease.Nameservers, a)
		}
	}
	return lease, true
}

// ConfirmLease notes that a client has an address, and what reads as that machine comes from there. ok: it may have it.
func (m *Machines) ConfirmLease(c Client, address netip.Addr) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byMAC[c.MAC]
	if one == nil {
		return m.confirmLent(c, address)
	}
	if !m.isAllowedPort(one, c) {
		return false
	}
	if c.IsRenewal {
		return one.Address == address
	}
	next := one.state
	*next.locationFor(c) = location{Address: address, Port: c.Port, Pinned: one.isInstalling()}
	moved := one.locationFor(c).Address != address
	if other := m.byAddress[address]; other != nil && other != one {
		otherState := other.state
		otherState.locationFor(c).Address = netip.Addr{}
		if err := m.setState(other, otherState); err != nil {
			m.log.Error("a machine gets no address", "mac", c.MAC, "error", err)
			return false
		}
	}
	if err := m.setState(one, next); err != nil {
		m.log.Error("a machine gets no address", "mac", c.MAC, "error", err)
		return false
	}
	if moved || c.IsBooting || one.isInstalling() {
		m.tryReport(
			one,
			siteagent.Report{MAC: c.MAC, Address: address.String(), Event: siteagent.EventLeased, Response: "the address " + address.String()},
		)
	}
	return true
}

// DeclineLease notes that a client found its address in use.
func (m *Machines) DeclineLease(c Client, address netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		m.tryReport(
			one,
			siteagent.Report{
				MAC:      c.MAC,
				Address:  address.String(),
				Event:    siteagent.EventRefused,
				Response: "nothing: it says that somebody else has the address " + address.String(),
			},
		)
	} else if s := m.unknown[c.MAC]; s != nil && s.Address == address { // which nobody is lent for a while
		delete(m.unknown, c.MAC)
		m.unknown[address.String()] = s
	}
	m.log.Warn("a machine says that somebody else has its address", "mac", c.MAC, "address", address)
}

// lendAddress finds an address for a machine that nobody named, the one that it had if it can be.
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

// freeAddress is the first address of the pool that nobody has, where the client's subnet is the pool's.
func (m *Machines) freeAddress(c Client) netip.Addr {
	if !m.Pool.First.IsValid() || c.Subnet.IsValid() && !m.Pool.subnet().Contains(c.Subnet) {
		return netip.Addr{}
	}
	used := map[netip.Addr]bool{m.Pool.Gateway: true}
	for _, other := range m.unknown {
		used[other.Address] = true
	}
	for _, one := range m.all {
		if one.IPv4 != nil {
			used[netip.MustParsePrefix(one.IPv4.Prefix).Addr()] = true
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

// confirmLent notes that a machine that nobody named has an address.
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

// findUnknown is the machine that nobody named at an address.
func (m *Machines) findUnknown(address netip.Addr) *unknownMachine {
	for _, s := range m.unknown {
		if s.Address == address && time.Now().Before(s.expiresAt) {
			return s
		}
	}
	return nil
}
