package install

import (
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// Shown are what the templates of an install show, where the machine reaches the agent and the file server by these addresses.
func (i *Install) Shown(machines, files, email string, password, token secret.String) script.Variables {
	h := script.NewHost(i.Host.Hostname, i.Host.Firmware, i.Host.MACs)
	h.IPv4, h.IPv6, h.Nameservers = i.Host.IPv4.family(), i.Host.IPv6.family(), strings.Fields(i.Host.Nameservers)
	h.IP = i.Host.address()
	if i.Host.Disk != nil {
		h.Disk = *i.Host.Disk
	}
	v := script.Variables{
		Host:      h,
		Password:  password,
		SSHKeys:   script.Lines(i.SSHKeys),
		Profile:   script.Profile{ID: i.Profile.ID, Name: i.Profile.Name},
		Variables: script.NewVariables(i.Variables),
	}
	if i.Client != nil {
		v.Client = script.Client{Name: i.Client.Name, Email: email}
	}
	at := machines + "/i/" + token.Reveal() + "/"
	v.URL = script.URL{
		Files:    files,
		Boot:     at + "boot",
		Preseed:  at + "preseed",
		NoCloud:  at + "nocloud/",
		During:   at + "during",
		After:    at + "after",
		Progress: at + "progress",
		Done:     at + "done",
		Failed:   at + "failed",
	}
	return v
}

func (a *InstallAddress) family() (f script.Family) {
	if a == nil {
		return f
	}
	if p, err := netip.ParsePrefix(a.Address); err == nil {
		f = script.NewFamily(p)
	}
	if a.Gateway != nil {
		f.Gateway = *a.Gateway
	}
	return f
}
