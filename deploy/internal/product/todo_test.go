package product_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// Changes in all services complete the to-do items about them.
func TestTodo(t *testing.T) {
	both(t, func(t *testing.T, _ *product.Product, c *testkit.Client) {
		items := func() map[string]system.TodoItem {
			all := map[string]system.TodoItem{}
			for _, item := range testkit.Decode[[]system.TodoItem](c.Do("GET", "/todo", nil).Want(200)) {
				all[item.Slug] = item
			}
			return all
		}
		completed := []string{
			"hardware.server.part.add", "network.entity.add", "network.group.add",
			"pxe.dhcp.add", "pxe.file.add", "pxe.profile.add", "system.integration.add",
		} // the others: see TestEmailToClient, TestTwoFactorLogin and TestInstalls
		before := items()
		for _, slug := range completed {
			if item, exists := before[slug]; !exists || item.CompletedAt != nil {
				t.Errorf("%s: got %+v, want an open item", slug, item)
			}
		}
		group := c.Do("POST", "/group", `{"name": "Frankfurt 1"}`).Want(200).ID()
		c.Do("POST", fmt.Sprintf("/group/%d/entity/bulk", group), `{"prefix": "192.0.2.0/29"}`).Want(200)
		c.Do("POST", "/part", `{"name": "EPYC 9354", "part_type": "cpu"}`).Want(200)
		c.Do("POST", "/integration", `{"name": "Shop"}`).Want(200)
		c.Do("POST", "/pxe/dhcp", `{"name": "fra1", "http": {"host": "192.0.2.1", "port": 443, "use_https": true, "api_key": "secret"}}`).
			Want(200)
		c.Do(
			"POST", "/pxe/file",
			map[string]any{
				"name": "fra1", "install_max_concurrent": 20, "group_id": group, "host": "192.0.2.1", "port": 443, "api_key": "secret",
				"public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG",
			},
		).
			Want(200)
		script := c.Do("POST", "/pxe/boot-script", `{"name": "boot"}`).Want(200).ID()
		c.Do("POST", "/pxe/profile", map[string]any{"name": "Debian", "boot_script": script}).Want(200)
		testkit.Eventually(t, "the items are completed", func() bool {
			now := items()
			for _, slug := range completed {
				if now[slug].CompletedAt == nil {
					return false
				}
			}
			return true
		})
	})
}
