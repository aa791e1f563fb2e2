package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/ironplane/ironplane/pkg/client"
)

// lifecycle is the life of a resource: it is created, edited, changed by others and deleted.
type lifecycle struct {
	kind    string
	other   string // resources that it refers to
	created string // its members at first
	edited  string // and after an edit
	drift   string // the body of an edit by somebody else
	ignore  string // members that an import cannot know
	forever bool   // whether it cannot be deleted
	fixed   bool   // whether it cannot be edited
}

const (
	aGroup  = "resource \"ironplane_group\" \"other\" {\n name = \"%s\"\n}\n"
	aClient = "resource \"ironplane_client\" \"other\" {\n email = \"%s@example.com\"\n first = \"Ben\"\n last = \"Miller\"\n}\n"
	agent   = `http = { host = "agent.example.com", port = 8443, api_key = "a long key of an agent, 32 letters", use_https = true }`
)

var lifecycles = []lifecycle{
	{
		kind:    "admin",
		created: `email = "anna@example.com"` + "\n" + `password = "a long walk in the rain"`,
		edited:  "email = \"anna@example.com\"\npassword = \"another walk in the rain\"\nreceive_copies = true",
		drift:   `{"email": "other@example.com"}`,
		ignore:  "password",
	},
	{
		kind: "admin_permissions",
		other: "resource \"ironplane_admin\" \"other\" {\n email = \"permitted@example.com\"\n" +
			" password = \"a long walk in the rain\"\n}\n",
		created: "admin_id = ironplane_admin.other.id\nnetwork = { entities = { read = true } }",
		edited:  "admin_id = ironplane_admin.other.id\nnetwork = { entities = { read = true, write = true } }",
		drift:   `{"network": {"entities": {"write": false}}}`,
		forever: true,
	},
	{
		kind:    "api_key",
		created: `name = "robot"`,
		edited: "name = \"robot 2\"\nallowed_cidrs = [\"192.0.2.0/24\", \"198.51.100.0/24\"]\n" +
			"expires_at = \"2090-01-01T02:00:00+02:00\"",
		drift:  `{"name": "robot 3"}`,
		ignore: "key expires_at", // an import has the API's spelling
	},
	{
		kind:    "boot_script",
		created: `name = "boot"`,
		edited:  "name = \"boot 2\"\nbody = \"#!ipxe\\nexit\\n\"",
		drift:   `{"body": "#!ipxe\nreboot\n"}`,
	},
	{
		kind:    "client",
		created: "email = \"eva@example.com\"\nfirst = \"Eva\"\nlast = \"Muster\"\nlanguage = \"de\"",
		edited: "email = \"eva@example.com\"\nfirst = \"Eva\"\nlast = \"Maier\"\n" +
			"billing = { ignore_auto_suspend = true }\nverify = { require = true }",
		drift: `{"last": "Moser", "billing": {"ignoreAutoSuspend": false}}`,
	},
	{
		kind:    "computer_part",
		created: "name = \"Xeon\"\npart_type = \"CPU\"\nbilling_id = \"X-1\"",
		edited:  "name = \"Xeon 2\"\npart_type = \"CPU\"",
		drift:   `{"name": "Epyc", "part_type": "CPU", "billing_id": null}`,
		ignore:  "part_type", // the API knows it as cpu
	},
	{
		kind:    "dhcp_server",
		created: "name = \"dhcp\"\n" + agent,
		edited:  "name = \"dhcp 2\"\n" + agent,
		drift:   `{"http": {"port": 9443, "api_key": "a long key of an agent, 32 letters"}}`,
		ignore:  "http.api_key",
	},
	{
		kind:    "driver",
		created: "name = \"net\"\ndriver = base64encode(\"a driver\")",
		edited:  "name = \"net 2\"\ndriver = base64encode(\"another driver\")",
		drift:   `{"name": "net 3"}`,
		ignore:  "driver",
	},
	{
		kind:    "email_template",
		created: "name = \"welcome\"\nsubject = \"Hello\"\nbody = \"Hello.\"\nhtml = \"<p>Hello.</p>\"",
		edited:  "name = \"welcome\"\nsubject = \"Hello\"\nbody = \"Hello again.\"",
		drift:   `{"name": "welcome", "subject": "Good bye", "body": "Hello again."}`,
	},
	{
		kind:  "entity",
		other: fmt.Sprintf(aGroup, "entities") + fmt.Sprintf(aClient, "entities"),
		created: "group = ironplane_group.other.id\nv4 = { address = \"203.0.113.0/28\", gateway = \"203.0.113.1\" }\nvlan = 120\n" +
			"owner = { id = ironplane_client.other.id, server = { id = 4, name = \"fra1-s4\" } }",
		edited: "group = ironplane_group.other.id\nv4 = { address = \"203.0.113.0/28\", gateway = \"203.0.113.2\" }\nnickname = \"rack 12\"",
		drift:  `{"nickname": "rack 13", "status": "available", "v4": {"gateway": "203.0.113.3"}}`,
	},
	{
		kind:    "field",
		created: "name = \"Rack\"\nslug = \"rack\"\ntarget_type = \"entity\"\ndesc = \"where it is\"",
		edited:  "name = \"Rack 2\"\nslug = \"rack\"\ntarget_type = \"entity\"",
		drift:   `{"name": "Rack 3"}`,
	},
	{
		kind: "field_value",
		other: fmt.Sprintf(aGroup, "values") + "resource \"ironplane_field\" \"other\" {\n name = \"Site\"\n" +
			" slug = \"site\"\n target_type = \"group\"\n}\n",
		created: "field_id = ironplane_field.other.id\ntarget_id = ironplane_group.other.id\nvalue = \"2027\"",
		edited:  "field_id = ironplane_field.other.id\ntarget_id = ironplane_group.other.id\nvalue = \"2028\"",
		drift:   `{"value": "2029"}`,
	},
	{
		kind:  "file_server",
		other: fmt.Sprintf(aGroup, "files"),
		created: "name = \"files\"\ngroup_id = ironplane_group.other.id\ninstall_max_concurrent = 4\n" + agent + "\n" +
			`ssh = { public_key = "` + hostKey + `" }`,
		edited: "name = \"files 2\"\ngroup_id = ironplane_group.other.id\ninstall_max_concurrent = 8\n" + agent + "\n" +
			`ssh = { public_key = "` + hostKey + `", port = 2222 }`,
		drift:  `{"install_max_concurrent": 2, "ssh": {"port": 22}}`,
		ignore: "http.api_key",
	},
	{
		kind:  "forwarding_gateway",
		other: fmt.Sprintf(aGroup, "forward"),
		created: "name = \"gw\"\nhostname = \"gw.example.com\"\nport_limit = \"100\"\n" +
			"api_key = \"a long key of a gateway\"\ngroups = [ironplane_group.other.id]",
		edited: "name = \"gw\"\nhostname = \"gw.example.com\"\nport_limit = \"20000-29999\"\napi_key = \"a long key of a gateway\"",
		drift:  `{"hostname": "gw2.example.com", "api_key": "a long key of a gateway"}`,
		ignore: "api_key",
	},
	{
		kind:    "group",
		created: "name = \"Berlin\"\nbilling_id = \"B-1\"",
		edited:  "name = \"Berlin 2\"\nreserved = true",
		drift:   `{"reserved": false}`,
	},
	{
		kind:    "identity_provider",
		created: "name = \"sso\"\nissuer = \"https://sso.example.com\"\nclient_id = \"ironplane\"\nclient_secret = \"a secret\"",
		edited: "name = \"sso\"\nissuer = \"https://sso.example.com\"\nclient_id = \"ironplane\"\n" +
			"client_secret = \"a secret\"\ndomains = [\"example.com\"]",
		drift:  `{"domains": []}`,
		ignore: "client_secret",
	},
	{kind: "integration", created: `name = "shop"`, edited: "name = \"shop 2\"\ndisabled = true", drift: `{"disabled": false}`},
	{
		kind:    "integration_permissions",
		other:   "resource \"ironplane_integration\" \"other\" {\n name = \"permitted\"\n}\n",
		created: "integration_id = ironplane_integration.other.id\nnetwork = { groups = { read = true } }",
		edited:  "integration_id = ironplane_integration.other.id\nnetwork = { groups = { read = true, write = true } }",
		drift:   `{"network": {"groups": {"write": false}}}`,
		forever: true,
	},
	{
		kind:    "iso",
		created: "name = \"debian\"\nfolder = \"debian\"\nurl = \"http://127.0.0.1:1/debian.iso\"",
		edited:  "name = \"debian 2\"\nfolder = \"debian\"\nurl = \"http://127.0.0.1:1/debian.iso\"",
		drift:   `{"name": "debian 3"}`,
		ignore:  "url",
	},
	{
		kind:    "port_speed",
		created: "name = \"3 Gbit/s\"\nspeed = 3000\nbilling_id = \"G\"",
		edited:  "name = \"4 Gbit/s\"\nspeed = 4000",
		drift:   `{"name": "5", "speed": 5000, "billing_id": null}`,
	},
	{
		kind:    "preseed",
		created: `name = "preseed"`,
		edited:  "name = \"preseed\"\nbody = \"d-i\"\nis_installable = true",
		drift:   `{"is_installable": false}`,
	},
	{
		kind: "profile",
		other: "resource \"ironplane_boot_script\" \"other\" {\n name = \"of a profile\"\n}\n" +
			"resource \"ironplane_shell_script\" \"other\" {\n count = 2\n name = \"of a profile ${count.index}\"\n}\n",
		created: "name = \"debian\"\nboot_script = ironplane_boot_script.other.id\n" +
			"shell = { during = ironplane_shell_script.other[*].id }",
		edited: "name = \"debian 13\"\nboot_script = ironplane_boot_script.other.id\n" +
			"shell = { during = reverse(ironplane_shell_script.other[*].id) }\ntime_until_marked_failed = 90",
		drift: `{"shell": {"during": []}}`,
	},
	{
		kind:    "setting",
		created: "setting_id = 1\ntext = \"Example Hosting\"",
		edited:  "setting_id = 1\ntext = \"Example Servers\"",
		drift:   `{"text": "Other"}`,
		forever: true,
	},
	{
		kind:    "shell_script",
		created: `name = "shell"`,
		edited:  "name = \"shell\"\nbody = \"true\"\ndescription = \"does nothing\"",
		drift:   `{"body": "false"}`,
	},
	{
		kind:    "sub_link",
		other:   fmt.Sprintf(aClient, "sub") + strings.Replace(fmt.Sprintf(aClient, "sub2"), "other", "second", 1),
		created: "parent_id = ironplane_client.other.id\nclient_id = ironplane_client.second.id",
		fixed:   true,
	},
	{
		kind:    "super_link",
		other:   fmt.Sprintf(aClient, "super") + strings.Replace(fmt.Sprintf(aClient, "super2"), "other", "second", 1),
		created: "granter_id = ironplane_client.other.id\nclient_id = ironplane_client.second.id",
		fixed:   true,
	},
	{
		kind:    "verify_method",
		created: "method_id = 1\ndescription = \"an app\"",
		edited:  "method_id = 1\ndescription = \"an app for codes\"",
		drift:   `{"description": "an application"}`,
		forever: true,
	},
	{
		kind:    "webhook",
		created: "url = \"http://127.0.0.1:1/hook\"\nname = \"Shop\"\ntypes = [\"group.*\", \"admin.*\"]",
		edited:  "url = \"http://127.0.0.1:1/hook\"\ntypes = [\"group.*\"]\nenabled = false",
		drift:   `{"enabled": true}`,
		ignore:  "secret",
	},
}

