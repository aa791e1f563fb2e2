package testkit

import (
	"net/http"
	"strings"
	"testing"
)

// AwaitAgents waits until the site agents of servers have answered the control plane. The paths are those of the servers, such as
// /pxe/dhcp/1.
func AwaitAgents(t *testing.T, c *Client, servers ...string) {
	t.Helper()
	for _, server := range servers {
		Eventually(t, "the agent of "+server+" has answered", func() bool {
			return strings.Contains(c.Do("GET", server+"?include=health", nil).Want(http.StatusOK).Text, `"seen_at"`)
		})
	}
}
