package netboot

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/mailbox"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

const (
	password = "a long walk in the rain"
	// hostKey is a valid key that belongs to no host.
	hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"
)

// operator installs the machines of a site over the API.
type operator struct {
	*site
	installation *producttest.Installation
	product      *product.Product
	c            *testkit.Client
	mails        *mailbox.Server
	group        int64 // the IP group of the site
	owner        int64 // the client that owns the machines
	small        int64 // the profile that installs the image
	fileServer   int64
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{site: newSite(t), mails: mailbox.Start(t, mailbox.Options{})}
	o.installation = producttest.NewInstallation(
		t,
		testkit.Redis(t),
		service.Settings{AllowedNetworks: o.host + " " + isoHost, SMTP: "smtp+plain://" + o.mails.Addr, MailFrom: "noreply@example.com"},
	)
	o.product = o.installation.Open(t)
	o.c = producttest.FirstAdmin(t, o.product)
	o.register()
	return o
}

// create creates an item over the API and returns its id.
func (o *operator) create(path string, body map[string]any) int64 {
	o.Helper()
	return o.c.Do("POST", path, body).Want(200).ID()
}

// register creates the site, its file server, a profile, and the client that owns the machines.
func (o *operator) register() {
	o.Helper()
	dhcp := o.create("/pxe/dhcp", map[string]any{"name": o.space, "host": o.host, "port": 8443, "use_https": false, "api_key": agentKey})
	o.group = o.create("/group", map[string]any{"name": o.space, "pxe_dhcp_server": dhcp})
	o.fileServer = o.create(
		"/pxe/file",
		map[string]any{
			"name":                   o.space,
			"install_max_concurrent": 20,
			"group":                  o.group,
			"host":                   o.host,
			"port":                   8443,
			"use_https":              false,
			"api_key":                agentKey,
			"public_key":             hostKey,
		},
	)
	testkit.AwaitAgents(o.T, o.c, fmt.Sprint("/pxe/dhcp/", dhcp), fmt.Sprint("/pxe/file/", o.fileServer))
	o.owner = o.create("/client", map[string]any{"first": "Ben", "last": "Miller", "email": o.space + "@example.org"})
	template := testkit.Decode[[]struct{ ID int64 }](o.c.Do("GET", "/email/template?name=install-finished", nil).Want(200))[0].ID
	o.small = o.create(
		"/pxe/profile",
		map[string]any{
			"name":        o.space,
			"boot_script": o.create("/pxe/boot-script", map[string]any{"name": o.space, "body": bootTemplate}),
			"preseed": o.create(
				"/pxe/preseed",
				map[string]any{"name": o.space, "body": "of {{.Host.Name}}"},
			),
			"email": map[string]any{"template": template},
		},
	)
}

// address returns the address of the n-th machine, which is called web<n>.
func address(n int) string { return fmt.Sprint("10.77.0.", 9+n) }

// entity creates the IP entity of the n-th machine.
func (o *operator) entity(n int) int64 {
	o.Helper()
	return o.create("/entity", map[string]any{"group": o.group, "address": address(n), "subnet_mask": "255.255.255.0", "gateway": "10.77.0.1",
		"owner": o.owner})
}

// startProduct starts the control plane again after Close.
func (o *operator) startProduct() {
	o.Helper()
	o.product = o.installation.Open(o.T)
	o.c = testkit.NewClient(o.T, o.product.Gateway).WithKey(o.c.Key)
}

// install creates an install with a profile, and waits until the agent knows the machine.
func (o *operator) install(body map[string]any, profile int64, variables map[string]string) (path string) {
	o.Helper()
	body = maps.Clone(body)
	body["profile"], body["variables"] = profile, variables
	id := o.create("/pxe/install", body)
	o.await("the agent knows the machine", waitTimeout, func() bool {
		held, err := o.client.ListMachines(o.Context())
		return err == nil && slices.ContainsFunc(held, func(h siteagent.MachineRevision) bool { return h.ID == id })
	})
	return fmt.Sprint("/pxe/install/", id)
}

// installSmall creates an install of the image on the n-th machine. more is added to the kernel's command line.
func (o *operator) installSmall(image image, n int, mac, firmware, more string) (path string) {
	o.Helper()
	if firmware != "bios" && firmware != script.SecureBoot {
		firmware = "uefi"
	}
	return o.install(
		map[string]any{
			"client":   o.owner,
			"password": password,
			"host": map[string]any{
				"macs":     []string{mac},
				"hostname": fmt.Sprintf("web%d.example.com", n),
				"entity":   o.entity(n),
				"firmware": firmware,
			},
		},
		o.small,
		map[string]string{"sum": image.sum, "more": more},
	)
}