const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"

// TestLifecycles creates, edits, imports and deletes an item of each kind, and changes and deletes it behind Terraform's back. The
// plan after each apply is empty.
func TestLifecycles(t *testing.T) {
	api, _ := open(t)
	for _, l := range lifecycles {
		t.Run(l.kind, func(t *testing.T) {
			t.Parallel()
			l.test(t, api)
		})
	}
}

// TestEveryResourceHasALifecycle says that no resource is left out.
func TestEveryResourceHasALifecycle(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{"install": "TestInstall", "iso_edition": "an edition exists after the import of an ISO of Windows"}
	for _, k := range Kinds() {
		has := slices.ContainsFunc(lifecycles, func(l lifecycle) bool { return l.kind == k.Name })
		if k.IsResource() && !has && elsewhere[k.Name] == "" {
			t.Errorf("ironplane_%s has no lifecycle", k.Name)
		}
	}
}

func (l lifecycle) test(t *testing.T, api *client.Client) {
	k := kindOf(l.kind)
	address := "ironplane_" + l.kind + ".it"
	config := func(members string) string {
		return l.other + "resource \"ironplane_" + l.kind + "\" \"it\" {\n" + members + "\n}\n"
	}
	remember := &remembered{kind: k, api: api, address: address}
	steps := []resource.TestStep{{Config: config(l.created), Check: remember.check}}
	last := l.created
	if !l.fixed {
		last = l.edited
		steps = append(steps,
			resource.TestStep{Config: config(last), ConfigPlanChecks: plans(address, plancheck.ResourceActionUpdate), Check: remember.check},
			resource.TestStep{
				PreConfig:        func() { remember.send(t, k.update.Method, l.drift) },
				Config:           config(last),
				ConfigPlanChecks: plans(address, plancheck.ResourceActionUpdate),
				Check:            remember.check,
			})
	}
	steps = append(steps, resource.TestStep{
		ResourceName:                         address,
		ImportState:                          true,
		ImportStateIdFunc:                    func(*terraform.State) (string, error) { return remember.id, nil },
		ImportStateVerify:                    true,
		ImportStateVerifyIdentifierAttribute: k.path[len(k.path)-1].name,
		ImportStateVerifyIgnore:              strings.Fields(l.ignore),
	})
	steps = append(steps, resource.TestStep{Config: config(last) + k.sources(), Check: sameAs(address, strings.Fields(l.ignore))})
	if !l.forever {
		steps = append(steps, resource.TestStep{
			PreConfig:        func() { remember.send(t, http.MethodDelete, "") },
			Config:           config(last),
			ConfigPlanChecks: plans(address, plancheck.ResourceActionCreate),
			Check:            remember.check,
		})
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: servers,
		Steps:                    steps,
		CheckDestroy: func(*terraform.State) error {
			if _, err := remember.view(); !l.forever && !errors.Is(err, client.ErrNotFound) {
				return fmt.Errorf("after the destruction: got %v, want no item", err)
			}
			return nil
		},
	})
}

