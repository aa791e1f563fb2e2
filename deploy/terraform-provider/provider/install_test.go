package provider

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/ironplane/ironplane/pkg/client"
)

const aMachine = `
resource "ironplane_group" "site" {
  name = "a site with machines"
}
resource "ironplane_dhcp_server" "site" {
  name = "site"
  http = { host = "127.0.0.1", port = 1, api_key = "a long key of an agent, 32 letters" }
}
resource "ironplane_entity" "machine" {
  group = ironplane_group.site.id
  v4    = { address = "203.0.113.130", gateway = "203.0.113.129", subnet_mask = "255.255.255.128" }
}
resource "ironplane_boot_script" "install" {
  name = "install"
  body = "#!ipxe\nexit\n"
}
resource "ironplane_profile" "install" {
  count       = 2
  name        = "install ${count.index}"
  boot_script = ironplane_boot_script.install.id
}
resource "ironplane_install" "machine" {
  profile     = ironplane_profile.install[%d].id
  dhcp_server = ironplane_dhcp_server.site.id
  host        = { entity = ironplane_entity.machine.id, macs = ["52:54:00:12:34:AB"] }
  ssh_keys    = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ %s"
  force       = ["agent_unreachable", "no_dhcp", "no_bootloader", "file_missing", "no_login"]
  triggers    = { release = "%s" }
  wait        = %t
  timeouts    = { create = "%s" }
}
`

// TestInstall changes the profile and the keys of an install, which leaves the machine alone, and the triggers, which installs it
// again. A wait that takes too long leaves the install alone, and an install that is cancelled is a failure.
func TestInstall(t *testing.T) {
	api, _ := open(t)
	const address = "ironplane_install.machine"
	id := ""
	isSame := func(want bool) resource.TestCheckFunc {
		return func(s *terraform.State) error {
			before := id
			if id = s.RootModule().Resources[address].Primary.Attributes["id"]; (id == before) != want {
				return fmt.Errorf("got install %s after %s", id, before)
			}
			return nil
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: servers,
		Steps: []resource.TestStep{
			{Config: fmt.Sprintf(aMachine, 0, "a", "1", false, "soon"), ExpectError: regexp.MustCompile("not a duration")},
			{Config: fmt.Sprintf(aMachine, 0, "a", "1", false, "1h"), Check: isSame(false)},
			{
				Config:           fmt.Sprintf(aMachine, 1, "b", "1", false, "1h"),
				ConfigPlanChecks: plans(address, plancheck.ResourceActionUpdate),
				Check:            isSame(true),
			},
			{
				Config:           fmt.Sprintf(aMachine, 1, "b", "2", true, "1s"),
				ConfigPlanChecks: plans(address, plancheck.ResourceActionReplace),
				Check: resource.ComposeTestCheckFunc(isSame(false), resource.TestCheckResourceAttr(address, "status", "waiting"),
					func(s *terraform.State) error {
						want := s.RootModule().Resources["ironplane_profile.install.1"].Primary.Attributes["id"]
						return resource.TestCheckResourceAttr(address, "profile", want)(s)
					}),
			},
			{
				PreConfig: func() {
					before := id
					go cancelNext(t, api, before)
				},
				Config:      fmt.Sprintf(aMachine, 1, "b", "3", true, "5m"),
				ExpectError: regexp.MustCompile("cancelled"),
			},
			{
				Config:           fmt.Sprintf(aMachine, 1, "b", "3", false, "5m"),
				ConfigPlanChecks: plans(address, plancheck.ResourceActionReplace),
				Check:            isSame(false),
			},
		},
	})
}

// cancelNext cancels the install that follows one.
func cancelNext(t *testing.T, api *client.Client, before string) {
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for install, err := range api.Installs.List(t.Context(), client.InstallList{Status: "waiting"}) {
			if err == nil && fmt.Sprint(install.ID) != before {
				if _, err := api.Installs.Cancel(t.Context(), install.ID); err == nil {
					return
				}
			}
		}
	}
}
