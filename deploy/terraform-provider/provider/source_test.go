package provider

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
)

// sources returns data sources for the resource of a lifecycle: one by its id, and one by its name or email address.
func (k *Kind) sources() string {
	address, parents := "ironplane_"+k.Name+".it.", ""
	for _, p := range k.path[:len(k.path)-1] {
		parents += fmt.Sprintf(" %s = %s%s\n", p.name, address, p.name)
	}
	own := k.path[len(k.path)-1].name
	text := fmt.Sprintf("data \"ironplane_%s\" \"by_id\" {\n%s %s = %s%s\n}\n", k.Name, parents, own, address, own)
	if name := k.searched(); name != "" {
		text += fmt.Sprintf("data \"ironplane_%s\" \"by_filter\" {\n%s filter = { %s = %s%s }\n}\n", k.Name, parents, name, address, name)
	}
	return text
}

// searched returns the attribute that a filter finds an item by, or an empty text.
func (k *Kind) searched() string {
	if !k.HasList() {
		return ""
	}
	if slices.ContainsFunc(k.filters(), func(p operations.Parameter) bool { return p.Required }) {
		return "" // the list is a search, with members of its own
	}
	for _, p := range k.filters() {
		isAttribute := slices.ContainsFunc(k.Attributes, func(a *Attribute) bool { return a.Name == p.Name })
		if isAttribute && (p.Name == "name" || p.Name == "email") {
			return p.Name
		}
	}
	return ""
}

// sameAs compares the data sources with the resource.
func sameAs(address string, ignored []string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		want := s.RootModule().Resources[address].Primary.Attributes
		for name, source := range s.RootModule().Resources {
			if !strings.HasPrefix(name, "data.") {
				continue
			}
			if len(source.Primary.Attributes) < 2 {
				return fmt.Errorf("got %v of %s, want members", source.Primary.Attributes, name)
			}
			for member, got := range source.Primary.Attributes {
				isIgnored := slices.ContainsFunc(ignored, func(i string) bool { return member == i || strings.HasPrefix(member, i+".") })
				isCount := strings.HasSuffix(member, "%") // the size of an object: a resource may have other attributes
				if !isIgnored && !isCount && !strings.HasPrefix(member, "filter.") && got != want[member] {
					return fmt.Errorf("got %s %q of %s, want %q", member, got, name, want[member])
				}
			}
		}
		return nil
	}
}

// readOnly are data sources without a resource: a configuration, and what one member must be.
var readOnly = []struct{ kind, config, member, want string }{
	{"current_api_key", ``, "name", "first key"},
	{"forwarding_type", `id = 1`, "slug", "port_to_port"},
	{"granter_link", "grantee_id = %[2]d\n id = %[4]d", "granter", "%[1]d"},
	{"group_utilization", `group_id = %[5]d`, "free", "14"},
	{"log_item", `filter = { type = "group.created", target_type = "group", target_id = %[5]d }`, "type", "group.created"},
	{"parent_link", "child_id = %[2]d\n id = %[3]d", "parent", "%[1]d"},
	{"setting_group", `id = 1`, "id", "1"},
	{"webhook_delivery", "webhook_id = %[6]d\n id = %[7]d", "type", "webhook.tested"},
}

// untried are the kinds whose items need more than this package's product has. Their data sources differ in nothing but the table of
// operations.
var untried = map[string]string{
	"discovered_machine": "a machine has to ask an agent",
	"email_message":      "a mail server has to be there",
	"package":            "a panel has to install packages",
	"session":            "a person has to sign in",
	"todo_item":          "the list is empty in a product that is set up",
	"install":            "TestInstall has the resource",
	"iso_edition":        "an edition exists after the import of an ISO of Windows",
}

// TestSources reads items that are no resources.
func TestSources(t *testing.T) {
	t.Parallel()
	api, _ := open(t)
	s := newStock(t, api, "198.51.100.16/28")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sub, err := api.SubLinks.Create(t.Context(), s.ben, client.SubLinkCreate{ClientID: s.carla})
	must(err)
	super, err := api.SuperLinks.Create(t.Context(), s.ben, client.SuperLinkCreate{ClientID: s.carla})
	must(err)
	hook, err := api.Webhooks.Create(t.Context(), client.WebhookCreate{URL: "http://127.0.0.1:1/", Types: []string{"group.*"}})
	must(err)
	delivery, err := api.Webhooks.Test(t.Context(), hook.ID)
	must(err)
	fill := func(text string) string {
		if strings.Contains(text, "%") {
			return fmt.Sprintf(text+"%[8]s", s.ben, s.carla, sub.ID, super.ID, s.group, hook.ID, delivery.ID, "")
		}
		return text
	}
	for _, r := range readOnly {
		t.Run(r.kind, func(t *testing.T) {
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: servers,
				Steps: []resource.TestStep{{
					Config: fmt.Sprintf("data \"ironplane_%s\" \"it\" {\n %s\n}\n", r.kind, fill(r.config)),
					Check:  resource.TestCheckResourceAttr("data.ironplane_"+r.kind+".it", r.member, fill(r.want)),
				}},
			})
		})
	}
}

// TestEverySourceIsRead says that no data source is left out.
func TestEverySourceIsRead(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		isRead := slices.ContainsFunc(lifecycles, func(l lifecycle) bool { return l.kind == k.Name })
		for _, r := range readOnly {
			isRead = isRead || r.kind == k.Name
		}
		if isRead == (untried[k.Name] != "") {
			t.Errorf("ironplane_%s has a test: %v, and a reason for none: %q", k.Name, isRead, untried[k.Name])
		}
	}
}
