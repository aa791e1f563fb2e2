package importer

import (
	"io"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/cli/importer/source"
)

// TestPlanOfOtherFormats plans the same space from phpIPAM and from CSV: a pool with addresses in use, and a range.
func TestPlanOfOtherFormats(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read     func(io.Reader) (*source.Plan, error)
		file     string
		stock    selectors
		entities []string
		skipped  []string
	}{
		"phpIPAM": {
			read: source.ReadPHPIPAM,
			file: `{
				"sections": {"code": 200, "success": true, "data": [{"id": "1", "name": "Customers"}]},
				"subnets": {"code": 200, "data": [
					{"id": "2", "subnet": "203.0.113.0", "mask": "29", "sectionId": "1", "vrfId": null, "vlanId": "7", "isPool": "1"},
					{"id": "3", "subnet": "0.0.0.0", "mask": "", "sectionId": "1", "isFolder": "1", "description": "My folder"},
					{"id": 4, "subnet": "203.0.113.8", "mask": "29", "sectionId": "1", "description": "full", "isPool": 1, "isFull": 1, "customer_id": "5"},
					{"id": 5, "subnet": "203.0.113.16", "mask": "30", "sectionId": "1"},
					{"id": 6, "subnet": "10.0.0.0", "mask": "30", "sectionId": "1", "vrfId": "3", "tag": 3}]},
				"addresses": [
					{"id": "1", "subnetId": "2", "ip": "203.0.113.1", "is_gateway": "1", "tag": "2", "description": "gw"},
					{"id": "2", "subnetId": "2", "ip": "203.0.113.2", "hostname": "web3", "tag": "1", "deviceId": "9", "customer_id": "5"},
					{"id": "3", "subnetId": "2", "ip": "203.0.113.3", "hostname": "db1", "tag": "6"}],
				"vlan": {"data": [{"vlanId": "7", "number": "100", "name": "Data"}]},
				"vrf": {"data": [{"vrfId": "3", "name": "Red"}]},
				"devices": {"code": 200, "data": [{"id": "9", "hostname": "fra1-s3"}]},
				"customers": {"code": 200, "data": [{"id": "5", "title": "ACME"}]},
				"tags": {"code": 200, "data": [{"id": "6", "type": "Broken"}]}
			}`,
			stock: selectors{{"prefix", "203.0.113.16/30"}},
			entities: []string{
				`Customers: 10.0.0.0/30 reserved note "phpIPAM: reserved" (subnet 6)`,
				`Customers: 203.0.113.0 available mask 255.255.255.248 gateway 203.0.113.1 vlan 100 (subnet 2)`,
				`Customers: 203.0.113.1 reserved mask 255.255.255.248 vlan 100 "gw" note "phpIPAM: used, gw" (address 1)`,
				`Customers: 203.0.113.2 reserved mask 255.255.255.248 gateway 203.0.113.1 vlan 100 "web3" ` +
					`note "phpIPAM: offline, dns web3, device fra1-s3, tenant ACME" (address 2)`,
				`Customers: 203.0.113.3 reserved mask 255.255.255.248 gateway 203.0.113.1 vlan 100 "db1" note "phpIPAM: broken, dns db1" (address 3)`,
				`Customers: 203.0.113.4 available mask 255.255.255.248 gateway 203.0.113.1 vlan 100 (subnet 2)`,
				`Customers: 203.0.113.5 available mask 255.255.255.248 gateway 203.0.113.1 vlan 100 (subnet 2)`,
				`Customers: 203.0.113.6 available mask 255.255.255.248 gateway 203.0.113.1 vlan 100 (subnet 2)`,
				`Customers: 203.0.113.7 available mask 255.255.255.248 gateway 203.0.113.1 vlan 100 (subnet 2)`,
				`Customers: 203.0.113.8/29 reserved "full" note "phpIPAM: active, full, tenant ACME" (subnet 4)`,
				`Customers: 203.0.113.17 available mask 255.255.255.252 (subnet 5)`,
				`Customers: 203.0.113.18 available mask 255.255.255.252 (subnet 5)`,
			},
		},
		"CSV": {
			read: source.ReadCSV,
			file: "\ufeffIP;Site;Status;Hostname;Customer;VLAN;Gateway;Mask;Device;Description;Tags\n" +
				"203.0.113.0/29;Frankfurt;Available;;;;203.0.113.1;;;;\n" +
				"203.0.113.2;Frankfurt;active;web3;ACME;100;203.0.113.1;255.255.255.248;fra1-s3;\"two\nlines\";\n" +
				"203.0.113.3/29;Frankfurt;;;;;;;;;\n" +
				"203.0.113.8;;free;;;;;;;;\n" +
				"203.0.113.9;;dhcp;;;;;;;;\n" +
				"203.0.113.9;;available;;;;;;;;\n" +
				"10.0.0.1-10.0.0.3;;free;;;;;;;;\n" +
				"10.0.0.2;;;;;;;;;;\n" +
				"10.0.1.1-10.0.1.2;;used;;;;;;;;\n" +
				"2001:db8::/64;;available;;;;;;;;\n" +
				"10.0.2.0/31;;active;;;;;;;;a sale\n",
			stock: selectors{{"tag", "sale"}},
			entities: []string{
				`Frankfurt: 203.0.113.2 reserved mask 255.255.255.248 gateway 203.0.113.1 vlan 100 "web3" ` +
					`note "CSV: active, two lines, device fra1-s3, tenant ACME" (line 3)`,
				`Frankfurt: 203.0.113.3 reserved mask 255.255.255.248 note "CSV: no status" (line 5)`,
				`Frankfurt: 203.0.113.4 available mask 255.255.255.248 gateway 203.0.113.1 (line 2)`,
				`Frankfurt: 203.0.113.5 available mask 255.255.255.248 gateway 203.0.113.1 (line 2)`,
				`Frankfurt: 203.0.113.6 available mask 255.255.255.248 gateway 203.0.113.1 (line 2)`,
				`CSV: no site: 10.0.0.1 available (line 9)`,
				`CSV: no site: 10.0.0.2 reserved note "CSV: no status" (line 10)`,
				`CSV: no site: 10.0.0.3 available (line 9)`,
				`CSV: no site: 10.0.1.1-10.0.1.2 reserved note "CSV: used" (line 11)`,
				`CSV: no site: 10.0.2.0 available mask 255.255.255.254 (line 13)`,
				`CSV: no site: 10.0.2.1 available mask 255.255.255.254 (line 13)`,
				`CSV: no site: 203.0.113.8 available (line 6)`,
				`CSV: no site: 203.0.113.9 reserved note "CSV: dhcp" (line 7)`,
				`CSV: no site: 2001:db8::/64 available (line 12)`,
			},
			skipped: []string{"line 8: same address as another record (203.0.113.9, line 7)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, err := test.read(strings.NewReader(test.file))
			if err != nil {
				t.Fatal(err)
			}
			plan := newPlan(from, test.stock)
			var entities, skipped []string
			for _, e := range plan.Entities {
				entities = append(entities, e.String())
			}
			for _, r := range plan.Skipped {
				skipped = append(skipped, r.Source.String()+": "+r.Reason+" ("+r.Detail+")")
			}
			expect(t, "entities", entities, test.entities)
			expect(t, "skipped", skipped, test.skipped)
		})
	}
}
