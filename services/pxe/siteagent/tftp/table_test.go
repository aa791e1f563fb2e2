package tftp

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

// A new transfer takes the place of the oldest in its share that was never acknowledged. Others go on.
func TestUnackedTransfersMakeWay(t *testing.T) {
	t.Parallel()
	number := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	one := func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	inNetwork := func(n int) netip.Addr {
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 14: byte(n >> 8), 15: byte(n)})
	}
	for name, test := range map[string]struct {
		size int
		from func(int) netip.Addr
	}{"address": {8, one}, "network": {256, inNetwork}, "total": {512, number}} {
		table := newTable(share.NewRefusals(slog.New(slog.DiscardHandler)))
		other := table.start(t.Context(), netip.MustParseAddrPort("203.0.113.1:1"))
		size := test.size
		if name == "total" {
			size-- // the other one
		}
		other.isAcked.Store(true)
		entries := make([]*entry, 0, size)
		for n := range size {
			entries = append(entries, table.start(t.Context(), netip.AddrPortFrom(test.from(n), uint16(n+1))))
		}
		entries[0].isAcked.Store(true)
		next := netip.AddrPortFrom(test.from(size), 1000)
		if e := table.start(
			t.Context(),
			next,
		); e == nil || entries[0].ctx.Err() != nil || entries[1].ctx.Err() == nil ||
			entries[2].ctx.Err() != nil {
			t.Errorf("%s: got another transfer dropped, or none, want the oldest unacknowledged one dropped", name)
		}
		table.end(entries[1])
		if want := min(test.size+1, 512); table.limit.Used() != want || len(table.active) != want {
			t.Errorf("%s: got %d transfers counted and %d active, want %d", name, table.limit.Used(), len(table.active), want)
		}
		for _, e := range table.active {
			e.isAcked.Store(true)
		}
		if e := table.start(t.Context(), netip.AddrPortFrom(test.from(size+1), 1001)); e != nil {
			t.Errorf("%s: got a transfer beyond %d acknowledged ones, want none", name, test.size)
		}
	}
}
