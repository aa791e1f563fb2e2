package netboot

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// addSignedLoaders gives the agent what machines with Secure Boot load.
func (o *operator) addSignedLoaders() {
	o.Helper()
	shell(o, o.folder, testkit.CodeBlock(o, document, "netboot signed"), "IRONPLANE_AGENT_FOLDER="+o.folder)
}

// TestSecureBoot installs a machine whose firmware has Microsoft's keys and loads only programs with signatures. The machine boots the
// installer, and after that the system on its disk.
func TestSecureBoot(t *testing.T) {
	t.Parallel()
	requireTools(t, secureTools...)
	image := newImage(t)
	signed := filepath.Join(t.TempDir(), "disk.raw")
	shell(t, filepath.Dir(signed), `
cat > grub.cfg <<'END'
search --no-floppy --file --set=root /system.cfg
linux /vmlinuz console=ttyS0 no_timer_check
initrd /initrd
boot
END
truncate -s 31M fat
mkfs.vfat -F 16 -n SYSTEM fat >/dev/null
mmd -i fat ::/EFI ::/EFI/debian
mcopy -i fat /usr/lib/shim/shimx64.efi.signed ::/EFI/debian/shimx64.efi
mcopy -i fat /usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed ::/EFI/debian/grubx64.efi
mcopy -i fat grub.cfg ::/EFI/debian/grub.cfg
mcopy -i fat "$FROM/vmlinuz" "$FROM/initrd" "$FROM/system.cfg" ::/
head -c 1M "$FROM/disk.raw" > disk.raw
printf '\000\370\000\000' | dd of=disk.raw bs=1 seek=458 conv=notrunc status=none # the size of the partition, in sectors
cat fat >> disk.raw
`, "FROM="+filepath.Dir(image.disk))
	image.disk = signed
	image.sum, _ = hashFile(t, signed)
	o := newOperator(t)
	o.addSignedLoaders()
	image.addFiles(t, o.folder)
	const mac = "52:54:00:77:00:a0"
	path := o.installSmall(image, 1, mac, script.SecureBoot, "")
	m := o.newMachine(mac, script.SecureBoot, 512)
	m.on()
	m.shows("INSTALLER: it begins", 1)
	m.shows("Secure boot enabled", 1) // the kernel of the disk says so, and that of the installer is quiet
	m.shows("SYSTEM: it runs from its disk", 1)
	o.awaitInstall(path, "the machine is installed", func(i *install.Install) bool { return i.Status == install.Installed })
}

// TestSecureBootOfRescueSystem signs in to the rescue system on a machine with Secure Boot, whose kernel says that it is on.
func TestSecureBootOfRescueSystem(t *testing.T) {
	t.Parallel()
	requireTools(t, slices.Concat(memoryTools, secureTools)...)
	requireFull(t)
	o := newOperator(t)
	o.addSignedLoaders()
	o.addMemorySystem()
	key := o.newKey()
	const mac = "52:54:00:77:00:a1"
	body := o.seededBody(mac, script.SecureBoot)
	body["ssh_keys"] = key.public
	path := o.install(body, o.profile("Rescue system"), nil)
	m := o.newMachine(mac, script.SecureBoot, 1024)
	m.on()
	o.awaitInstall(path, "the rescue system runs", func(i *install.Install) bool { return i.Status == install.Installed })
	got := key.run("hostname; od -An -t u1 -j 4 /sys/firmware/efi/efivars/SecureBoot-*; cat /sys/kernel/security/lockdown")
	if want := "web1\n   1\nnone [integrity] confidentiality\n"; got != want {
		t.Errorf("got %q, want %q: Secure Boot, and a kernel that is locked down", got, want)
	}
}
