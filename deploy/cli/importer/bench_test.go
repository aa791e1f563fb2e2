package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
)

// benchAddresses is the number of addresses of a large installation.
const benchAddresses = 100_000

// BenchmarkImport imports a NetBox export with 100,000 addresses in use into an empty product.
func BenchmarkImport(b *testing.B) {
	var dump strings.Builder
	dump.WriteString("[" + recordJSON("ipam.prefix", 1, `"prefix": "10.0.0.0/8", "status": "active"`))
	for i := range benchAddresses {
		dump.WriteString("," + recordJSON("ipam.ipaddress", i+1,
			fmt.Sprintf(`"address": "10.%d.%d.%d/8", "status": "active", "dns_name": "host-%d.example.com"`, i>>16, i>>8&255, i&255, i)))
	}
	dump.WriteString("]")
	file := writeFile(b, "netbox.json", dump.String())
	for b.Loop() {
		b.StopTimer()
		_, c := producttest.Start(b)
		b.StartTimer()
		want := fmt.Sprintf("1 groups, %d entities", benchAddresses)
		if o := importFile(b, c, "netbox", file); o.code != 0 || !strings.Contains(o.stdout, want) {
			b.Fatalf("got exit code %d, want an import of all addresses:\n%s%s", o.code, o.stdout, o.stderr)
		}
	}
	b.ReportMetric(float64(b.N*benchAddresses)/b.Elapsed().Seconds(), "addresses/s")
}
