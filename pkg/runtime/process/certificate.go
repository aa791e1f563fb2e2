package process

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// warnPeriod is how long before its end a certificate is warned of, or a twelfth of its lifetime if that is shorter.
// Certificates with a short lifetime are renewed automatically.
const warnPeriod = 30 * 24 * time.Hour

// checkExpiry fails if the process's certificate has expired.
func checkExpiry(id *mtls.Identity) error {
	if _, end := id.Validity(); !time.Now().Before(end) {
		return fmt.Errorf("the certificate expired at %s: issue a new one", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkRenewal fails if the certificate expires soon.
func checkRenewal(id *mtls.Identity) error {
	begin, end := id.Validity()
	if time.Until(end) < min(warnPeriod, end.Sub(begin)/12) {
		return fmt.Errorf("the certificate expires soon, at %s: issue a new one", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// exposeCertificate registers checks and a metric for the end of the process's certificate.
func exposeCertificate(id *mtls.Identity, o *Operations) {
	o.Check(
		health.Check{Name: "certificate", Ask: func(context.Context) error { return checkExpiry(id) }},
		health.Check{Name: "certificate-renewal", Optional: true, Ask: func(context.Context) error { return checkRenewal(id) }},
	)
	o.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_certificate_end_timestamp_seconds",
		Help: "When the process's certificate expires, or its authority's if that is earlier.",
	}, func() float64 {
		_, end := id.Validity()
		return float64(end.Unix())
	}))
}
