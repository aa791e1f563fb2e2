package system_test

import (
	"testing"
	"time"

	"github.com/ironplane/ironplane/testkit/mailbox"
)

// BenchmarkMails takes mails and waits until a server on the same machine has all of them.
func BenchmarkMails(b *testing.B) {
	box := mailbox.Start(b, mailbox.Options{Forget: true})
	o := newOffice(b, "smtp+plain://"+box.Addr)
	content := contents()[4]
	b.ResetTimer()
	for range b.N {
		o.take(content.Kind(), content)
	}
	for box.Taken() < b.N {
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
}