// awaitInstall waits until an install meets a condition, and returns it.
func (o *operator) awaitInstall(path, condition string, is func(*install.Install) bool) (i install.Install) {
	o.Helper()
	o.await(condition, waitTimeout, func() bool {
		i = testkit.Decode[install.Install](o.c.Do("GET", path, nil).Want(200))
		return is(&i)
	})
	return i
}

// wantInstalled waits until an install has ended and its machine has booted from its disk. The client must have one
// mail, and the log and the requests must be complete.
func (o *operator) wantInstalled(path string, actions ...string) {
	o.Helper()
	i := o.awaitInstall(path, "the machine is installed and has booted from its disk", func(i *install.Install) bool {
		return i.Status == install.Installed && len(i.Requests) > 0 && i.Requests[0].Kind == "local"
	})
	if i.Error != nil || i.Progress != 100 || i.FinishedAt == nil || i.StartedAt == nil {
		o.Errorf("got %+v, want it finished at 100 %% without an error", i)
	}
	producttest.AwaitLog(o.T, o.product)
	o.await("the client has a mail", waitTimeout, func() bool { return o.mails.Accepted() > 0 })
	if mails := o.mails.Mails(); len(mails) != 1 || mails[0].To[0] != o.space+"@example.org" ||
		!bytes.Contains(mails[0].Data, []byte("Subject: web1.example.com: installed")) {
		o.Errorf("got mails %v, want one to the client that says installed", mails)
	}
	log := testkit.Decode[[]struct {
		Type string `json:"type"`
	}](o.c.Do("GET", "/log?sort=id&target_type=pxe/install&target_id="+path[strings.LastIndex(path, "/")+1:], nil).Want(200))
	var logged []string
	for _, l := range log {
		logged = append(logged, l.Type)
	}
	if !slices.Equal(logged, actions) {
		o.Errorf("got the log %v, want %v", logged, actions)
	}
	var got, want []string
	for _, r := range i.Requests {
		got = append(got, r.Kind)
	}
	for _, r := range o.reports() {
		want = append(want, r.Event)
	}
	id, _ := strconv.ParseInt(path[strings.LastIndex(path, "/")+1:], 10, 64)
	o.wantEvents(
		id,
		siteagent.EventLeased,
		siteagent.EventBooted,
		siteagent.EventRead,
		siteagent.EventProgress,
		siteagent.EventDone,
		siteagent.EventLeased,
		siteagent.EventLocal,
	)
	if slices.Reverse(want); !slices.Equal(got, want) {
		o.Errorf("got the requests %v, want %v", got, want)
	}
}

// disturbance is what goes wrong during an install: while the installer waits, and when it restarts the machine.
type disturbance struct {
	name               string
	short              []string // the firmware for which the short run includes it
	installs, restarts func(*operator, *vm)
}

var disturbances = []disturbance{
	{name: "undisturbed", short: []string{"bios", "uefi", "http"}},
	{name: "control plane stopped", installs: func(o *operator, _ *vm) { o.product.Close() }, restarts: func(o *operator, m *vm) {
		m.shows("SYSTEM: it runs from its disk", 1)
		o.startProduct()
	}},
	{name: "agent killed", installs: func(o *operator, _ *vm) { o.killAgent() }, restarts: func(o *operator, _ *vm) { o.killAgent() }},
	{name: "machine reset", installs: func(_ *operator, m *vm) { m.resetToInstaller() }},
	{name: "all of these", short: []string{"bios"}, installs: func(o *operator, m *vm) {
		o.product.Close()
		m.resetToInstaller()
		o.killAgent()
	}, restarts: func(o *operator, m *vm) {
		m.shows("SYSTEM: it runs from its disk", 1)
		o.startProduct()
	}},
}

// releaseInstallers lets waiting installers go on.
func (o *operator) releaseInstallers() {
	o.Helper()
	if err := os.WriteFile(filepath.Join(o.folder, "files/local/image/go"), nil, 0o644); err != nil {
		o.Fatal(err)
	}
}

// resetToInstaller resets a machine whose installer waits, and waits until the installer waits again.
func (m *vm) resetToInstaller() {
	m.Helper()
	m.reset()
	m.shows("INSTALLER: it waits", 2)
}

