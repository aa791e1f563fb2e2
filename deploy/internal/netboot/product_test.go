package netboot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/testkit"
	"github.com/ironplane/ironplane/testkit/mailbox"
)

// hostKey is of no host.
const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"

// operator is who has machines installed over the API.
type operator struct {
	*site
	installation *producttest.Installation
	product      *product.Product
	c            *testkit.Client
	mails        *mailbox.Server
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{site: newSite(t), mails: mailbox.Start(t, mailbox.Options{})}
	o.installation = producttest.NewInstallation(t, testkit.Redis(t), service.Settings{AllowedNetworks: o.host, SMTP: "smtp+plain://" + o.mails.Addr, MailFrom: "noreply@example.com"})
	o.product = o.installation.Open(t)
	o.c = producttest.FirstAdmin(t, o.product)
	return o
}

// startProduct starts the control plane again, all of which Close has stopped.
func (o *operator) startProduct() {
	o.Helper()
	o.product = o.installation.Open(o.T)
	o.c = testkit.NewClient(o.T, o.product.Gateway).With(o.c.Key)
}

// install asks for the installation of a machine, with all that this needs.
func (o *operator) install(made image, mac, firmware, more string) (path string) {
	o.Helper()
	create := func(path string, body map[string]any) int64 { return o.c.Do("POST", path, body).Want(200).ID() }
	dhcp := create("/pxe/dhcp", map[string]any{"name": o.space, "host": o.host, "port": 8443, "use_https": false, "api_key": agentKey})
	group := create("/group", map[string]any{"name": o.space, "pxe_dhcp_server": dhcp})
	create("/pxe/file", map[string]any{"name": o.space, "install_max_concurrent": 20, "group": group, "host": o.host, "port": 8443, "use_https": false, "api_key": agentKey, "public_key": hostKey})
	entity := create("/entity", map[string]any{"group": group, "address": "10.77.0.10", "subnet_mask": "255.255.255.0", "gateway": "10.77.0.1"})
	client := create("/client", map[string]any{"first": "Ben", "last": "Miller", "email": o.space + "@example.org"})
	template := testkit.Decode[[]struct{ ID int64 }](o.c.Do("GET", "/email/template?name=install-finished", nil).Want(200))[0].ID
	profile := create("/pxe/profile", map[string]any{"name": o.space, "boot_script": create("/pxe/boot-script", map[string]any{"name": o.space, "body": bootTemplate}),
		"preseed": create("/pxe/preseed", map[string]any{"name": o.space, "body": "of {{.Host.Name}}"}), "email": map[string]any{"template": template}})
	path = fmt.Sprint("/pxe/install/", create("/pxe/install", map[string]any{"profile": profile, "client": client, "password": "a long walk in the rain",
		"host":      map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": entity, "firmware": firmware},
		"variables": map[string]any{"sum": made.sum, "more": more}}))
	o.await("the agent is told of it", patience, func() bool {
		held, err := o.client.Machines(o.Context())
		return err == nil && len(held) == 1
	})
	return path
}

// until waits for an install to be as it should.
func (o *operator) until(path, what string, is func(*install.Install) bool) (i install.Install) {
	o.Helper()
	o.await(what, patience, func() bool {
		i = testkit.Decode[install.Install](o.c.Do("GET", path, nil).Want(200))
		return is(&i)
	})
	return i
}

