package product_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/tour"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system/mail"
)

// A client with a key of its own names its address and installs its machine again, with the commands of the page about it.
func TestClientsDay(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	b.c.Do("PATCH", path("/pxe/profile/%d", b.profile), `{"access_client": true, "name": "Debian, small"}`).Want(200)
	m := b.install(fmt.Sprintf(`, "client": %d`, b.client))
	b.agent.PostEvent(b.bootToken(m), "done", m.address, "")
	b.awaitStatus(m, "installed")
	testkit.Eventually(t, "the client gets a mail", func() bool { return b.box.Accepted() == 1 })
	testkit.Eventually(t, "the log has the install", func() bool {
		return b.c.Do("GET", "/log?type=pxe.install.installed", nil).Want(200).Text != "[]\n"
	})
	body := path(`{"name": "mine", "owner": {"url": "/client/%d"}}`, b.client)
	key := testkit.Decode[struct{ Key string }](b.c.Do("POST", "/auth/key", body).Want(200)).Key
	tour.Run(t, "../../..", b.c.URL, "KEY="+key, "docs/do/rent.md")

	second := target{id: m.id + 1, entity: m.entity, mac: m.mac, address: m.address}
	b.agent.PostEvent(b.bootToken(second), "done", m.address, "")
	b.awaitStatus(second, "installed")
	testkit.Eventually(t, "the client gets another mail", func() bool {
		return len(testkit.Decode[[]mail.EmailMessage](b.c.Do("GET", "/email/message?template=install-finished&status=sent", nil).Want(200))) == 2
	})
}