func plans(address string, action plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, action)}}
}

func kindOf(name string) *Kind {
	return Kinds()[slices.IndexFunc(Kinds(), func(k *Kind) bool { return k.Name == name })]
}

// remembered knows the item that Terraform made.
type remembered struct {
	kind    *Kind
	api     *client.Client
	address string
	id      string         // as an import names it
	values  map[string]any // of its path
}

// check remembers the item in the state, and looks whether the API has it.
func (r *remembered) check(s *terraform.State) error {
	attributes := s.RootModule().Resources[r.address].Primary.Attributes
	r.values = map[string]any{}
	var ids []string
	for _, p := range r.kind.path {
		r.values[p.name] = attributes[p.name]
		ids = append(ids, attributes[p.name])
	}
	r.id = strings.Join(ids, "/")
	_, err := r.view()
	return err
}

func (r *remembered) view() (map[string]any, error) {
	return r.do(r.kind.get.Method, "")
}

func (r *remembered) do(method, body string) (map[string]any, error) {
	request, err := r.kind.request(r.kind.get, r.values, nil)
	if err != nil {
		return nil, err
	}
	if request.Method = method; body != "" {
		request.Body = []byte(body)
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := r.api.Do(context.Background(), request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer any
	err = json.NewDecoder(response.Body).Decode(&answer)
	item, _ := answer.(map[string]any)
	return item, err
}

// send changes the item as somebody else.
func (r *remembered) send(t *testing.T, method, body string) {
	t.Helper()
	if _, err := r.do(method, body); err != nil {
		t.Fatal(err)
	}
}
