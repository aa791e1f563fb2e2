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
kernel ${folder}/linux initrd=initrd.gz auto=true BOOTIF=01-${netX/mac:hexhyp} url=http://10.1.0.1/i/token/preseed?a=1&b=2 ---  quiet
initrd ${folder}/initrd.gz
initrd ${base}/firmware.cpio
boot
`, "http://files.example.net/site")
	want := `regexp --set=1:a --set=2:b --set=3:c --set=4:d --set=5:e --set=6:f '(..):(..):(..):(..):(..):(..)' "$net_default_mac"
set mac="$a-$b-$c-$d-$e-$f"
echo 'It'\''s Debian'
linux '(tftp,files.example.net)/debian/dists/linux' 'auto=true' 'BOOTIF=01-'"$mac"'' 'url=http://10.1.0.1/i/token/preseed?a=1&b=2' '---' 'quiet'
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

// A boot script that GRUB cannot do is refused, with the line.
func TestToGRUBRefuses(t *testing.T) {
	const kernel = "#!ipxe\nkernel http://10.1.0.1/linux\n"
	for source, want := range map[string]string{
		kernel:                            "line 2: the script ends without boot",
		kernel + "sanboot --drive 0x80\n": `line 3: GRUB has nothing like "sanboot --drive 0x80"`,
		kernel + "initrd --name BCD http://10.1.0.1/bcd\n":          `line 3: GRUB loads files from the file server http://10.1.0.1 only, and not "--name"`,
		kernel + "initrd http://10.1.0.1/bcd BCD\n":                 `line 3: GRUB gives files no names, as here "BCD"`,
		kernel + "initrd https://10.1.0.1/initrd\n":                 `line 3: GRUB loads files from the file server http://10.1.0.1 only, and not "https://10.1.0.1/initrd"`,
		kernel + "kernel http://10.1.0.1/linux\n":                   "line 3: there is a second kernel",
		kernel + "boot\nreboot\n":                                   "line 4: there is reboot after boot",
		kernel + "boot || goto again\n":                             "line 3: GRUB gets no scripts with || or &&",
		kernel + "echo ${serial}\n":                                 `line 3: GRUB has no setting "serial"`,
		"kernel http://10.1.0.1/linux a=\"b\"\n":                    `line 1: GRUB changes quotes and backslashes, as in the argument "a=\"b\""`,
		"boot\n":                                                    `line 1: GRUB has nothing like "boot"`,
		"set a aaaaaaaa\n" + strings.Repeat("set a ${a}${a}\n", 40): "line 18: the variables have more than 1048576 bytes",
	} {
		if got, err := script.ToGRUB(source, "http://10.1.0.1"); err == nil || err.Error() != want {
			t.Errorf("%.80q: got %q and %v, want %s", source, got, err, want)
		}
	}
}

// No boot script makes a script for GRUB that runs something other than what it says, or that has no end.
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
