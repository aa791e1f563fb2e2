package machine

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	leaseTime = time.Hour
	lentTime  = 10 * time.Minute
	mostLent  = 1024
)

// Client is who asks for an address.
type Client struct {
	MAC    string
	Port   string     // where it is, as a relay agent says; empty: none does
	Subnet netip.Addr // an address of its subnet, as a relay agent says; none: it is in the agent's own
	Boots  bool       // it is firmware, or iPXE
	Renews bool       // it has its address, and asks without a relay agent
	IPv6   bool       // it asks by DHCPv6
}

// Lease is an address, and what goes with it.
type Lease struct {
	Address     netip.Prefix
	Gateway     netip.Addr
	Nameservers []netip.Addr
	Hostname    string
	Time        time.Duration
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

// stranger is a machine that nobody named.
type stranger struct {
	machine
	until time.Time
}

// Known tells whether a machine that begins to ask is to be answered. Firmware and iPXE have their script once more then.
func (m *Machines) Known(c Client) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byMAC[c.MAC]
	if one == nil {
		return m.Discover && c.Boots && !c.IPv6
	}
	if !m.rightPort(one, c) {
		return false
	}
	if c.Boots && !one.Armed {
		next := one.state
		next.Armed = true
		if err := m.become(one, next); err != nil {
			m.log.Error("a machine that boots gets nothing", "mac", c.MAC, "error", err)
			return false
		}
		one.said = nil
	}
	return true
}

// rightPort tells whether a machine asks from where its token is for. What a relay agent said of IPv4 holds for IPv6, too, and the
// other way round.
func (m *Machines) rightPort(one *machine, c Client) bool {
	if c.Renews || !one.installs() {
		return true
	}
	its, other := one.place, one.ByIPv6
	if c.IPv6 {
		its, other = other, its
	}
	if its.Pinned && its.Port != c.Port {
		m.tell(one, wrongPort(c, its))
		return false
	}
	if !its.Pinned && other.Pinned && other.Port != "" && other.Port != c.Port {
		m.tell(one, wrongPort(c, other))
		return false
	}
	return true
}

func wrongPort(c Client, its place) siteagent.Report {
	return siteagent.Report{
		MAC:  c.MAC,
		What: siteagent.Refused,
		Got:  fmt.Sprintf("no address: it asks from %s, and was given its script at %s", named(c.Port), named(its.Port)),
	}
}

// Relayed is told of a client for which somebody asks who is no relay agent.
func (m *Machines) Relayed(c Client, from netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		m.tell(
			one,
			siteagent.Report{
				MAC:  c.MAC,
				What: siteagent.Refused,
				Got:  fmt.Sprintf("no address: %s asks for it, which IRONPLANE_AGENT_DHCP_RELAYS does not name as a relay agent", from),
			},
		)
	}
}

func named(port string) string {
	if port == "" {
		return "no port that a relay agent names"
	}
	return "port " + port
}

// tell reports what a machine did, where nobody waits for the outcome.
func (m *Machines) tell(one *machine, r siteagent.Report) {
	if err := m.say(one, r); err != nil {
		m.log.Error("what a machine did cannot be reported", "error", err)
	}
}

// left tells whether a machine has none of its addresses any more.
func (one *machine) left() bool {
	return one.IPv4 == nil && one.IPv6 == nil && one.Boot == siteagent.BootLocal
}

// Offered is what a client is to have. ok: it is answered. It may have no address: it has left it, or asks for one of IPv6 and was
// given none.
func (m *Machines) Offered(c Client) (lease Lease, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		return m.offered(one, c)
	}
	if !m.Discover || c.IPv6 {
		return lease, false
	}
	s := m.lend(c)
	if s == nil || !s.Address.IsValid() {
		return lease, false
	}
	return Lease{Address: netip.PrefixFrom(s.Address, m.Pool.Bits), Gateway: m.Pool.Gateway, Time: lentTime}, true
}

func (m *Machines) offered(one *machine, c Client) (lease Lease, ok bool) {
	if !m.rightPort(one, c) {
		return lease, false
	}
	has := one.IPv4
	if c.IPv6 {
		has = one.IPv6
	}
	if lease = (Lease{Hostname: one.Hostname, Time: leaseTime}); has != nil {
		lease.Address = netip.MustParsePrefix(has.Prefix)
		if has.Gateway != "" {
			lease.Gateway = netip.MustParseAddr(has.Gateway)
		}
	} else if one.left() {
		m.tell(one, siteagent.Report{MAC: c.MAC, What: siteagent.Refused, Got: line("no address: "+one.Reason, longestText)})
	} else if !c.IPv6 {
		m.tell(one, siteagent.Report{MAC: c.MAC, What: siteagent.Refused, Got: "no address: it has none of IPv4"})
		return lease, false
	}
	for _, text := range one.Nameservers {
		if a := netip.MustParseAddr(text); a.Is6() == c.IPv6 {
			lease.Nameservers = append(lease.Nameservers, a)
		}
	}
	return lease, true
}

