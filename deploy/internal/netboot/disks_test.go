package netboot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
)

// addDisk adds a disk with a serial number to a machine that is off, and returns its file.
func (m *vm) addDisk(serial, size string) string {
	m.Helper()
	path := filepath.Join(filepath.Dir(m.monitor), serial)
	shell(m, filepath.Dir(m.monitor), "truncate -s "+size+" "+serial)
	m.arguments = append(m.arguments, "-drive", "if=none,format=raw,id="+serial+",file="+path,
		"-device", "virtio-blk-pci,drive="+serial+",serial="+serial)
	return path
}

// hashFile returns the SHA-256 of a file, and whether it has nothing but zeros.
func hashFile(t testing.TB, path string) (sum string, isZero bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash, buffer := sha256.New(), make([]byte, 1<<20)
	for isZero = true; ; {
		n, err := f.Read(buffer)
		hash.Write(buffer[:n])
		isZero = isZero && len(strings.Trim(string(buffer[:n]), "\x00")) == 0
		if err == io.EOF {
			return hex.EncodeToString(hash.Sum(nil)), isZero
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDisks writes a qcow2 image to a RAID 1 of two disks that are chosen by serial number, and boots it. After that it wipes these disks.
// A third disk keeps its data all the while.
func TestDisks(t *testing.T) {
	t.Parallel()
	requireTools(t, memoryTools...)
	requireFull(t)
	image := newImage(t)
	o := newOperator(t)
	o.addMemorySystem()
	folder := filepath.Join(o.folder, "files/local/image")
	shell(t, o.folder, `
mkdir -p files/local/image
qemu-img convert -c -O qcow2 "$DISK" files/local/image/disk.qcow2
`, "DISK="+image.disk)
	packed, _ := hashFile(t, filepath.Join(folder, "disk.qcow2"))
	const mac = "52:54:00:77:00:90"
	m := o.newMachine(mac, "bios", 1024)
	files := map[string]string{"KEEP": m.addDisk("KEEP", "512M"), "D1": m.addDisk("D1", "1G"), "D2": m.addDisk("D2", "1G")}
	shell(t, filepath.Dir(m.monitor), "head -c 512M /dev/urandom > KEEP")
	for i, argument := range m.arguments { // the machine boots one of the two disks
		m.arguments[i] = strings.ReplaceAll(argument, "drive=d,bootindex=2", "drive=d")
		if argument == "virtio-blk-pci,drive=D1,serial=D1" {
			m.arguments[i] += ",bootindex=2"
		}
	}
	before, _ := hashFile(t, files["KEEP"])
	wantKept := func() {
		t.Helper()
		if after, _ := hashFile(t, files["KEEP"]); after != before {
			t.Errorf("got the SHA-256 %s of the disk to keep, want %s as before", after, before)
		}
	}
	body := o.seededBody(mac, "bios")
	body["password"] = password
	path := o.install(body, o.profile("Disk image"), map[string]string{
		"image": url + "/local/image/disk.qcow2", "sha256": packed, "disks": "serial=D1,serial=D2", "keep": "serial=KEEP"})
	m.on()
	m.shows("SYSTEM: it runs from its disk", 1)
	o.awaitInstall(path, "the machine is installed", func(i *install.Install) bool { return i.Status == install.Installed })
	m.awaitOff()
	wantKept()
	content, err := os.ReadFile(image.disk)
	testkit.Must(t, err)
	for _, disk := range []string{"D1", "D2"} {
		f, err := os.Open(files[disk])
		testkit.Must(t, err)
		start := make([]byte, len(content))
		_, err = io.ReadFull(f, start)
		testkit.Must(t, err)
		testkit.Must(t, f.Close())
		if string(start) != string(content) {
			t.Errorf("got other content of the disk %s than that of the image", disk)
		}
	}

	path = o.install(body, o.profile("Wipe"), map[string]string{"disks": "serial=D1,serial=D2", "keep": "serial=KEEP"})
	m.on()
	i := o.awaitInstall(path, "the disks are wiped", func(i *install.Install) bool { return i.Status == install.Installed })
	m.awaitOff()
	wantKept()
	if len(i.Reports) != 2 {
		t.Fatalf("got the reports %+v, want 2", i.Reports)
	}
	for n, serial := range []string{"D1", "D2"} {
		var signed struct {
			Report struct{ Serial, Method string }
		}
		testkit.Must(t, json.Unmarshal([]byte(i.Reports[n].Statement), &signed))
		if signed.Report.Serial != serial || signed.Report.Method == "" ||
			!strings.Contains(i.Reports[n].Signature, "BEGIN SSH SIGNATURE") {
			t.Errorf("got the report %+v, want a signed one on %s", i.Reports[n], serial)
		}
		if _, isZero := hashFile(t, files[serial]); !isZero {
			t.Errorf("got data on the disk %s, want zeros", serial)
		}
	}
	fmt.Fprintln(t.Output(), i.Reports[0].Statement)
}
