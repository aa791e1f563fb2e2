package process

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

const day = 24 * time.Hour

func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		authority, err := mtls.NewAuthority(365 * day)
		if err != nil {
			t.Fatal(err)
		}
		id, err := authority.Identity("network")
		if err != nil {
			t.Fatal(err)
		}
		o := NewOperations("test")
		exposeCertificate(id, o)
		o.Started()
		want := func(code int, status, message string) {
			t.Helper()
			time.Sleep(checkTTL)
			if got, is := getReadiness(
				t,
				o,
			); got != code || is.Status != status ||
				!strings.Contains(is.Checks["certificate"]+is.Checks["certificate-renewal"], message) {
				t.Errorf("got %d %+v, want %d %s %q", got, is, code, status, message)
			}
		}
		want(200, ready, "okok")
		time.Sleep(335*day - time.Hour)
		want(200, ready, "okok")
		time.Sleep(day)
		want(200, degraded, "okthe certificate expires soon, at 2000-12-31T00:00:00Z")
		time.Sleep(29*day + time.Hour)
		want(503, notReady, "expired at 2000-12-31")

		// A certificate with a short lifetime, limited by its authority's.
		issued, err := authority.Issue("network")
		if err != nil {
			t.Fatal(err)
		}
		if err := id.Renew(issued, authority.Certificate()); err != nil {
			t.Fatal(err)
		}
		want(503, notReady, "expired at 2000-12-31")
		next, err := mtls.NewAuthority(3 * day)
		if err != nil {
			t.Fatal(err)
		}
		if issued, err = next.Issue("network"); err != nil {
			t.Fatal(err)
		}
		if err := id.Renew(issued, next.Certificate()); err != nil {
			t.Fatal(err)
		}
		want(200, ready, "okok")
		time.Sleep(3*day - 7*time.Hour)
		want(200, ready, "okok")
		time.Sleep(2 * time.Hour)
		want(200, degraded, "expires soon")
	})
}
