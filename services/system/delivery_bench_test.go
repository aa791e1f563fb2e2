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
	// readInterval is the pause between two reads, and readDuration how long reads are measured without load.
	readInterval, readDuration = 5 * time.Millisecond, 2 * time.Second
	batchOfEvents              = 500
)

// measureReads calls do and waits until count returns n. It reports the items per second, the memory used, and the time of a
// read before and during that.
func (o *mailFixture) measureReads(b *testing.B, n int, do func(), count func() int) {
	o.Do("POST", "/part", `{"name": "Read", "part_type": "cpu"}`).Want(200)
	alone := o.readDuring(func() { time.Sleep(readDuration) })
	heap := func() float64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return float64(sample[0].Value.Uint64()) / (1 << 20)
	}
	before, maxHeap := heap(), 0.0
	b.ResetTimer()
	with := o.readDuring(func() {
		do()
		for deadline := time.Now().Add(20 * time.Minute); count() < n; time.Sleep(10 * time.Millisecond) {
			maxHeap = max(maxHeap, heap())
			if time.Now().After(deadline) {
				b.Fatalf("got %d items, want %d", count(), n)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(maxHeap-before, "MB")
	b.ReportMetric(float64(alone.Microseconds()), "µs/read-alone")
	b.ReportMetric(float64(with.Microseconds()), "µs/read-beside")
}

// readDuring reads an item repeatedly during a call, and returns the median duration.
func (o *mailFixture) readDuring(during func()) time.Duration {
	ctx, stop := context.WithCancel(o.Context())
	var durations []time.Duration
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			o.Do("GET", "/part/1", nil).Want(200)
			durations = append(durations, time.Since(began))
			time.Sleep(readInterval)
		}
	})
	during()
	stop()
	reading.Wait()
	slices.Sort(durations)
	return durations[len(durations)/2]
}

// BenchmarkMails measures mails until a server on the same machine has all of them.
func BenchmarkMails(b *testing.B) {
	box := mailbox.Start(b, mailbox.Options{Forget: true})
	o := newMailFixture(b, "smtp+plain://"+box.Addr)
	content := sampleContents()[4]
	o.measureReads(b, b.N, func() {
		for range b.N {
			o.send(content.Kind(), content)
		}
	}, box.Accepted)
}

// BenchmarkWebhooks measures events until a receiver on the same machine has all of them.
func BenchmarkWebhooks(b *testing.B) {
	to := receiver.Start(b, nil)
	to.Forget()
	o := newMailFixture(b, "")
	created := testkit.Decode[webhook.Webhook](
		o.Do("POST", "/webhook", map[string]any{"url": to.URL, "types": []string{"client.*"}}).Want(200),
	)
	to.Trust(created.Secret)
	at := slices.IndexFunc(o.parts.Consumers, func(c *events.Consumer) bool { return c.Name == webhook.ConsumerName && c.Source == "clients" })
	after, err := json.Marshal(rest.Ref{ID: 1, Name: "Ben Miller"})
	if err != nil {
		b.Fatal(err)
	}
	o.measureReads(b, b.N, func() {
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
	}, to.Accepted)
}
