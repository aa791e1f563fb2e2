package source

import (
	"strings"
	"testing"
)

func TestReadNetBoxNamesInvalidRecords(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, want string }{
		"not JSON":         {`Traceback (most recent call last):`, "invalid character"},
		"not an array":     {`{"model": "dcim.site"}`, "not a JSON array"},
		"cut off":          {`[{"model": "dcim.site", "pk": 1, "fields": {}}`, "read the end of the array"},
		"two files":        {`[] []`, "goes on after the array"},
		"no number":        {`[{"model": "dcim.site", "pk": "one", "fields": {}}]`, `dcim.site "one": the primary key is not a positive number`},
		"no primary key":   {`[{"model": "dcim.site", "fields": {}}]`, "dcim.site : the primary key is not a positive number"},
		"twice":            {`[{"model": "dcim.site", "pk": 1, "fields": {}}, {"model": "dcim.site", "pk": 1, "fields": {}}]`, "dcim.site 1: the file has this record twice"},
		"a bad address":    {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": "10.0.0.256/24"}}]`, "ipam.ipaddress 7: "},
		"no address":       {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": ""}}]`, "ipam.ipaddress 7: has no address"},
		"no prefix":        {`[{"model": "ipam.prefix", "pk": 7, "fields": {}}]`, "ipam.prefix 7: has no prefix"},
		"backwards":        {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.9/24", "end_address": "10.0.0.1/24"}}]`, "ipam.iprange 7: start_address is not before"},
		"two families":     {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.9/24", "end_address": "2001:db8::1/64"}}]`, "ipam.iprange 7: start_address is not before"},
		"a missing site":   {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "site": 3}}]`, "ipam.prefix 7: refers to dcim.site 3, which is not in the file"},
		"a missing scope":  {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "_site": 3}}]`, "ipam.prefix 7: refers to dcim.site 3, which is not in the file"},
		"a missing VRF":    {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": "10.0.0.1/8", "vrf": 3}}]`, "ipam.ipaddress 7: refers to ipam.vrf 3"},
		"a range's VRF":    {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.1/24", "end_address": "10.0.0.9/24", "vrf": 3}}]`, "ipam.iprange 7: refers to ipam.vrf 3"},
		"a missing VLAN":   {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "vlan": 3}}]`, "ipam.prefix 7: refers to ipam.vlan 3"},
		"more than enough": {"[" + strings.Repeat(`{"model": "dcim.site", "fields": {}},`, 12) + `{"model": "dcim.site", "fields": {}}]`, "and 3 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadNetBox(strings.NewReader(test.file))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestReadNetBoxIgnoresOtherModels(t *testing.T) {
	t.Parallel()
	plan, err := ReadNetBox(strings.NewReader(`[{"model": "ipam.aggregate", "pk": "any", "fields": null}]`))
	if err != nil || len(plan.Prefixes) != 0 {
		t.Errorf("got %v, %v, want no prefixes", plan, err)
	}
}

func TestReadCustomersNamesInvalidLines(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "the first line", "tenant,email,first\n": "no column last",
		"tenant,email,first,last\nA,,Ben,Miller\n":                                          "line 2: A has no email, first or last",
		"tenant,email,first,last\nB,b@example.com,Ben,Miller\n":                             `line 2: the export has no tenant "B"`,
		"tenant,email,first,last\nTwo,b@example.com,Ben,Miller\n":                           `line 2: the export has 2 tenants "Two"`,
		"tenant,email,first,last\nA,b@example.com,Ben,Miller\nA,b@example.com,Ben,Miller\n": "line 3: a second line for A",
		"tenant,email,first,last\nA,b@example.com\n":                                        "wrong number of fields",
	} {
		plan := newPlan("NetBox", netBoxModels)
		plan.Tenants = map[int64]string{1: "A", 2: "Two", 3: "Two"}
		if err := plan.ReadCustomers(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", file, err, want)
		}
	}
}
