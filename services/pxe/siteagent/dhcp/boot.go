package dhcp

import (
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
)

// bootloaders are what firmware of an architecture loads, where it asks by TFTP and by HTTP.
var bootloaders = map[iana.Arch]string{
	iana.INTEL_X86PC: "undionly.kpxe",
	iana.EFI_BC:      "ipxe.efi", iana.EFI_X86_64: "ipxe.efi", iana.EFI_X86_64_HTTP: "ipxe.efi",
	iana.EFI_ARM64: "ipxe-arm64.efi", iana.EFI_ARM64_HTTP: "ipxe-arm64.efi",
}

// bootloaderFor is what firmware loads; empty: there is none for it.
func (s *Server) bootloaderFor(c machine.Client, architectures []iana.Arch) string {
	architecture := iana.INTEL_X86PC
	if len(architectures) > 0 {
		architecture = architectures[0]
	}
	name := bootloaders[architecture]
	if name == "" {
		s.Log.Warn("no bootloader is for the architecture of a machine", "mac", c.MAC, "architecture", uint16(architecture))
		return ""
	}
	return machine.Bootloaders + name
}

// scriptPath is where iPXE finds the script that is made for its machine.
const scriptPath = "/i/boot"

// addBootOptions adds what to boot: firmware iPXE, and iPXE a script that is made for this machine.
func (s *Server) addBootOptions(q *request, r *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if !q.client.IsBooting {
		return r
	}
	if s.Proxy && q.class != "" || q.class == "HTTPClient" {
		r.UpdateOption(dhcpv4.OptClassIdentifier(q.class))
	}
	if s.Proxy && q.class == "PXEClient" {
		const bootFileAtOnce = 8 // no other boot servers are to be looked for
		r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, []byte{6, 1, bootFileAtOnce, 255}))
	}
	if q.ipxe {
		r.ServerIPAddr = s.Server.AsSlice() // without which iPXE takes a proxy's answer for none
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

// setBootFile names what to boot, in the option and, for firmware that looks there, in the header.
func setBootFile(r *dhcpv4.DHCPv4, name string) *dhcpv4.DHCPv4 {
	const maxHeaderLength = 127
	if len(name) <= maxHeaderLength {
		r.BootFileName = name
	}
	r.UpdateOption(dhcpv4.OptBootFileName(name))
	return r
}
