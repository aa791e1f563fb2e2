package machine_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// The end of an installation is reported after a restart if it could not be reported before. Meanwhile the machine is not
// installed again.
func TestUndeliveredReport(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdefghijklmnop"
	folder, full := t.TempDir(), true
	var reports []siteagent.Report
	open := func() *machine.Machines {
		m, err := machine.Open(folder, machine.Settings{URL: "http://192.0.2.1"}, func(r siteagent.Report) error {
			if full && r.Event == siteagent.EventDone {
				return errors.New("the disk is full")
			}
			reports = append(reports, r)
			return nil
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	one := siteagent.Machine{
		ID:    7,
		MACs:  []string{"52:54:00:12:34:56"},
		Boot:  siteagent.BootInstall,
		Token: token,
		Files: siteagent.Files{Boot: "#!ipxe"},
	}
	if err := m.Put(one); err != nil {
		t.Fatal(err)
	}
	if !m.ConfirmLease(machine.Client{MAC: one.MACs[0], IsBooting: true}, netip.MustParseAddr("192.0.2.10")) {
		t.Fatal("got no address, want 192.0.2.10")
	}
	done := func() int {
		response, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/i/"+token+"/done", nil)
		request.RemoteAddr = "192.0.2.10:4711"
		m.Handler().ServeHTTP(response, request)
		return response.Code
	}
	if got := done(); got != http.StatusInternalServerError {
		t.Errorf("got %d, want %d", got, http.StatusInternalServerError)
	}
	full = false
	m = open()
	if got := done(); got != http.StatusOK {
		t.Errorf("got %d, want %d", got, http.StatusOK)
	}
	if len(reports) != 2 || reports[1].Event != siteagent.EventDone || reports[1].ID != 7 {
		t.Errorf("got the reports %+v, want 2, the last that machine 7 is finished", reports)
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]machine.Pool{
		"":                         {},
		"10.1.0.200-10.1.0.250/24": {First: netip.MustParseAddr("10.1.0.200"), Last: netip.MustParseAddr("10.1.0.250"), Bits: 24},
		"10.1.0.200-10.1.0.200/24,10.1.0.1": {
			First: netip.MustParseAddr("10.1.0.200"), Last: netip.MustParseAddr("10.1.0.200"), Bits: 24, Gateway: netip.MustParseAddr("10.1.0.1"),
		},
	} {
		var got machine.Pool
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		" ", "10.1.0.1", "10.1.0.5-10.1.0.4/24", "10.1.0.5-10.1.1.4/24", "10.1.0.5-10.1.0.9", "2001:db8::1-2001:db8::2/64",
		"10.1.0.5-10.1.0.9/24,", "10.1.0.5-10.1.0.9/24,10.2.0.1",
	} {
		if err := new(machine.Pool).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got no error, want one", text)
		}
	}
}
