package scale

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// BenchmarkAnswers measures the response times of a small and a large installation in turn, with one caller, and their ratio.
func BenchmarkAnswers(b *testing.B) {
	if *entities == 0 {
		b.Skip("set -entities to run this benchmark")
	}
	few, many := start(
		b,
		"",
		fewEntities,
		func(*installation, *pgx.ConnConfig) {},
	), start(
		b,
		"",
		*entities,
		func(*installation, *pgx.ConnConfig) {},
	)
	counterparts := many.requests(b)
	for n, q := range few.requests(b) {
		b.Run(fmt.Sprintf("%s/%d_and_%d", q.name, few.entities, many.entities), func(b *testing.B) {
			var fewTimes, manyTimes []float64
			for b.Loop() {
				fewTimes = append(fewTimes, few.measure(b, q.path))
				manyTimes = append(manyTimes, many.measure(b, counterparts[n].path))
			}
			b.ReportMetric(testkit.Median(fewTimes), "ms-of-few")
			b.ReportMetric(testkit.Median(manyTimes), "ms-of-many")
			b.ReportMetric(testkit.Median(manyTimes)/testkit.Median(fewTimes), "times-as-long")
		})
	}
}

// BenchmarkCompleteList compares the time of a list of all entities with that of PostgreSQL's COPY.
func BenchmarkCompleteList(b *testing.B) {
	if *entities == 0 {
		b.Skip("set -entities to run this benchmark")
	}
	i := start(b, "", *entities, func(*installation, *pgx.ConnConfig) {})
	folder := createSharedFolder(b)
	var ratios []float64
	for b.Loop() {
		copied := i.copyOut(b, filepath.Join(folder, "copy"))
		listed, _ := i.listOut(b, filepath.Join(folder, "list"))
		ratios = append(ratios, copied.Seconds()/listed.Seconds())
	}
	b.ReportMetric(float64(i.entities), "items")
	b.ReportMetric(testkit.Median(ratios), "times-as-fast-as-COPY")
}

// measure returns the response time in milliseconds.
func (i *installation) measure(b *testing.B, path string) float64 {
	started := time.Now()
	i.client.Do("GET", path, nil).Want(200)
	return float64(time.Since(started).Microseconds()) / 1000
}
