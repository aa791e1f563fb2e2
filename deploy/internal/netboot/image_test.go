package netboot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	document = "../../../docs/do/netboot.md"
	keyring  = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// tool is a program or a file, and the Debian package that has it.
type tool struct{ name, debianPackage string }

var (
	// machineTools are needed for every machine and its image.
	machineTools = []tool{
		{
			"qemu-system-x86_64",
			"qemu-system-x86",
		},
		{"ip", "iproute2"},
		{"grub-mkstandalone", "grub-common"},
		{"mkfs.vfat", "dosfstools"},
		{"mcopy", "mtools"},
		{"cpio", "cpio"},
		{"busybox", "busybox-static"},
		{"/usr/lib/ipxe/ipxe.efi", "ipxe"},
		{"/usr/lib/ipxe/qemu/pxe-virtio.rom", "ipxe-qemu"},
		{
			ovmf + "CODE_4M.fd",
			"ovmf",
		},
		{"/usr/lib/grub/i386-pc/boot.img", "grub-pc-bin"},
		{"/usr/lib/grub/x86_64-efi/normal.mod", "grub-efi-amd64-bin"},
	}
	// memoryTools are needed to build the system in memory and to sign in to it.
	memoryTools = []tool{{"mmdebstrap", "mmdebstrap"}, {"zstd", "zstd"}, {"xorriso", "xorriso"}, {"qemu-img", "qemu-utils"}, sshClient}

	// secureTools are needed for firmware with Secure Boot.
	secureTools = []tool{
		{ovmf + "CODE_4M.ms.fd", "ovmf"},
		{"/usr/lib/shim/shimx64.efi.signed", "shim-signed"},
		{"/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed", "grub-efi-amd64-signed"},
	}

	routerIPv6 = tool{"radvd", "radvd"}
	relayAgent = tool{"dhcrelay", "isc-dhcp-relay"}
	dhcpServer = tool{"dnsmasq", "dnsmasq-base"} // also the name server

	// debianKeys verify packages of Debian, and sshClient signs in to installed machines.
	debianKeys = tool{keyring, "debian-archive-keyring"}
	sshClient  = tool{"ssh", "openssh-client"}
)

// TestSetup tests that make netboot-setup installs the tools of these tests. Without a tool, tests are skipped.
func TestSetup(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, installed, _ := strings.Cut(string(makefile), "\nNETBOOT_PACKAGES := ")
	installed, _, _ = strings.Cut(installed, "\n")
	others := []tool{routerIPv6, relayAgent, dhcpServer, debianKeys, sshClient, isoWriter}
	for _, one := range slices.Concat(machineTools, memoryTools, secureTools, others) {
		if !slices.Contains(strings.Fields(installed), one.debianPackage) {
			t.Errorf("got the packages %s, want %s among them", installed, one.debianPackage)
		}
	}
}

// probeNetwork returns an error if this process cannot create the network of a machine.
var probeNetwork = sync.OnceValue(func() error {
	output, err := exec.Command("sh", "-ec", `
space=ironplane-probe$$
ip netns add $space
trap "ip netns del $space" EXIT
ip -n $space link add br0 type bridge
ip -n $space tuntap add tap0 mode tap
`).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	return nil
})

// requireTools skips a test if root, a tool or a network is missing.
func requireTools(t *testing.T, more ...tool) {
	t.Helper()
	if !*machines {
		t.Skip("machines need minutes to boot: run make netboot")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can create the network of a machine")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("/dev/net/tun is missing, which machines need for their network: load the module tun")
	}
	var missing []string
	for _, one := range slices.Concat(machineTools, more) {
		_, err := os.Stat(one.name)
		if !filepath.IsAbs(one.name) {
			_, err = exec.LookPath(one.name)
		}
		if err != nil {
			missing = append(missing, one.debianPackage)
		}
	}
	if len(missing) > 0 {
		t.Skipf("packages are missing; make netboot-setup installs them: %s", strings.Join(missing, " "))
	}
	if err := probeNetwork(); err != nil {
		t.Skipf("this machine does not allow networks of its own, for example in a container without CAP_NET_ADMIN: %v", err)
	}
}

// requireFull skips a test that is not part of the short run.
func requireFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("machines that boot take long, and this one is left out of the short run: run make netboot FULL=1")
	}
}

// shell runs a script in a folder and returns its output.
func shell(t testing.TB, folder, script string, environment ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), environment...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, output)
	}
	return string(output)
}

// image is a kernel with a system in memory, and a disk that boots the same system.
type image struct {
	kernel, initrd, disk string // paths
	sum                  string // the SHA-256 of the disk
}

