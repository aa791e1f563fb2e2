package machine

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// bootloader has the scripts for machines that have loaded it.
type bootloader struct {
	name     string
	isSigned bool                            // firmware with Secure Boot loads it
	local    func(url string) string         // boots the disk
	wait     func(url, reason string) string // has the machine ask again
	restart  string                          // restarts a machine that must not get its boot script now
}

var (
	iPXE = bootloader{
		name:    "iPXE",
		local:   localScript,
		wait:    waitScript,
		restart: restartScript,
	}
	grub = bootloader{
		name:     "GRUB",
		isSigned: true,
		local:    func(string) string { return localGRUB },
		wait: func(_, reason string) string {
			return fmt.Sprintf("echo 'Ironplane: this machine waits. %s'\n", echoText(reason))
		},
		restart: restartGRUB,
	}
)

// The files that the signed GRUB reads by TFTP. It reads grubConfig first, and asks for grubMachine until it gets a script that boots
// something.
const (
	grubConfig  = "grub/grub.cfg"
	grubMachine = "grub/machine.cfg"

	grubConfigText = `while true; do
  source $prefix/machine.cfg
  sleep 5
done
`
)

// ReadGRUBFile returns a generated file for a machine that has loaded GRUB. ok is false if there is no such file for it. A machine whose
// present install is for iPXE gets scripts, too: it may have loaded GRUB before that install was created.
func (m *Machines) ReadGRUBFile(name string, from netip.Addr) (text string, ok bool) {
	if name != grubConfig && name != grubMachine {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mach := m.byAddress[from]
	if mach == nil {
		return "", false
	}
	if name == grubConfig {
		return grubConfigText, true
	}
	text, err := m.getScript(grub, from)
	if err != nil {
		m.log.Error("read boot script failed", "install", mach.ID, "error", err)
	}
	return text, err == nil
}

// bootloader returns what the machine's boot script is for.
func (mach *machine) bootloader() bootloader {
	if mach.SecureBoot {
		return grub
	}
	return iPXE
}

// localGRUB boots a system on a disk whose loader has a signature. If there is none, the firmware goes on.
const localGRUB = `echo 'Ironplane: this machine boots its disk'
for loader in debian/shimx64 debian/grubx64 ubuntu/shimx64 almalinux/shimx64 rocky/shimx64 Microsoft/Boot/bootmgfw BOOT/BOOTX64; do
  if search --no-floppy --file --set=root /EFI/$loader.efi; then
    chainloader ($root)/EFI/$loader.efi
    boot
  fi
done
exit
`

// restartGRUB restarts a machine that must not get its boot script now.
const restartGRUB = `echo 'Ironplane: this machine restarts, and gets its boot script then.'
sleep 10
reboot
`

// localScript boots the machine's disk. With UEFI it starts a GRUB that looks for a system, because not every firmware continues with
// the disk when iPXE exits.
func localScript(url string) string {
	return fmt.Sprintf(`#!ipxe
echo Ironplane: this machine boots its disk
iseq ${platform} efi || goto bios
iseq ${buildarch} arm64 && chain %[1]s/%[2]slocal-arm64.efi || chain %[1]s/%[2]slocal.efi ||
exit 1
:bios
sanboot --no-describe --drive 0x80 ||
exit
`, url, siteagent.BootloaderFolder)
}

// waitScript asks for a script again after 5 seconds.
func waitScript(url, reason string) string {
	return fmt.Sprintf(`#!ipxe
echo Ironplane: this machine waits. %s
:again
sleep 5
chain --replace --autofree %s/i/boot || goto again
`, echoText(reason), url)
}

// restartScript restarts a machine that must not get its boot script now, such as one that asks for it twice. After the restart it may
// have the script.
const restartScript = `#!ipxe
echo Ironplane: this machine restarts, and gets its boot script then.
sleep 10
reboot
`

// discoverScript sends the machine's facts to the agent, and continues with the script in the response.
func (m *Machines) discoverScript() string {
	var query strings.Builder
	for _, fact := range facts {
		fmt.Fprintf(&query, "&%s=${%s}", fact.name, fact.setting)
	}
	return fmt.Sprintf(`#!ipxe
echo Ironplane: this machine is unknown. It reports its hardware
chain --replace --autofree %s/i/discover?%s
`, m.URL, query.String()[1:])
}

// facts are the facts of a machine and iPXE's settings for them. Text is escaped for the URL. Binary values use iPXE's own form,
// because a zero byte would end the URL.
var facts = []struct{ name, setting string }{
	{
		"uuid",
		"uuid",
	},
	{"serial", "serial:uristring"},
	{"manufacturer", "manufacturer:uristring"},
	{"product", "product:uristring"},
	{"asset", "asset:uristring"},
	{
		"firmware",
		"platform:uristring",
	},
	{"architecture", "buildarch:uristring"},
	{"mac0", "net0/mac"},
	{"mac1", "net1/mac"},
	{"mac2", "net2/mac"},
	{"mac3", "net3/mac"},
}

// echoText replaces characters that iPXE's echo would interpret.
func echoText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" .,:()-_/", r)) {
			return r
		}
		return ' '
	}, text)
}

// cleanLine removes control characters, and cuts the text to maxLength bytes.
func cleanLine(text string, maxLength int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > maxLength {
		text = strings.ToValidUTF8(text[:maxLength], "")
	}
	return strings.TrimSpace(text)
}
