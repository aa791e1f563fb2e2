package process

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// warnTime is how long before its end a certificate is warned of: this, or the twelfth part of its life, should that be
// shorter, as those have that are renewed by themselves.
const warnTime = 30 * 24 * time.Hour

// ended fails where the process's certificate holds no more.
func ended(id *mtls.Identity) error {
	if _, end := id.Holds(); !time.Now().Before(end) {
		return fmt.Errorf("it ended at %s", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// due fails where it does not hold for long.
func due(id *mtls.Identity) error {
	begin, end := id.Holds()
	if time.Until(end) < min(warnTime, end.Sub(begin)/12) {
		return fmt.Errorf("it is due: the certificate ends at %s", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// showCertificate lets operators see when the process's certificate ends.
func showCertificate(id *mtls.Identity, o *Operations) {
	o.Check(
		health.Check{Name: "certificate", Ask: func(context.Context) error { return ended(id) }},
		health.Check{Name: "certificate's renewal", Optional: true, Ask: func(context.Context) error { return due(id) }},
	)
	o.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_certificate_end_timestamp_seconds",
		Help: "When the process's certificate ends, or its authority's, should that be earlier.",
	}, func() float64 {
		_, end := id.Holds()
		return float64(end.Unix())
	}))
}