const (
	sector     = 512
	firstOfFAT = 2048
	diskSize   = 20 << 20
)

// initScript is the init program of the image. With ironplane.boot on the kernel's command line it installs: it
// writes the image to the disk, and the preseed to the disk's last sector. Without it, it prints that it runs from
// the disk, and the preseed.
const initScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net virtio_blk; do insmod /modules/$m.ko 2>/dev/null; done
for word in $(cat /proc/cmdline); do case $word in ironplane.*) eval "${word#ironplane.}";; esac; done
base=${boot%/boot}
if [ -z "$base" ]; then
  echo "SYSTEM: it runs from its disk"
  echo "SYSTEM: $(tail -c 512 /dev/vda | tr -d '\0')"
  poweroff -f
fi
echo "INSTALLER: it begins"
until ip link set eth0 up; do sleep 1; done
until udhcpc -n -q -t 20 -T 3 -i eth0 -s /udhcpc; do echo "INSTALLER: no address"; done
[ -z "$hold" ] || { echo "INSTALLER: it waits"; until wget -q -O /dev/null "$hold"; do sleep 1; done; }
until wget -q -O /preseed "$base/preseed"; do sleep 1; done
echo "INSTALLER: preseed: $(cat /preseed)"
until wget -q -O - --post-data 'step=disk&progress=10' "$base/progress"; do sleep 1; done
got=$(wget -O - "$image" | tee /dev/vda | sha256sum | cut -d ' ' -f 1)
dd if=/preseed of=/dev/vda bs=512 seek=$(($(cat /sys/block/vda/size)-1)) 2>/dev/null
sync
if [ "$got" = "$sum" ]; then
  until wget -q -O - --post-data '' "$base/done"; do sleep 1; done
else
  wget -q -O - --post-data "error=the image has the SHA-256 $got" "$base/failed"
fi
echo "INSTALLER: it restarts"
reboot -f
`

const udhcpcScript = `#!/bin/busybox sh
[ "$1" = bound ] && ip addr add "$ip/$mask" dev "$interface"
[ "$1" = bound ] && [ -n "$router" ] && ip route add default via "$router" dev "$interface"
exit 0
`

var (
	sharedMu    sync.Mutex
	sharedImage image
)

// debianKernel returns a kernel for virtual machines.
var debianKernel = fromDebian(`$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" { print $2; exit }')`, "")

// debianInstaller returns a function that unpacks a release's installer, which boots from the network, and returns the folder.
func debianInstaller(number, suite string) func(testing.TB) string {
	return fromDebian("debian-installer-"+number+"-netboot-amd64", `
mkdir lists
echo "deb [signed-by=`+keyring+`] `+mirror+` `+suite+` main" > sources
cat > own.conf <<END
Dir::Etc::SourceList "$PWD/sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$PWD/lists";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
export APT_CONFIG=$PWD/own.conf
apt-get update -q -o Acquire::Retries=3 -o Acquire::http::Timeout=60
`)
}

// fromDebian returns a function that unpacks a Debian package and returns the folder. name is a word of shell.
// apt-get downloads the package, after the script before has run. The function skips the test if the download
// fails.
func fromDebian(name, before string) func(testing.TB) string {
	unpacked := sync.OnceValues(func() (folder string, err error) {
		if folder, err = os.MkdirTemp(shared, "debian-"); err != nil {
			return "", err
		}
		download := exec.Command(
			"sh",
			"-euc",
			before+"apt-get download -q -o Acquire::Retries=3 -o Acquire::http::Timeout=60 "+name+" && dpkg -x ./*.deb . && rm ./*.deb",
		)
		download.Dir = folder
		if output, err := download.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
		}
		return folder, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		folder, err := unpacked()
		if err != nil {
			t.Skipf("a package cannot be downloaded from Debian's mirror: %v", err)
		}
		return folder
	}
}