// TestInstalls installs machines with empty disks, which then boot from their disks. The client gets a mail, and
// the log has each step. If the control plane, the machine or the agent stops meanwhile, all reports arrive later,
// once and in order.
func TestInstalls(t *testing.T) {
	t.Parallel()
	requireTools(t)
	image := newImage(t)
	for f, firmware := range []string{"bios", "uefi", "http"} {
		for n, d := range disturbances {
			t.Run(firmware+" "+d.name, func(t *testing.T) {
				t.Parallel()
				if !slices.Contains(d.short, firmware) {
					requireFull(t)
				}
				o := newOperator(t)
				image.addFiles(t, o.folder)
				mac := fmt.Sprintf("52:54:00:77:%02x:%02x", 1+f, n)
				path := o.installSmall(image, 1, mac, firmware, "ironplane.hold="+url+"/local/image/go")
				m := o.switchOn(mac, firmware)
				m.shows("INSTALLER: it waits", 1)
				o.awaitInstall(path, "the machine boots", func(i *install.Install) bool { return i.Status == install.Booting })
				if d.installs != nil {
					d.installs(o, m)
				}
				o.releaseInstallers()
				m.shows("INSTALLER: it restarts", 1)
				if d.restarts != nil {
					d.restarts(o, m)
				}
				m.shows("INSTALLER: preseed: of web1", 1)
				m.shows("SYSTEM: of web1", 1)
				o.wantInstalled(path, "pxe.install.created", "pxe.install.booted", "pxe.install.began", "pxe.install.installed")
			})
		}
	}
}

// TestDiscovery boots an unknown machine, which reports its hardware. It is installed once it is known and starts
// again.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	requireTools(t)
	requireFull(t)
	image := newImage(t)
	for n, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			image.addFiles(t, o.folder)
			mac := fmt.Sprintf("52:54:00:77:09:%02x", n)
			m := o.newMachine(mac, firmware, 512)
			m.arguments = append(m.arguments, "-uuid", "00112233-4455-6677-8899-aabbccddeeff", "-smbios", "type=1,serial=S1")
			m.on()
			var found []pxe.Discovery
			o.await("the machine is discovered", waitTimeout, func() bool {
				found = testkit.Decode[[]pxe.Discovery](o.c.Do("GET", "/pxe/discovery?mac="+mac, nil).Want(200))
				return len(found) == 1 && found[0].Facts["mac0"] != ""
			})
			if f := found[0].Facts; f["uuid"] != "00112233-4455-6677-8899-aabbccddeeff" || f["serial"] != "S1" || f["manufacturer"] != "QEMU" ||
				f["mac0"] != mac {
				t.Errorf("got %v, want the UUID, serial S1, manufacturer QEMU and MAC address %s", f, mac)
			}
			path := o.installSmall(image, 1, mac, firmware, "")
			m.reset()
			m.shows("SYSTEM: of web1", 1)
			o.awaitInstall(path, "the machine is installed", func(i *install.Install) bool { return i.Status == install.Installed })
			if left := o.c.Do("GET", "/pxe/discovery", nil).Want(200).Text; left != "[]\n" {
				t.Errorf("got %s, want no discoveries", left)
			}
		})
	}
}

// TestDemonstration installs a machine with the product of make run, and shows the machine's console. make machine
// runs it.
func TestDemonstration(t *testing.T) {
	key := os.Getenv("KEY")
	if key == "" {
		t.Skip("the demonstration needs a running product: run make machine KEY=ip_… with the key that make run prints")
	}
	requireTools(t)
	o := &operator{site: newSite(t), c: testkit.ClientAt(t, "http://127.0.0.1:8080").WithKey(key)}
	o.register()
	image := newImage(t)
	image.addFiles(t, o.folder)
	mac := fmt.Sprintf("52:54:00:77:%02x:%02x", rand.IntN(256), rand.IntN(256))
	path := o.installSmall(image, 1, mac, "bios", "")
	fmt.Printf("\nA machine with an empty disk starts now. GET %s shows its install.\n\n", path)
	m := o.switchOn(mac, "bios")
	m.console.show(os.Stdout)
	m.shows("SYSTEM: it runs from its disk", 1)
	o.awaitInstall(path, "the machine is installed", func(i *install.Install) bool { return i.Status == install.Installed })
	fmt.Printf("\n%s\n", o.c.Do("GET", path, nil).Want(200).Text)
}
