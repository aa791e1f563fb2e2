package share_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	limit := share.NewLimit("things", share.Max{Total: 4, PerNetwork: 3, PerAddress: 2}, share.NewRefusals(slog.New(slog.DiscardHandler)))
	for _, step := range []struct {
		from string
		want share.Scope
	}{
		{"2001:db8::1", share.None},
		{"2001:db8::1%eth1", share.None},
		{"2001:db8::1", share.Address},
		{"2001:db8::2", share.None},
		{"2001:db8::3", share.Network},
		{"192.0.2.1", share.None},
		{"::ffff:192.0.2.1", share.Total},
	} {
		if got := limit.Enter(netip.MustParseAddr(step.from)); got != step.want {
			t.Errorf("%s: got scope %d, want %d", step.from, got, step.want)
		}
	}
	limit.Leave(netip.MustParseAddr("2001:db8::2"))
	if got := limit.Enter(netip.MustParseAddr("2001:db8::3")); got != share.None {
		t.Errorf("got scope %d after one has left, want %d", got, share.None)
	}
}

// Each limit has a line in the log at once, and then one a minute, however much it refuses.
func TestLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		refusals := share.NewRefusals(slog.New(slog.NewTextHandler(&log, nil)))
		for _, name := range []string{"one", "other"} {
			limit := share.NewLimit(name, share.Max{}, refusals)
			for range 1000 {
				limit.Refuse(netip.MustParseAddr("192.0.2.1"))
			}
			time.Sleep(time.Minute)
			limit.Refuse(netip.MustParseAddr("192.0.2.2"))
		}
		for want, n := range map[string]int{
			"\n":            4,
			"refused=1 ":    2,
			"refused=1000 ": 2,
			"limit=one refused=1000 last_address=192.0.2.2": 1,
		} {
			if got := strings.Count(log.String(), want); got != n {
				t.Errorf("got %q %d times in the log, want %d:\n%s", want, got, n, &log)
			}
		}
	})
}
