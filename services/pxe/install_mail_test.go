package pxe_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

// seeded returns a profile that comes with Ironplane.
func (b *bootSite) seeded(name string) templates.OSReloadProfile {
	b.Helper()
	found := testkit.Decode[[]templates.OSReloadProfile](b.Do("GET", "/pxe/profile?name="+name, nil).Want(200))
	return testkit.Decode[templates.OSReloadProfile](b.Do("GET", path("/pxe/profile/%d", found[0].ID), nil).Want(200))
}

// The seeded profiles that install a system get the email templates about installs once the system service has them. A profile that
// was edited before keeps what it has.
func TestSeededMails(t *testing.T) {
	t.Parallel()
	b := newBootWith(t, service.Tuning{PollInterval: time.Second}) // the profiles are looked at again
	b.Do("PATCH", path("/pxe/profile/%d", b.seeded("Debian%2013").ID), `{"access_client": true}`).Want(200)
	b.System.SetInstallTemplates(21, 22)
	for _, name := range []string{
		"AlmaLinux%209", "Debian%2012", "Disk%20image", "Rocky%20Linux%209", "Ubuntu%2024.04", "Windows%20Server%202022",
	} {
		testkit.Eventually(t, name+" has its email templates", func() bool {
			email := b.seeded(name).Email
			return email.Template != nil && email.Template.Name == "install-finished" &&
				email.Failed != nil && email.Failed.Name == "install-failed"
		})
	}
	for _, name := range []string{"Debian%2013", "Rescue%20system"} {
		if email := b.seeded(name).Email; email.Template != nil || email.Failed != nil {
			t.Errorf("got the email templates %+v of %s, want none", email, name)
		}
	}
}

// A failed install is mailed by the profile's template for failures, with the reason. Without one it is mailed by the other template.
func TestMailAboutFailure(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.System.SetEmailTemplate(2, "install-failed")
	fail := func() {
		m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
		b.agent.PostEvent(b.bootToken(m), "failed", m.address, "error=no+disk")
		b.awaitStatus(m, "failed")
	}
	fail()
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"email": {"template": 1, "failed": 2}}`).Want(200)
	fail()
	b.System.DeleteEmailTemplate(2)
	testkit.Eventually(t, "the profile has lost the deleted template", func() bool { return b.seeded("mine").Email.Failed == nil })
	fail()
	testkit.Eventually(t, "the client is notified three times", func() bool { return len(b.Clients.Received()) == 3 })
	for n, want := range []string{"install-finished", "install-failed", "install-finished"} {
		var message mail.ClientInstalled
		testkit.Must(t, json.Unmarshal(b.Clients.Received()[n].Content, &message))
		if message.Template != want || message.Content.Status != "failed" || message.Content.Error != "no disk" {
			t.Errorf("got the message %+v, want the template %s and the error no disk", message, want)
		}
	}
	b.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"email": {"failed": 99}}`).WantErrors("/email/failed", "not_found")
}
