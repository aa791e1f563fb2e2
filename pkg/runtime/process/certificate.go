package process

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// warnPeriod is how long before its end a certificate is warned of: this, or the twelfth part of its life, should that be
// shorter, as those have that are renewed by themselves.
const warnPeriod = 30 * 24 * time.Hour

// checkExpiry fails where the process's certificate holds no more.
func checkExpiry(id *mtls.Identity) error {
	if _, end := id.Validity(); !time.Now().Before(end) {
		return fmt.Errorf("it ended at %s", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkRenewal fails where it does not hold for long.
func checkRenewal(id *mtls.Identity) error {
	begin, end := id.Validity()
	if time.Until(end) < min(warnPeriod, end.Sub(begin)/12) {
		return fmt.Errorf("it is due: the certificate ends at %s", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// exposeCertificate lets operators see when the process's certificate ends.
func exposeCertificate(id *mtls.Identity, o *Operations) {
	o.Check(
		health.Check{Name: "certificate", Ask: func(context.Context) error { return checkExpiry(id) }},
		health.Check{Name: "certificate's renewal", Optional: true, Ask: func(context.Context) error { return checkRenewal(id) }},
	)
	o.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_certificate_end_timestamp_seconds",
		Help: "When the process's certificate ends, or its authority's, should that be earlier.",
	}, func() float64 {
		_, end := id.Validity()
		return float64(end.Unix())
	}))
}
