package netboot

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Debian's own installer is booted by the profile that comes with Ironplane, sets its network up without asking, is given its preseed, and
// does what that has it do first, which is to report. What it loads after that takes a mirror that has all of Debian's installer.
func TestDebianInstallerBegins(t *testing.T) {
	t.Parallel()
	needs(t)
	wholeRun(t)
	images := filepath.Join(debianInstaller(t), "usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64")
	for firmware, mac := range map[string]string{"bios": "52:54:00:77:00:60", "uefi": "52:54:00:77:00:61"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			bring(t, o.folder, "local/mirror/debian/dists/bookworm/main/installer-amd64/current/images/netboot/debian-installer/amd64",
				filepath.Join(images, "linux"), filepath.Join(images, "initrd.gz"))
			path := o.install(map[string]any{"password": password, "host": map[string]any{"macs": []string{mac}, "hostname": "web1.example.com", "entity": o.entity(1), "disk": "/dev/vda",
				"firmware": firmware, "nameservers": "10.77.0.1"}}, o.profile("Debian 12"), map[string]string{"mirror": strings.TrimPrefix(url, "http://") + "/local/mirror"})
			m := o.newMachine(mac, firmware, 1024)
			m.arguments = append(m.arguments, "-device", "VGA") // where the installer shows its questions
			m.on()
			i := o.until(path, "the installer reports", func(i *install.Install) bool { return i.Status == install.Installing })
			if i.Step == nil || *i.Step != "partitions" || i.Progress != 10 {
				t.Errorf("it is %+v", i)
			}
			if !slices.ContainsFunc(i.Requests, func(r install.InstallRequest) bool {
				return r.What == siteagent.Read && r.Address == address(1) && strings.HasPrefix(r.Got, "preseed")
			}) {
				t.Errorf("it has read no preseed: %+v", i.Requests)
			}
		})
	}
}
