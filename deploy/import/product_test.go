package main

import (
	"bytes"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The import into the product: what is planned is made, what overlaps is refused by the API, a second run changes
// nothing.
func TestImportIntoTheProduct(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	c.Do("POST", "/group", `{"name": "elsewhere"}`).Want(200)
	c.Do("POST", "/entity", `{"group": 1, "address": "198.51.100.0/29"}`).Want(200)
	file := export(t)
	into := func() outcome {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), []string{"netbox", file, "--url", c.URL}, func(name string) string { return map[string]string{"IRONPLANE_KEY": c.Key}[name] }, &stdout, &stderr)
		return outcome{code, stdout.String(), stderr.String()}
	}

	into().expect(t, 0, "4 groups, 8 entities 0 6 0 0 2 0",
		"ipam.ipaddress 4, NetBox: no site: 198.51.100.4 (/v4/address overlaps with IP entity 1 (198.51.100.0/29) in IP group 1 (elsewhere))")
	list := c.Do("GET", "/entity", nil).Want(200)
	entities := testkit.Decode[[]network.IPEntity](list)
	if len(entities) != 7 {
		t.Fatalf("%d entities, want 7: %s", len(entities), list.Text)
	}
	into().expect(t, 0, "4 groups, 8 entities 0 0 6 0 2 0")
	if again := c.Do("GET", "/entity", nil).Want(200); again.Text != list.Text {
		t.Errorf("the second run changed\n%s\nto\n%s", list.Text, again.Text)
	}
}
