package provider

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/ironplane/ironplane/pkg/client"
)

// stock is a group with free addresses, and two clients.
type stock struct {
	t          *testing.T
	api        *client.Client
	group      int64
	ben, carla int64
}

func newStock(t *testing.T, api *client.Client, prefix string) *stock {
	t.Helper()
	s := &stock{t: t, api: api}
	group, err := api.Groups.Create(t.Context(), client.GroupCreate{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	s.group = group.ID
	if _, err := api.Groups.CreateEntities(t.Context(), group.ID, client.GroupCreateEntities{Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		id   *int64
	}{{"ben", &s.ben}, {"carla", &s.carla}} {
		created, err := api.Clients.Create(t.Context(), client.ClientCreate{
			Email: fmt.Sprintf("%s@%s.example", c.name, t.Name()), First: c.name, Last: "Miller",
		})
		if err != nil {
			t.Fatal(err)
		}
		*c.id = created.ID
	}
	return s
}

// config returns an allocation for the first client.
func (s *stock) config(members string) string {
	return fmt.Sprintf("resource \"ironplane_allocation\" \"it\" {\n group_id = %d\n client_id = %d\n%s\n}\n", s.group, s.ben, members)
}

// owned returns the addresses of a client.
func (s *stock) owned(id int64) (all []string) {
	s.t.Helper()
	for e, err := range s.api.Entities.List(s.t.Context(), client.EntityList{GroupID: s.group, Owner: id}) {
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, e.FullIP)
	}
	return all
}

// entity returns the entity with an address.
func (s *stock) entity(address string) client.Entity {
	s.t.Helper()
	for e, err := range s.api.Entities.List(s.t.Context(), client.EntityList{GroupID: s.group}) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.FullIP == address {
			return e
		}
	}
	s.t.Fatalf("got no entity %s", address)
	return client.Entity{}
}

// has checks the addresses in the state, and that they are the client's.
func (s *stock) has(want ...string) resource.TestCheckFunc {
	return func(state *terraform.State) error {
		attributes := state.RootModule().Resources["ironplane_allocation.it"].Primary.Attributes
		var got []string
		for i := range want {
			got = append(got, attributes[fmt.Sprintf("addresses.%d", i)])
		}
		owned := s.owned(s.ben)
		if sorted := slices.Sorted(slices.Values(want)); !slices.Equal(got, want) || !slices.Equal(owned, sorted) {
			return fmt.Errorf("got %v in the state, and %v of the client, want %v", got, owned, want)
		}
		return nil
	}
}

// TestAllocation grows and shrinks an allocation, whose other entities stay, takes entities away, and gives one to a sub client. The
// destruction releases what is still the client's.
func TestAllocation(t *testing.T) {
	t.Parallel()
	api, _ := open(t)
	s := newStock(t, api, "198.51.100.0/28")
	updates := plans("ironplane_allocation.it", plancheck.ResourceActionUpdate)
	release := func(address string) {
		if _, err := api.Entities.Release(t.Context(), s.entity(address).ID); err != nil {
			t.Error(err)
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: servers,
		Steps: []resource.TestStep{
			{Config: s.config("number = 0"), ExpectError: regexp.MustCompile("number must be at least 1")},
			{Config: s.config("number = 1\nprefix = 30"), ExpectError: regexp.MustCompile("Set either number or prefix")},
			{Config: s.config("server_name = \"fra1-s1\""), ExpectError: regexp.MustCompile("Set server_id, too")},
			{Config: s.config("number = 99"), ExpectError: regexp.MustCompile("has 14 free IPv4 entities")},
			{Config: s.config("number = 2\nserver_id = 5\nserver_name = \"fra1-s1\""), Check: s.has("198.51.100.1", "198.51.100.2")},
			{
				ResourceName:                         "ironplane_allocation.it",
				ImportState:                          true,
				ImportStateIdFunc:                    func(*terraform.State) (string, error) { return s.ids("198.51.100.1", "198.51.100.2"), nil },
				ImportStateVerify:                    true,
				ImportStateVerifyIdentifierAttribute: "addresses.0",
			},
			{
				Config:           s.config("number = 4\nserver_id = 7"),
				ConfigPlanChecks: updates,
				Check: resource.ComposeTestCheckFunc(
					s.has("198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"),
					func(*terraform.State) error {
						for _, address := range s.owned(s.ben) {
							if server := s.entity(address).Owner.Server; server == nil || server.ID != 7 || server.Name != "" {
								return fmt.Errorf("got the server %+v of %s, want 7", server, address)
							}
						}
						return nil
					}),
			},
			{ // the released one is quarantined, so that another one takes its place
				PreConfig:        func() { release("198.51.100.2") },
				Config:           s.config("number = 4"),
				ConfigPlanChecks: updates,
				Check:            s.has("198.51.100.1", "198.51.100.3", "198.51.100.4", "198.51.100.5"),
			},
			{
				Config:           s.config("number = 3"),
				ConfigPlanChecks: updates,
				Check:            s.has("198.51.100.1", "198.51.100.3", "198.51.100.4"),
			},
			{ // what is another client's now is not touched by the destruction
				PreConfig: func() {
					owner := client.Set(client.EntityUpdateOwner{ID: client.Set(s.carla)})
					if _, err := api.Entities.Update(t.Context(), s.entity("198.51.100.3").ID, client.EntityUpdate{Owner: owner}); err != nil {
						t.Error(err)
					}
					sub, err := api.Clients.Create(t.Context(), client.ClientCreate{Email: "sub@allocation.example", First: "Sub", Last: "Miller"})
					if err == nil {
						_, err = api.SubLinks.Create(t.Context(), s.ben, client.SubLinkCreate{ClientID: sub.ID})
					}
					if err == nil {
						_, err = api.Entities.Give(t.Context(), s.entity("198.51.100.4").ID, client.EntityGive{Owner: client.EntityGiveOwner{ID: sub.ID}})
					}
					if err != nil {
						t.Error(err)
					}
				},
				Config:           s.config("number = 2"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
		},
	})
	for address, want := range map[string]string{"198.51.100.1": "quarantined", "198.51.100.3": "assigned", "198.51.100.4": "quarantined"} {
		if got := s.entity(address).Status; got != want {
			t.Errorf("got %s %s after the destruction, want %s", address, got, want)
		}
	}
}

// ids returns the ids of entities as an import wants them.
func (s *stock) ids(addresses ...string) (ids string) {
	for i, address := range addresses {
		if i > 0 {
			ids += ","
		}
		ids += fmt.Sprint(s.entity(address).ID)
	}
	return ids
}

// TestAllocatedPrefix allocates a prefix, and another one for another client.
func TestAllocatedPrefix(t *testing.T) {
	t.Parallel()
	api, _ := open(t)
	s := newStock(t, api, "203.0.113.0/28")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: servers,
		Steps: []resource.TestStep{
			{Config: s.config("prefix = 30"), Check: s.has("203.0.113.4", "203.0.113.5", "203.0.113.6", "203.0.113.7")},
			{
				Config:           s.config("prefix = 31"),
				ConfigPlanChecks: plans("ironplane_allocation.it", plancheck.ResourceActionReplace),
			},
		},
	})
	if got := s.owned(s.ben); len(got) != 0 {
		t.Errorf("got %v after the destruction, want nothing", got)
	}
}

// TestLostAllocations loses the answers to a creation and to an enlargement. Nothing is allocated twice.
func TestLostAllocations(t *testing.T) {
	t.Parallel()
	api, origin := open(t)
	s := newStock(t, api, "192.0.2.0/28")
	lossy, losing := newLossy(t, origin)
	w := newWorkspace(t, lossy, "")
	apply := func(number int, fails bool, want int) {
		t.Helper()
		w.write("allocation.tf", "provider \"ironplane\" {\n timeout = \"2s\"\n}\n"+s.config(fmt.Sprintf("number = %d", number)))
		losing.Store(fails)
		if out, err := w.run("apply", "-auto-approve"); (err != nil) != fails || len(s.owned(s.ben)) != want {
			t.Fatalf("got %v, %v and\n%s\nwant %d entities", err, s.owned(s.ben), out, want)
		}
	}
	apply(2, true, 2)
	apply(2, false, 2) // the first two are quarantined, because Terraform keeps nothing whose creation failed
	apply(4, true, 4)
	apply(4, false, 4)
	if isEmpty, plan := w.isPlanEmpty(); !isEmpty {
		t.Errorf("got the plan\n%s\nwant an empty one", plan)
	}
}