// wantInstalled looks whether an install has come to its end, and everybody was told of it once.
func (o *operator) wantInstalled(path string, actions ...string) {
	o.Helper()
	i := o.until(path, "it is installed, and was booted from its disk", func(i *install.Install) bool {
		return i.Status == install.Installed && len(i.Requests) > 0 && i.Requests[0].What == "local"
	})
	if i.Error != nil || i.Progress != 100 || i.FinishedAt == nil || i.StartedAt == nil {
		o.Errorf("it is %+v", i)
	}
	producttest.Drain(o.T, o.product)
	o.await("its client is told", patience, func() bool { return o.mails.Taken() > 0 })
	if mails := o.mails.Mails(); len(mails) != 1 || mails[0].To[0] != o.space+"@example.org" || !bytes.Contains(mails[0].Data, []byte("Subject: web1.example.com: installed")) {
		o.Errorf("its client is told %v", mails)
	}
	log := testkit.Decode[[]struct {
		Type string `json:"type"`
	}](o.c.Do("GET", "/log?sort=id&target_type=pxe/install&target_id="+path[strings.LastIndex(path, "/")+1:], nil).Want(200))
	var logged []string
	for _, l := range log {
		logged = append(logged, l.Type)
	}
	if !slices.Equal(logged, actions) {
		o.Errorf("logged is %v, want %v", logged, actions)
	}
	var asked, want []string
	for _, r := range i.Requests {
		asked = append(asked, r.What)
	}
	for _, r := range o.reports() {
		want = append(want, r.What)
	}
	if slices.Reverse(want); !slices.Equal(asked, want) {
		o.Errorf("of the machine is shown %v, and the agent has noted %v", asked, want)
	}
}

// A machine that is named over the API is switched on with an empty disk, is installed, and comes back from its disk; its client is told,
// and the log has it. Where the control plane is stopped, the machine is reset and the agent is killed meanwhile, all of it is heard of later,
// once and in order.
func TestInstalls(t *testing.T) {
	t.Parallel()
	needs(t)
	made := newImage(t)
	for n, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			made.bring(t, o.folder)
			mac := fmt.Sprintf("52:54:00:77:00:%02x", 48+n)
			path := o.install(made, mac, firmware, "")
			m := o.switchOn(mac, firmware)
			m.shows("INSTALLER: preseed: of web1", 1)
			m.shows("SYSTEM: it runs from its disk", 1)
			o.wantInstalled(path, "pxe.install.created", "pxe.install.booted", "pxe.install.began", "pxe.install.installed")
		})
		t.Run(firmware+" disturbed", func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			made.bring(t, o.folder)
			mac := fmt.Sprintf("52:54:00:77:00:%02x", 64+n)
			path := o.install(made, mac, firmware, "ironplane.slow=60")
			m := o.switchOn(mac, firmware)
			m.shows("INSTALLER: it waits", 1)
			o.until(path, "it boots", func(i *install.Install) bool { return i.Status == install.Booting })
			o.product.Close()
			m.reset()
			m.shows("INSTALLER: it waits", 2)
			o.killAgent()
			m.shows("SYSTEM: it runs from its disk", 1)
			o.startProduct()
			o.wantInstalled(path, "pxe.install.created", "pxe.install.booted", "pxe.install.began", "pxe.install.installed")
		})
	}
}

// A machine is installed by what make run has started, and its console is shown: make machine.
func TestDemonstration(t *testing.T) {
	key := os.Getenv("KEY")
	if key == "" {
		t.Skip("make machine KEY=ip_… shows it, with the key that make run has printed")
	}
	needs(t)
	o := &operator{site: newSite(t), c: testkit.ClientOf(t, "http://127.0.0.1:8080").With(key)}
	made := newImage(t)
	made.bring(t, o.folder)
	mac := fmt.Sprintf("52:54:00:77:%02x:%02x", rand.IntN(256), rand.IntN(256))
	path := o.install(made, mac, "bios", "")
	fmt.Printf("\nGET %s is of a machine with an empty disk, which is switched on now.\n\n", path)
	m := o.switchOn(mac, "bios")
	m.console.show(os.Stdout)
	m.shows("SYSTEM: it runs from its disk", 1)
	o.until(path, "it is installed", func(i *install.Install) bool { return i.Status == install.Installed })
	fmt.Printf("\n%s\n", o.c.Do("GET", path, nil).Want(200).Text)
}