// newImage builds the image once for all tests, with a kernel of Debian and without loop devices.
func newImage(t testing.TB) image {
	t.Helper()
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedImage.sum != "" {
		return sharedImage
	}
	kernel := debianKernel(t)
	folder := filepath.Join(shared, "image")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"init": initScript, "udhcpc": udhcpcScript} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, folder, `
cp "$KERNEL"/boot/vmlinuz-* vmlinuz
mkdir -p root/bin root/modules root/proc root/sys root/dev
cp init udhcpc root; cp "$(command -v busybox)" root/bin/busybox
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover net_failover virtio_net virtio_blk; do
	find "$KERNEL/lib/modules" -name $m.ko -exec cp {} root/modules ';'
done
(cd root && find . | cpio --quiet -o -H newc | gzip) > initrd
cat > load.cfg <<'END'
search --no-floppy --file --set=root /system.cfg
configfile /system.cfg
END
cat > system.cfg <<'END'
linux /vmlinuz console=ttyS0 quiet no_timer_check
initrd /initrd
boot
END
modules="normal linux search search_fs_file configfile part_msdos fat"
grub-mkimage -O i386-pc -o core.img -p / -c load.cfg biosdisk $modules
grub-mkimage -O x86_64-efi -o BOOTX64.EFI -p / -c load.cfg $modules
truncate -s 19M fat
mkfs.vfat -F 16 -n SYSTEM fat >/dev/null
mmd -i fat ::/EFI ::/EFI/BOOT
mcopy -i fat BOOTX64.EFI ::/EFI/BOOT/BOOTX64.EFI
mcopy -i fat vmlinuz initrd system.cfg ::/
`, "KERNEL="+kernel)
	read := func(name string) []byte {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	disk := make([]byte, diskSize)
	copy(disk, read("/usr/lib/grub/i386-pc/boot.img")[:440])
	core := read(filepath.Join(folder, "core.img"))
	if len(core) > (firstOfFAT-1)*sector {
		t.Fatalf("got %d bytes of GRUB, want %d at most", len(core), (firstOfFAT-1)*sector)
	}
	copy(disk[sector:], core)
	fat := read(filepath.Join(folder, "fat"))
	const partition = 446
	disk[partition], disk[partition+4] = 0x80, 0xef // an active partition of type EFI
	binary.LittleEndian.PutUint32(disk[partition+8:], firstOfFAT)
	binary.LittleEndian.PutUint32(disk[partition+12:], uint32(len(fat)/sector))
	copy(disk[510:], []byte{0x55, 0xaa})
	if copied := copy(disk[firstOfFAT*sector:], fat); copied < len(fat) {
		t.Fatalf("got %d bytes copied to the disk, want %d", copied, len(fat))
	}
	created := image{
		kernel: filepath.Join(folder, "vmlinuz"),
		initrd: filepath.Join(folder, "initrd"),
		disk:   filepath.Join(folder, "disk.raw"),
	}
	if err := os.WriteFile(created.disk, disk, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(disk)
	created.sum = hex.EncodeToString(sum[:])
	sharedImage = created
	return created
}

// bootTemplate boots the installer of the image. The variable sum is the image's SHA-256, and more is added to the
// kernel's command line.
const bootTemplate = `#!ipxe
kernel {{.URL.Files}}/local/image/vmlinuz initrd=initrd console=ttyS0 quiet no_timer_check ironplane.boot={{.URL.Boot}} ironplane.image={{.URL.Files}}/local/image/disk.raw ironplane.sum={{value "sum" .Variables}} {{value "more" .Variables}}
initrd {{.URL.Files}}/local/image/initrd
boot
`

// addFiles gives an agent the files that machines load.
func (i image) addFiles(t testing.TB, folder string) {
	t.Helper()
	addFiles(t, folder, "local/image", i.kernel, i.initrd, i.disk)
}

// addFiles links files into a folder of an agent.
func addFiles(t testing.TB, folder, below string, files ...string) {
	t.Helper()
	to := filepath.Join(folder, "files", below)
	err := os.MkdirAll(to, 0o755)
	for _, file := range files {
		err = errors.Join(err, os.Link(file, filepath.Join(to, filepath.Base(file))))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// addMemorySystem builds the system in memory with a kernel for virtual machines, imports it, and syncs it to the agent.
func (o *operator) addMemorySystem() {
	o.Helper()
	built := sharedFolder(o, "rescue", `"$RESCUE/build.sh" .`, "RESCUE="+rescueFolder(o), "KERNEL=linux-image-cloud-amd64")
	shell(o, built, `"$RESCUE/import.sh" rescue.iso`, "RESCUE="+rescueFolder(o), "API="+o.c.URL, "KEY="+o.c.Key)
	o.sync()
}

// rescueFolder returns the folder with what builds the system in memory.
func rescueFolder(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../rescue")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sharedFolder returns a folder that several tests share. A script fills it for the first of them.
func sharedFolder(t testing.TB, name, script string, environment ...string) (folder string) {
	t.Helper()
	sharedMu.Lock()
	defer sharedMu.Unlock()
	folder = filepath.Join(shared, name)
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	begun, err := os.MkdirTemp(shared, name+"-")
	if err != nil {
		t.Fatal(err)
	}
	shell(t, begun, script, environment...)
	if err := os.Rename(begun, folder); err != nil {
		t.Fatal(err)
	}
	return folder
}
