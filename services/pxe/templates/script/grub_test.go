package script_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// A boot script of Linux becomes one for GRUB with the same kernel, initrds and arguments.
func TestToGRUB(t *testing.T) {
	got, err := script.ToGRUB(`#!ipxe
# Debian on web1
set base http://files.example.net/site/debian
set folder ${base}/dists
echo It's Debian
kernel ${folder}/linux initrd=initrd.gz auto=true BOOTIF=01-${netX/mac:hexhyp} url=http://10.1.0.1/preseed?a=1&b=2 ---  quiet
initrd ${folder}/initrd.gz
initrd ${base}/firmware.cpio
boot
`, "http://files.example.net/site")
	want := `regexp --set=1:a --set=2:b --set=3:c --set=4:d --set=5:e --set=6:f '(..):(..):(..):(..):(..):(..)' "$net_default_mac"
set mac="$a-$b-$c-$d-$e-$f"
echo 'It'\''s Debian'
linux '(tftp,files.example.net)/debian/dists/linux' 'auto=true' 'BOOTIF=01-'"$mac"'' 'url=http://10.1.0.1/preseed?a=1&b=2' '---' 'quiet'
initrd '(tftp,files.example.net)/debian/dists/initrd.gz' '(tftp,files.example.net)/debian/firmware.cpio'
boot
`
	if err != nil || got != want {
		t.Errorf("got %v and\n%s\nwant\n%s", err, got, want)
	}
	if check, err := exec.LookPath("grub-script-check"); err == nil {
		cmd := exec.Command(check)
		cmd.Stdin = strings.NewReader(got)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("got %v (%s) from grub-script-check", err, out)
		}
	}
}

// A boot script that GRUB cannot run is refused. The error names the line, and nothing that is in it.
func TestToGRUBRefuses(t *testing.T) {
	const kernel = "#!ipxe\nkernel http://10.1.0.1/linux\n"
	const (
		elsewhere = "line 3: GRUB loads files from the file server http://10.1.0.1 only"
		noSetting = "line 3: GRUB has no settings of iPXE, except for the MAC address: ${netX/mac:hexhyp}"
		unknown   = "only set, echo, kernel, initrd, and boot after a kernel can be translated for GRUB"
	)
	for source, want := range map[string]string{
		kernel:                            "line 2: the script ends without boot",
		kernel + "sanboot --drive 0x80\n": "line 3: " + unknown,
		kernel + "initrd --name BCD http://10.1.0.1/bcd\n":          elsewhere,
		kernel + "initrd https://10.1.0.1/initrd\n":                 elsewhere,
		kernel + "initrd http://10.1.0.1/bcd BCD\n":                 "line 3: GRUB cannot give an initrd a name",
		kernel + "kernel http://10.1.0.1/linux\n":                   "line 3: a second kernel cannot be loaded",
		kernel + "boot\nreboot\n":                                   "line 4: nothing can follow boot",
		kernel + "boot || goto again\n":                             "line 3: || and && cannot be translated for GRUB",
		kernel + "echo ${serial}\n":                                 noSetting,
		kernel + "echo \x07\n":                                      "line 3: control characters cannot be translated for GRUB",
		"kernel http://10.1.0.1/linux a=\"b\"\n":                    "line 1: GRUB cannot pass quotes and backslashes on to the kernel",
		"boot\n":                                                    "line 1: " + unknown,
		"set a aaaaaaaa\n" + strings.Repeat("set a ${a}${a}\n", 40): "line 18: the variables have more than 1048576 bytes",
	} {
		if got, err := script.ToGRUB(source, "http://10.1.0.1"); err == nil || err.Error() != want {
			t.Errorf("%.80q: got %q and %v, want %s", source, got, err, want)
		}
	}
}

// GRUB runs no command that the boot script does not have.
func FuzzToGRUB(f *testing.F) {
	f.Add("#!ipxe\nset a 'b\nkernel http://10.1.0.1/'$(x)`;reboot` ${a}\nboot\n")
	f.Fuzz(func(t *testing.T, source string) {
		got, err := script.ToGRUB(source, "http://10.1.0.1")
		if err != nil {
			return
		}
		for line := range strings.Lines(strings.ReplaceAll(got, `'"$mac"'`, "")) {
			command, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if command != "echo" && command != "linux" && command != "initrd" && command != "boot" && command != "regexp" && command != "set" {
				t.Fatalf("got the line %q", line)
			}
			if strings.Count(strings.ReplaceAll(line, `'\''`, ""), "'")%2 != 0 {
				t.Fatalf("got an open quote in %q", line)
			}
		}
	})
}
