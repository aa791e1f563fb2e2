package process

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// An outage has a line at its beginning, one a minute, and one at its end.
func TestOutageIsFewLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		h := newOutages(slog.NewJSONHandler(&text, nil))
		log := slog.New(h)
		network, pxe := log.With("service", "network"), log.With("service", "pxe")
		for n := range 110 * 150 { // a second for 150 s
			network.Error("request failed", "outage", "no database", "n", n)
			time.Sleep(time.Second / 110)
		}
		pxe.Error("request failed", "outage", "no database")
		pxe.Error("another thing")
		pxe.Error("another thing")
		time.Sleep(time.Minute)
		network.Error("request failed", "outage", "no database")
		time.Sleep(time.Minute)
		network.Error("request failed", "outage", "no Redis")
		h.close() // nothing is left running, or the bubble does not end
		network.Error("request failed", "outage", "no Redis")

		type line struct {
			Msg, Service, Outage string
			Lines                int
		}
		want := []line{
			{"request failed", "network", "no database", 0},
			{"request failed", "network", "no database", 6601},
			{"request failed", "network", "no database", 6601},
			{"request failed", "pxe", "no database", 0},
			{"another thing", "pxe", "", 0}, {"another thing", "pxe", "", 0},
			{"outage is quiet", "network", "no database", 110 * 150}, {"outage is quiet", "pxe", "no database", 1},
			{"request failed", "network", "no database", 0}, {"outage is quiet", "network", "no database", 1},
			{"request failed", "network", "no Redis", 0}, {"request failed", "network", "no Redis", 0},
		}
		lines := json.NewDecoder(&text)
		for n, w := range want {
			var is line
			if err := lines.Decode(&is); err != nil {
				t.Fatal(err)
			}
			if w.Lines > 6000 && is.Lines > 6500 && is.Lines < 6700 {
				is.Lines = w.Lines
			}
			if is != w {
				t.Errorf("line %d: got %+v, want %+v", n, is, w)
			}
		}
		if lines.More() {
			t.Errorf("got more lines, want %d", len(want))
		}
	})
}

// An outage whose end the program logs has no line about its end before, however long it is quiet.
func TestOutageEndsWithRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		h := newOutages(slog.NewJSONHandler(&text, nil))
		log := slog.New(h)
		for range 3 {
			log.Warn("job failed", "outage", "mail", "recovers", true)
			time.Sleep(30 * time.Minute)
		}
		log.Warn("outage is over", "recovered", "mail")
		log.Warn("job failed", "outage", "mail", "recovers", true)
		h.close()
		type line struct {
			Msg, Outage         string
			Recovers, Recovered any
			Lines               int
			Duration            time.Duration
		}
		lines := json.NewDecoder(&text)
		for n, want := range []line{
			{Msg: "job failed", Outage: "mail"}, {Msg: "job failed", Outage: "mail"}, {Msg: "job failed", Outage: "mail"},
			{Msg: "outage is over", Outage: "mail", Lines: 3, Duration: 90 * time.Minute}, {Msg: "job failed", Outage: "mail"},
		} {
			var is line
			if err := lines.Decode(&is); err != nil {
				t.Fatal(err)
			}
			if is != want {
				t.Errorf("line %d: got %+v, want %+v", n, is, want)
			}
		}
		if lines.More() {
			t.Error("got more lines, want 5")
		}
	})
}
