package system_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/pkg/testkit/receiver"
	"github.com/ironplane/ironplane/services/system/webhook"
)

const (
	// readPause is what a reader waits between two reads, and readTime how long reads are measured with nothing beside them.
	readPause, readTime = 5 * time.Millisecond, 2 * time.Second
	batchOfEvents       = 500
)

// beside does something that brings so many things somewhere, and reports how many a second, how much memory that took, and how
// much longer a read took meanwhile than before.
func (o *mailStand) beside(b *testing.B, n int, do func(), there func() int) {
	o.Do("POST", "/part", `{"name": "Read", "part_type": "cpu"}`).Want(200)
	alone := o.reading(func() { time.Sleep(readTime) })
	heap := func() float64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return float64(sample[0].Value.Uint64()) / (1 << 20)
	}
	before, most := heap(), 0.0
	b.ResetTimer()
	with := o.reading(func() {
		do()
		for deadline := time.Now().Add(20 * time.Minute); there() < n; time.Sleep(10 * time.Millisecond) {
			most = max(most, heap())
			if time.Now().After(deadline) {
				b.Fatalf("got %d items, want %d", there(), n)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "things/s")
	b.ReportMetric(most-before, "MB")
	b.ReportMetric(float64(alone.Microseconds()), "µs/read-alone")
	b.ReportMetric(float64(with.Microseconds()), "µs/read-beside")
}

// reading reads an item now and then while something is done, and answers the median of how long that took.
func (o *mailStand) reading(during func()) time.Duration {
	ctx, stop := context.WithCancel(o.Context())
	var took []time.Duration
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			o.Do("GET", "/part/1", nil).Want(200)
			took = append(took, time.Since(began))
			time.Sleep(readPause)
		}
	})
	during()
	stop()
	reading.Wait()
	slices.Sort(took)
	return took[len(took)/2]
}

// BenchmarkMails takes mails and waits until a server on the same machine has all of them.
func BenchmarkMails(b *testing.B) {
	box := mailbox.Start(b, mailbox.Options{Forget: true})
	o := newMailStand(b, "smtp+plain://"+box.Addr)
	content := contents()[4]
	o.beside(b, b.N, func() {
		for range b.N {
			o.take(content.Kind(), content)
		}
	}, box.Taken)
}

// BenchmarkWebhooks queues events and waits until a receiver on the same machine has taken all of them.
func BenchmarkWebhooks(b *testing.B) {
	to := receiver.Start(b, nil)
	to.Forget()
	o := newMailStand(b, "")
	made := testkit.Decode[webhook.Webhook](o.Do("POST", "/webhook", map[string]any{"url": to.URL, "types": []string{"client.*"}}).Want(200))
	to.Trust(made.Secret)
	at := slices.IndexFunc(o.parts.Consumers, func(c *events.Consumer) bool { return c.Name == webhook.ConsumerName && c.Source == "clients" })
	after, err := json.Marshal(rest.Ref{ID: 1, Name: "Ben Miller"})
	if err != nil {
		b.Fatal(err)
	}
	o.beside(b, b.N, func() {
		for first := 0; first < b.N; first += batchOfEvents {
			var changes []events.Event
			for n := first; n < min(b.N, first+batchOfEvents); n++ {
				changes = append(
					changes,
					events.Event{
						Seq:     int64(n + 1),
						ID:      fmt.Sprint("change-", n),
						At:      time.Now(),
						Type:    "client.created",
						Kind:    "client",
						Action:  pg.Created,
						After:   after,
						Targets: []pg.Target{{Type: "client", Noun: "client", ID: int64(n + 1), Name: "Ben Miller"}},
					},
				)
			}
			o.inTx(func(tx *pg.Tx) error { return o.parts.Consumers[at].Apply(b.Context(), tx, changes) })
		}
	}, to.Taken)
}
