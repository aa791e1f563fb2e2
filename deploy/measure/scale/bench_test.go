package scale

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// BenchmarkAnswers measures what one caller waits for answers of a small installation, and how many times as long for
// those of a large one, by turns.
func BenchmarkAnswers(b *testing.B) {
	if *entities == 0 {
		b.Skip("how many -entities?")
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
	same := many.questions(b)
	for n, q := range few.questions(b) {
		b.Run(fmt.Sprintf("%s/%d_and_%d", q.name, few.entities, many.entities), func(b *testing.B) {
			var ofFew, ofMany []float64
			for b.Loop() {
				ofFew = append(ofFew, few.wait(b, q.path))
				ofMany = append(ofMany, many.wait(b, same[n].path))
			}
			b.ReportMetric(testkit.Median(ofFew), "ms-of-few")
			b.ReportMetric(testkit.Median(ofMany), "ms-of-many")
			b.ReportMetric(testkit.Median(ofMany)/testkit.Median(ofFew), "times-as-long")
		})
	}
}

// BenchmarkCompleteList measures how many times as fast as Postgres' own COPY all entities are listed.
func BenchmarkCompleteList(b *testing.B) {
	if *entities == 0 {
		b.Skip("how many -entities?")
	}
	i := start(b, "", *entities, func(*installation, *pgx.ConnConfig) {})
	folder := shared(b)
	var ratios []float64
	for b.Loop() {
		copied := i.copyOut(b, filepath.Join(folder, "copy"))
		listed, _ := i.listOut(b, filepath.Join(folder, "list"))
		ratios = append(ratios, copied.Seconds()/listed.Seconds())
	}
	b.ReportMetric(float64(i.entities), "items")
	b.ReportMetric(testkit.Median(ratios), "times-as-fast-as-COPY")
}

// wait is how long the answer takes, in milliseconds.
func (i *installation) wait(b *testing.B, path string) float64 {
	started := time.Now()
	i.client.Do("GET", path, nil).Want(200)
	return float64(time.Since(started).Microseconds()) / 1000
}
