package source

import (
	"strings"
	"testing"
)

func TestReadCSVNamesInvalidLines(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                                         "read the first line",
		"ip,name\n":                                "the first line has no column status",
		"status\n":                                 "the first line has no column address",
		"ip,address,status\n":                      "the first line has two columns for address",
		"ip,status\n10.0.0.256,active\n":           `line 2: address is "10.0.0.256", which is no address, range or prefix`,
		"ip,status\n10.0.0.9-10.0.0.1,x\n":         `line 2: address is "10.0.0.9-10.0.0.1", which is no range`,
		"ip,status\n10.0.0.1-2001:db8::,x\n":       "which is no range",
		"ip,status,vlan\n10.0.0.1,x,4095\n":        `line 2: vlan is "4095", but must be a number from 1 to 4094`,
		"ip,status,gateway\n10.0.0.1,x,gw\n":       `line 2: gateway is "gw", but must be an address`,
		"ip,status,mask\n10.0.0.1,x,/24\n":         `line 2: mask is "/24", but must be a mask such as 255.255.255.0`,
		"ip,status,mask\n10.0.0.1,x,255.0.255.0\n": `line 2: mask is "255.0.255.0"`,
		"ip,status\n10.0.0.1\n":                    "wrong number of fields",
	} {
		if _, err := ReadCSV(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", file, err, want)
		}
	}
}

func TestReadPHPIPAMNamesInvalidRecords(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"":                   "EOF",
		"[]":                 "cannot unmarshal array",
		`{"sections": []}`:   "the file has no subnets",
		`{"subnets": []} {}`: "goes on after the object",
		`{"subnets": {"code": 401, "success": false, "message": "Invalid token"}}`: "phpIPAM answered 401 Invalid token",
		`{"subnets": [{"id": "x"}]}`:                                                                              `"x" is not a number`,
		`{"subnets": [{"id": 1, "subnet": "10.0.0.0", "mask": 33}]}`:                                              "subnet 1: 10.0.0.0/33 is not a prefix",
		`{"subnets": [{"id": 1, "subnet": "10.0.0.0", "mask": 24, "sectionId": 2}]}`:                              "subnet 1: refers to section 2, which is not in the file",
		`{"subnets": [{"id": 1, "subnet": "10.0.0.0", "mask": 24}, {"id": 1, "subnet": "10.0.1.0", "mask": 24}]}`: "subnet 1: the file has this record twice",
		`{"subnets": [], "addresses": [{"id": 1, "ip": "10.0.0.1", "subnetId": 3}]}`:                              "address 1: refers to subnet 3, which is not in the file",
		`{"subnets": [], "addresses": [{"id": 1, "ip": "168427779"}]}`:                                            `address 1: "168427779" is not an address`,
	} {
		if _, err := ReadPHPIPAM(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", file, err, want)
		}
	}
	if plan, err := ReadPHPIPAM(
		strings.NewReader(`{"subnets": [], "customers": {"code": 404, "success": 0, "message": "None"}}`),
	); err != nil ||
		len(plan.Tenants) != 0 {
		t.Errorf("got %v, %v, want a list that phpIPAM does not have to be empty", plan, err)
	}
}
