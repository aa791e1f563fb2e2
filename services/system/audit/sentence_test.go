package audit_test

import (
	"testing"

	"github.com/ironplane/ironplane/services/system/audit"
)

func TestDescribeTargets(t *testing.T) {
	t.Parallel()
	target := func(noun, name string) audit.Target {
		return audit.Target{ID: 1, Name: name, Singular: noun, URL: "/" + noun + "/1"}
	}
	entity, sub, reseller := target("IP entity", "192.0.2.1"), target("client", "Jo Doe"), target("client", "Ben Miller")
	hidden := audit.Target{}
	for _, c := range []struct {
		eventType string
		targets   audit.Targets
		want      string
	}{
		{"client.edited", audit.Targets{sub}, "Client Jo Doe was edited."},
		{"client.suspended", audit.Targets{reseller, sub, sub}, "Client Ben Miller and 2 more were suspended."},
		{"client.suspended", audit.Targets{hidden, sub}, "Client Jo Doe was suspended."},
		{"client.unsuspended", audit.Targets{reseller}, "A suspension of client Ben Miller was lifted."},
		{"entity.given", audit.Targets{entity, sub, reseller}, "IP entity 192.0.2.1 was given by client Ben Miller to client Jo Doe."},
		{"entity.given", audit.Targets{entity, hidden, reseller}, "IP entity 192.0.2.1 was given by client Ben Miller."},
		{"entity.given", audit.Targets{entity, sub, hidden}, "IP entity 192.0.2.1 was given to client Jo Doe."},
		{"auth.session.began", audit.Targets{sub, target("API key", "session")}, "A session of client Jo Doe began."},
		{"pxe.install.failed", audit.Targets{target("install", "web1")}, "Install web1 failed."},
		{"pxe.install.began", audit.Targets{target("install", "web1"), sub}, "The installer of install web1 for client Jo Doe began."},
		{"admin.permission.edited", audit.Targets{target("admin", "anna")}, "The permissions of admin anna were edited."},
		{"license.refreshed", nil, "The license was refreshed."},
		{"group.deleted", audit.Targets{hidden}, "Group was deleted."},
		{"rack.moved", audit.Targets{target("rack", "4")}, "Rack 4 was moved."}, // by a newer service
	} {
		if got := audit.DescribeTargets(c.eventType, c.targets); got != c.want {
			t.Errorf("%s of %v: got %q, want %q", c.eventType, c.targets, got, c.want)
		}
	}
}
