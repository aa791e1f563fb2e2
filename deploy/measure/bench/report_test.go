package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func newCandidate(name string, rates ...float64) *candidate {
	c := &candidate{name: name}
	for _, rate := range rates {
		latency := newLatency()
		_ = latency.RecordValue(int64(rate)) // a different one for each candidate
		c.rounds = append(c.rounds, round{reads: 100, rate: rate, latency: latency, cpu: time.Duration(1e8 / rate)})
	}
	return c
}

func TestReport(t *testing.T) {
	var screen bytes.Buffer
	report([]*candidate{
		newCandidate(pgbenchName, 4000, 8000, 4000),
		newCandidate(nginxName, 1000, 2000, 1000),
		newCandidate(gatewayName, 1500, 2200, 1100),
		newCandidate(splitName, 800, 1500, 700),
	}, []goal{{gatewayName, nginxName, 1.2}, {splitName, nginxName, 0.75}}, &screen)
	for _, want := range []string{
		"gateway                   1500         1.50 ms   1.50 ms   66 µs    1.10 (1.10–1.50)   0.28 (0.28–0.38)",
		"gateway: the goal, 1.20 times nginx + service, is missed: it serves 1.10 times what nginx + service does (1.50 times for the same CPU).",
		"mTLS: the goal, 0.75 times nginx + service, is met: it serves 0.75 times what nginx + service does (0.80 times for the same CPU).",
	} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", &screen, want)
		}
	}
}

func TestReportWithoutRivals(t *testing.T) {
	var screen bytes.Buffer
	report([]*candidate{newCandidate(gatewayName, 1000)}, []goal{{gatewayName, nginxName, 1.2}}, &screen)
	if !strings.Contains(screen.String(), "100 µs   –          –") || strings.Contains(screen.String(), "The goal") {
		t.Errorf("got\n%s\nwant a report without comparisons and goals", &screen)
	}
}
