package netboot

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// isoHost is the address of a server of ISOs, from which the product may import.
const isoHost = "127.0.0.2"

// isoWriter creates ISOs.
var isoWriter = tool{"xorriso", "xorriso"}

// casperInit is the init program of an initrd that reads the kernel's command line as Ubuntu's casper does. It configures the
// network by ip= and BOOTIF=, downloads the ISO of url=, mounts it, and runs the system in it.
const casperInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
exec > /dev/ttyS0 2>&1
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net cdrom isofs loop; do
  insmod /modules/$m.ko 2>/dev/null
done
stop() { echo "CASPER: failed: $*"; poweroff -f; }
for word in $(cat /proc/cmdline); do
  case $word in
  url=*) url=${word#url=} ;;
  ip=*) ip=${word#ip=} ;;
  BOOTIF=*) mac=$(echo "${word#BOOTIF=01-}" | tr - :) ;;
  esac
done
until grep -q . /sys/class/net/eth*/address; do sleep 1; done
for at in /sys/class/net/eth*; do [ "$(cat $at/address)" != "$mac" ] || device=${at##*/}; done
[ -n "$device" ] || stop "no interface with the MAC address $mac"
IFS=: read -r client server gateway mask name interface method nameserver <<END
$ip
END
[ "$method" = none ] || stop "no static address in $ip"
ip link set "$device" up
ip addr add "$client/$mask" dev "$device"
ip route add default via "$gateway"
echo "CASPER: $client of $name on $device"
case $url in *.iso) ;; *) stop "$url is not an ISO" ;; esac
tries=0
until wget -q -O /cd.iso "$url"; do [ $((tries += 1)) -lt 60 ] || stop "$url cannot be downloaded"; sleep 1; done
mkdir /cdrom
mount -t iso9660 -o loop,ro /cd.iso /cdrom || stop "the ISO cannot be mounted"
. /cdrom/casper/system
`

// casperSystem is the system in the ISO. It reads user-data as cloud-init does by ds=nocloud, and runs the first of its early
// commands.
const casperSystem = `
for word in $(cat /proc/cmdline); do
  case $word in ds=nocloud*) seed=${word##*;s=} ;; esac
done
wget -q -O /meta-data "${seed}meta-data" || stop "no meta-data below $seed"
wget -q -O /user-data "${seed}user-data" || stop "no user-data below $seed"
grep -q -w autoinstall /proc/cmdline || stop "autoinstall is missing"
echo "CASPER: user-data: $(head -n 2 /user-data | tr '\n' ' ')"
wget -q -O /dev/null --post-data 'step=partitions&progress=10' "$(sed -n 's/.*"step=partitions&progress=10", "\(.*\)"\].*/\1/p' /user-data)"
echo "CASPER: it reported"
poweroff -f
`

// newCasperISO creates an ISO that boots as Ubuntu's does, with a kernel of Debian, and returns its path.
func newCasperISO(t *testing.T) string {
	t.Helper()
	image := newImage(t)
	folder := t.TempDir()
	for name, content := range map[string]string{"init": casperInit, "system": casperSystem} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, folder, `
mkdir -p root iso/casper
(cd root && gzip -dc "$INITRD" | cpio --quiet -i)
cp init root
for m in cdrom isofs loop; do find "$KERNEL/lib/modules" -name $m.ko -exec cp {} root/modules ';'; done
(cd root && find . | cpio --quiet -o -H newc | gzip) > iso/casper/initrd
cp "$VMLINUZ" iso/casper/vmlinuz
cp system iso/casper
xorriso -as mkisofs -quiet -R -o ubuntu.iso iso
`, "INITRD="+image.initrd, "VMLINUZ="+image.kernel, "KERNEL="+debianKernel(t))
	return filepath.Join(folder, "ubuntu.iso")
}

// importISO imports an ISO into a folder of the file servers.
func (o *operator) importISO(folder, file string) (id int64) {
	o.Helper()
	listener, err := net.Listen("tcp", isoHost+":0")
	if err != nil {
		o.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.FileServer(http.Dir(filepath.Dir(file))))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	o.Cleanup(server.Close)
	id = o.create("/pxe/iso", map[string]any{"name": folder, "folder": folder, "url": server.URL + "/" + filepath.Base(file)})
	o.await("the ISO is imported", waitTimeout, func() bool {
		is := testkit.Decode[struct{ Status, Error string }](o.c.Do("GET", fmt.Sprint("/pxe/iso/", id), nil).Want(200))
		if is.Status == "failed" {
			o.Fatalf("got the error %s, want the ISO imported", is.Error)
		}
		return is.Status == "ready"
	})
	return id
}

// sync fills the file server from the store.
func (o *operator) sync() {
	o.Helper()
	at := fmt.Sprintf("/pxe/file/%d/child/sync", o.fileServer)
	o.c.Do("POST", at, map[string]any{"isWrapped": true}).Want(200)
	o.await("the file server is filled", waitTimeout, func() bool {
		is := testkit.Decode[struct{ Status, Error string }](o.c.Do("GET", at, nil).Want(200))
		if is.Status == "failed" {
			o.Fatalf("got the error %s, want the file server filled", is.Error)
		}
		return is.Status == "done"
	})
}

// ubuntuBody returns the body of an install of Ubuntu on the machine web1.
func (o *operator) ubuntuBody(mac, firmware string, key *key) map[string]any {
	o.Helper()
	return map[string]any{
		"ssh_keys": key.public,
		"password": password,
		"host": map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": o.entity(1),
			"disk": "/dev/vda", "firmware": firmware, "nameservers": outside},
	}
}

// TestUbuntuFromISO imports an ISO, syncs it, and installs a machine with the profile for Ubuntu. The machine boots the
// imported files, downloads the ISO from the file server, and reads its user-data. Before the sync the install is refused.
func TestUbuntuFromISO(t *testing.T) {
	t.Parallel()
	requireTools(t, isoWriter, sshClient)
	iso := newCasperISO(t)
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:70", "uefi": "52:54:00:77:00:71"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			if firmware != "bios" {
				requireFull(t)
			}
			o := newOperator(t)
			o.importISO("ubuntu-24.04", iso)
			body := o.ubuntuBody(mac, firmware, o.newKey())
			body["profile"] = o.profile("Ubuntu 24.04")
			refused := o.c.Do("POST", "/pxe/install", body).Want(422).Text
			for _, file := range []string{"ubuntu-24.04/casper/vmlinuz", "ubuntu-24.04/casper/initrd", "ubuntu-24.04.iso"} {
				if want := fmt.Sprintf("needs %s, which file server %d", file, o.fileServer); !strings.Contains(refused, want) {
					t.Errorf("got %s, want a reason that begins with %q", refused, want)
				}
			}
			o.sync()
			path := o.install(body, o.profile("Ubuntu 24.04"), nil)
			m := o.switchOn(mac, firmware)
			m.shows("CASPER: 10.77.0.10 of web1 on eth0", 1)
			m.shows("CASPER: user-data: #cloud-config # Ubuntu 24.04: Ubuntu 24.04 on web1.example.com", 1)
			i := o.awaitInstall(path, "the installer reports", func(i *install.Install) bool { return i.Status == install.Installing })
			if i.Step == nil || *i.Step != "partitions" || i.Progress != 10 {
				t.Errorf("got %+v, want the step partitions at 10 %%", i)
			}
			if !slices.ContainsFunc(i.Requests, func(r install.InstallRequest) bool {
				return r.Kind == siteagent.EventRead && r.Address == address(1) && strings.HasPrefix(r.Response, "user-data")
			}) {
				t.Errorf("got the requests %+v, want one for user-data", i.Requests)
			}
		})
	}
}

// TestUbuntu installs Ubuntu from the ISO of its live server that ISO names, and signs in by SSH.
func TestUbuntu(t *testing.T) {
	t.Parallel()
	requireTools(t, sshClient)
	requireFull(t)
	iso := os.Getenv("ISO")
	if iso == "" {
		t.Skip("no ISO of Ubuntu's live server: run make netboot FULL=1 ISO=/path/ubuntu-24.04-live-server-amd64.iso")
	}
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:72", "uefi": "52:54:00:77:00:73"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.importISO("ubuntu-24.04", iso)
			o.sync()
			key := o.newKey()
			path := o.install(o.ubuntuBody(mac, firmware, key), o.profile("Ubuntu 24.04"), nil)
			m := o.newMachine(mac, firmware, 8192)
			m.enlargeDisk("16G")
			m.on()
			o.await("the machine is installed", 12*waitTimeout, func() bool {
				i := testkit.Decode[install.Install](o.c.Do("GET", path, nil).Want(200))
				if i.Status == install.Failed {
					t.Fatalf("got a failed install, want it to go on: %s\n%s", *i.Error, m.console)
				}
				return i.Status == install.Installed
			})
			if got := key.run("hostname -f; . /etc/os-release; echo $VERSION_ID"); got != "web1.example.com\n24.04\n" {
				t.Errorf("got %s, want Ubuntu 24.04 of web1.example.com", got)
			}
		})
	}
}

// enlargeDisk gives a machine that is switched off a larger empty disk.
func (m *vm) enlargeDisk(size string) {
	m.Helper()
	shell(m, filepath.Dir(m.monitor), "truncate -s "+size+" disk")
}
