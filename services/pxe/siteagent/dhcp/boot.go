package dhcp

import (
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// bootloaders are the iPXE binaries by the architecture of the firmware, for TFTP and for HTTP.
var bootloaders = map[iana.Arch]string{
	iana.INTEL_X86PC: "undionly.kpxe",
	iana.EFI_BC:      "ipxe.efi", iana.EFI_X86_64: "ipxe.efi", iana.EFI_X86_64_HTTP: "ipxe.efi",
	iana.EFI_ARM64: "ipxe-arm64.efi", iana.EFI_ARM64_HTTP: "ipxe-arm64.efi",
}

// bootloaderFor returns the path of the bootloader for a machine, or "" if there is none for its architecture.
func (s *Server) bootloaderFor(c machine.Client, architectures []iana.Arch) string {
	architecture := iana.INTEL_X86PC
	if len(architectures) > 0 {
		architecture = architectures[0]
	}
	name := bootloaders[architecture]
	isPXE := architecture == iana.EFI_BC || architecture == iana.EFI_X86_64
	if isPXE && !c.IsIPv6 && s.Machines.HasSecureBoot(c.MAC) {
		return siteagent.BootloaderShim
	}
	if name == "" {
		s.Log.Warn("no bootloader for architecture", "mac", c.MAC, "architecture", uint16(architecture))
		return ""
	}
	return siteagent.BootloaderFolder + name
}

// scriptPath is the path of a machine's boot script for iPXE.
const scriptPath = "/i/boot"

// addBootOptions adds what to boot: iPXE for firmware, and the machine's script for iPXE.
func (s *Server) addBootOptions(q *request, r *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if !q.client.IsBooting {
		return r
	}
	if s.Proxy && q.class != "" || q.class == "HTTPClient" {
		r.UpdateOption(dhcpv4.OptClassIdentifier(q.class))
	}
	if s.Proxy && q.class == "PXEClient" {
		const bootFileAtOnce = 8 // bit 3 of option 43.6: use this boot file, and look for no boot servers
		r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, []byte{6, 1, bootFileAtOnce, 255}))
	}
	if q.ipxe {
		r.ServerIPAddr = s.Server.AsSlice() // without it iPXE ignores a proxy's reply
		return setBootFile(r, s.URL+scriptPath)
	}
	name := s.bootloaderFor(q.client, q.ClientArch())
	switch {
	case name == "":
		return r
	case q.class == "HTTPClient":
		return setBootFile(r, s.URL+"/"+name)
	}
	r.ServerIPAddr = s.Server.AsSlice()
	r.UpdateOption(dhcpv4.OptTFTPServerName(s.Server.String()))
	return setBootFile(r, name)
}

// setBootFile sets the boot file in the option and, if it fits, in the header, where some firmware looks.
func setBootFile(r *dhcpv4.DHCPv4, name string) *dhcpv4.DHCPv4 {
	const maxHeaderLength = 127
	if len(name) <= maxHeaderLength {
		r.BootFileName = name
	}
	r.UpdateOption(dhcpv4.OptBootFileName(name))
	return r
}
