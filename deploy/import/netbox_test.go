package main

import (
	"strings"
	"testing"
)

func TestReadDumpNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, want string }{
		"not JSON":         {`Traceback (most recent call last):`, "invalid character"},
		"not an array":     {`{"model": "dcim.site"}`, "not a JSON array"},
		"cut off":          {`[{"model": "dcim.site", "pk": 1, "fields": {}}`, "the end of the array"},
		"two files":        {`[] []`, "something follows"},
		"no number":        {`[{"model": "dcim.site", "pk": "one", "fields": {}}]`, `dcim.site "one": has no number for a primary key`},
		"no primary key":   {`[{"model": "dcim.site", "fields": {}}]`, "dcim.site : has no number for a primary key"},
		"twice":            {`[{"model": "dcim.site", "pk": 1, "fields": {}}, {"model": "dcim.site", "pk": 1, "fields": {}}]`, "dcim.site 1: stands in the file twice"},
		"a bad address":    {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": "10.0.0.256/24"}}]`, "ipam.ipaddress 7: "},
		"no address":       {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": ""}}]`, "ipam.ipaddress 7: has no address"},
		"no prefix":        {`[{"model": "ipam.prefix", "pk": 7, "fields": {}}]`, "ipam.prefix 7: has no prefix"},
		"backwards":        {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.9/24", "end_address": "10.0.0.1/24"}}]`, "ipam.iprange 7: does not run"},
		"two families":     {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.9/24", "end_address": "2001:db8::1/64"}}]`, "ipam.iprange 7: does not run"},
		"a missing site":   {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "site": 3}}]`, "ipam.prefix 7: refers to dcim.site 3, which is not in the file"},
		"a missing scope":  {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "_site": 3}}]`, "ipam.prefix 7: refers to dcim.site 3, which is not in the file"},
		"a missing VRF":    {`[{"model": "ipam.ipaddress", "pk": 7, "fields": {"address": "10.0.0.1/8", "vrf": 3}}]`, "ipam.ipaddress 7: refers to ipam.vrf 3"},
		"a range's VRF":    {`[{"model": "ipam.iprange", "pk": 7, "fields": {"start_address": "10.0.0.1/24", "end_address": "10.0.0.9/24", "vrf": 3}}]`, "ipam.iprange 7: refers to ipam.vrf 3"},
		"a missing VLAN":   {`[{"model": "ipam.prefix", "pk": 7, "fields": {"prefix": "10.0.0.0/8", "vlan": 3}}]`, "ipam.prefix 7: refers to ipam.vlan 3"},
		"more than enough": {"[" + strings.Repeat(`{"model": "dcim.site", "fields": {}},`, 12) + `{"model": "dcim.site", "fields": {}}]`, "and 3 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readDump(strings.NewReader(test.file))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something with %q", err, test.want)
			}
		})
	}
}

func TestReadDumpPassesOverOtherModels(t *testing.T) {
	t.Parallel()
	d := dumpOf(t, `{"model": "ipam.aggregate", "pk": "any", "fields": null}`)
	if len(d.prefixes) != 0 {
		t.Errorf("got %v, want no prefixes", d.prefixes)
	}
}

func TestReadCustomersNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"": "the first line", "tenant,email,first\n": "no column last",
		"tenant,email,first,last\nA,,Ben,Miller\n":                                          "line 2: A has no email, first or last",
		"tenant,email,first,last\nB,b@example.com,Ben,Miller\n":                             `line 2: no tenant is called "B"`,
		"tenant,email,first,last\nTwo,b@example.com,Ben,Miller\n":                           `line 2: 2 tenants are called "Two"`,
		"tenant,email,first,last\nA,b@example.com,Ben,Miller\nA,b@example.com,Ben,Miller\n": "line 3: A stands there twice",
		"tenant,email,first,last\nA,b@example.com\n":                                        "wrong number of fields",
	} {
		d := dumpOf(t, rec(modelTenant, 1, `"name": "A"`), rec(modelTenant, 2, `"name": "Two"`), rec(modelTenant, 3, `"name": "Two"`))
		if err := d.readCustomers(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", file, err, want)
		}
	}
}
