package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	ironplane "github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestImportIntoTheProduct imports an export into the product. The API accepts what is planned, and refuses entities that
// overlap with existing ones. A second run changes nothing.
func TestImportIntoTheProduct(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	api := producttest.API(t, c)
	if created, err := api.CreateIPGroupWithResponse(
		t.Context(),
		nil,
		ironplane.CreateIPGroupBody{Name: "elsewhere"},
	); err != nil ||
		created.JSON200 == nil {
		t.Fatalf("got %v, %v, want a group", created, err)
	}
	existing := ironplane.CreateIPEntityBody{Group: ironplane.RefBody{ID: 1}, FullIP: new("198.51.100.0/29")}
	if created, err := api.CreateIPEntityWithResponse(t.Context(), nil, existing); err != nil || created.JSON200 == nil {
		t.Fatalf("got %v, %v, want an entity", created, err)
	}
	entities := func() []ironplane.IPEntity {
		list, err := api.ListIPEntitiesWithResponse(t.Context(), nil)
		if err != nil || list.JSON200 == nil {
			t.Fatalf("got %v, %v, want a list", list, err)
		}
		return *list.JSON200
	}
	file, owners := export(t), filepath.Join(t.TempDir(), "clients.csv")
	if err := os.WriteFile(owners, []byte("email,first,last,tenant\nben@example.com,Ben,Miller,T\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	into := func() outcome {
		var stdout, stderr bytes.Buffer
		code := run(
			t.Context(),
			[]string{"netbox", file, "--url", c.URL, "--clients", owners},
			func(name string) string { return map[string]string{"IRONPLANE_KEY": c.Key}[name] },
			&stdout,
			&stderr,
		)
		return outcome{code, stdout.String(), stderr.String()}
	}

	into().expect(t, 0, "4 groups, 8 entities 0 6 0 0 2 0",
		"ipam.ipaddress 4, NetBox: no site: 198.51.100.4 (/v4/full overlaps with IP entity 1 (198.51.100.0/29) in IP group 1 (elsewhere))")
	for _, e := range entities() {
		if owned := e.Owner != nil && e.Owner.ID == 1 && *e.Owner.Name == "Ben Miller"; owned != (e.FullIP == "10.0.0.2") {
			t.Errorf("%s: got owner %+v, want Ben Miller to own 10.0.0.2 only", e.FullIP, e.Owner)
		}
	}
	created := entities()
	if len(created) != 7 {
		t.Fatalf("got %d entities, want 7: %s", len(created), testkit.JSON(created))
	}
	into().expect(t, 0, "4 groups, 8 entities 0 0 6 0 2 0")
	expect(t, "entities after the second run", []string{testkit.JSON(entities())}, []string{testkit.JSON(created)})
}
