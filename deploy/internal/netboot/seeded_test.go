package netboot

import (
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/install"
)

// memtest returns a folder with the memory test for BIOS and UEFI.
var memtest = fromDebian("memtest86+", "")

// seededBody returns the body of an install that only boots.
func (o *operator) seededBody(mac, firmware string) map[string]any {
	return map[string]any{
		"host": map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": o.entity(1), "firmware": firmware},
	}
}

// TestMemoryTest boots the memory test with the profile that comes with Ironplane.
func TestMemoryTest(t *testing.T) {
	t.Parallel()
	requireTools(t)
	requireFull(t)
	programs := memtest(t)
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:74", "uefi": "52:54:00:77:00:75"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			shell(t, o.folder, `
mkdir -p files/local/memtest86plus
cp "$FROM/boot/memtest86+x64.bin" files/local/memtest86plus/memtest64.bin
cp "$FROM/boot/memtest86+x64.efi" files/local/memtest86plus/memtest64.efi
`, "FROM="+programs)
			path := o.install(o.seededBody(mac, firmware), o.profile("Memory test"), map[string]string{"console": "ttyS0,115200"})
			m := o.newMachine(mac, firmware, 512)
			m.arguments = append(m.arguments, "-device", "VGA") // the memory test needs a screen with UEFI
			m.on()
			m.shows("Memtest86+", 1)
			o.awaitInstall(path, "the machine has booted", func(i *install.Install) bool { return i.Status == install.Booting })
		})
	}
}

// TestLocalDisk boots the disk of a machine with the profile that comes with Ironplane.
func TestLocalDisk(t *testing.T) {
	t.Parallel()
	requireTools(t)
	requireFull(t)
	image := newImage(t)
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:76", "uefi": "52:54:00:77:00:77"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			path := o.install(o.seededBody(mac, firmware), o.profile("Local disk"), nil)
			m := o.newMachine(mac, firmware, 512)
			shell(t, filepath.Dir(m.monitor), `cp "$DISK" disk && truncate -s 4G disk`, "DISK="+image.disk)
			m.on()
			m.shows("SYSTEM: it runs from its disk", 1)
			o.awaitInstall(path, "the machine has booted", func(i *install.Install) bool { return i.Status == install.Booting })
		})
	}
}
