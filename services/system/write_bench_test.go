package system_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/services/system/audit"
)

// BenchmarkWrite logs changes like a consumer that is behind: a thousand at a time.
func BenchmarkWrite(b *testing.B) {
	s := newFixture(b)
	const page = 1000
	for b.Loop() {
		batch := make([]events.Event, page)
		for i := range batch {
			batch[i] = newEdit(
				int64(i%50+1),
				`{"name": "x", "reserved": false, "entities": {"count": 1}}`,
				`{"name": "y", "reserved": false, "entities": {"count": 1}}`,
			)
		}
		s.write("network", batch...)
	}
	b.ReportMetric(float64(page)*float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

// BenchmarkVerify verifies a log of 20,000 items.
func BenchmarkVerify(b *testing.B) {
	s := newFixture(b)
	const pages, page = 20, 1000
	for range pages {
		batch := make([]events.Event, page)
		for i := range batch {
			batch[i] = newEdit(int64(i%50+1), `{"name": "x"}`, `{"name": "y"}`)
		}
		s.write("network", batch...)
	}
	for b.Loop() {
		if _, bad := s.verify(audit.Anchor{}); bad != nil {
			b.Fatal(bad)
		}
	}
	b.ReportMetric(pages*page*float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