// Leased notes that a client has an address, and what reads as that machine comes from there. ok: it may have it.
func (m *Machines) Leased(c Client, address netip.Addr) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.byMAC[c.MAC]
	if one == nil {
		return m.borrowed(c, address)
	}
	if !m.rightPort(one, c) {
		return false
	}
	if c.Renews {
		return one.Address == address
	}
	next := one.state
	*next.at(c) = place{Address: address, Port: c.Port, Pinned: one.installs()}
	moved := one.at(c).Address != address
	if other := m.byAddress[address]; other != nil && other != one {
		gone := other.state
		gone.at(c).Address = netip.Addr{}
		if err := m.become(other, gone); err != nil {
			m.log.Error("a machine gets no address", "mac", c.MAC, "error", err)
			return false
		}
	}
	if err := m.become(one, next); err != nil {
		m.log.Error("a machine gets no address", "mac", c.MAC, "error", err)
		return false
	}
	if moved || c.Boots || one.installs() {
		m.tell(one, siteagent.Report{MAC: c.MAC, Address: address.String(), What: siteagent.Leased, Got: "the address " + address.String()})
	}
	return true
}

// Declined notes that a client found its address in use.
func (m *Machines) Declined(c Client, address netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if one := m.byMAC[c.MAC]; one != nil {
		m.tell(
			one,
			siteagent.Report{
				MAC:     c.MAC,
				Address: address.String(),
				What:    siteagent.Refused,
				Got:     "nothing: it says that somebody else has the address " + address.String(),
			},
		)
	} else if s := m.strangers[c.MAC]; s != nil && s.Address == address { // which nobody is lent for a while
		delete(m.strangers, c.MAC)
		m.strangers[address.String()] = s
	}
	m.log.Warn("a machine says that somebody else has its address", "mac", c.MAC, "address", address)
}

// lend finds an address for a machine that nobody named, the one that it had if it can be.
func (m *Machines) lend(c Client) *stranger {
	now := time.Now()
	s := m.strangers[c.MAC]
	if s == nil {
		for mac, other := range m.strangers {
			if now.After(other.until) {
				delete(m.strangers, mac)
			}
		}
		if len(m.strangers) >= mostLent {
			return nil
		}
		s = &stranger{machine: machine{Machine: siteagent.Machine{MACs: []string{c.MAC}}}}
		s.Address = m.free(c)
		m.strangers[c.MAC] = s
	}
	s.until = now.Add(lentTime)
	return s
}

// free is the first address of the pool that nobody has, where the client's subnet is the pool's.
func (m *Machines) free(c Client) netip.Addr {
	if !m.Pool.First.IsValid() || c.Subnet.IsValid() && !m.Pool.subnet().Contains(c.Subnet) {
		return netip.Addr{}
	}
	taken := map[netip.Addr]bool{m.Pool.Gateway: true}
	for _, other := range m.strangers {
		taken[other.Address] = true
	}
	for _, one := range m.all {
		if one.IPv4 != nil {
			taken[netip.MustParsePrefix(one.IPv4.Prefix).Addr()] = true
		}
	}
	for a := m.Pool.First; a.Compare(m.Pool.Last) <= 0; a = a.Next() {
		if !taken[a] {
			return a
		}
	}
	return netip.Addr{}
}

func (p Pool) subnet() netip.Prefix { return netip.PrefixFrom(p.First, p.Bits).Masked() }

// borrowed notes that a machine that nobody named has an address.
func (m *Machines) borrowed(c Client, address netip.Addr) bool {
	if !m.Discover || c.IPv6 {
		return false
	}
	s := m.lend(c)
	if s == nil || m.Pool.First.IsValid() && s.Address != address {
		return false
	}
	s.Address = address
	return true
}

// strangerAt is the machine that nobody named at an address.
func (m *Machines) strangerAt(address netip.Addr) *stranger {
	for _, s := range m.strangers {
		if s.Address == address && time.Now().Before(s.until) {
			return s
		}
	}
	return nil
}
