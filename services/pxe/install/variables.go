package install

import (
	"net/netip"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

// templateVariables returns the variables of the install's templates. machines and files are the addresses at which the
// machine reaches its agent and its file server.
func (i *Install) templateVariables(machines, files, email string, password, token secret.String) script.Variables {
	h := script.NewHost(i.Host.Hostname, i.Host.Firmware, i.Host.MACs)
	h.IPv4, h.IPv6, h.Nameservers = i.Host.IPv4.toFamily(), i.Host.IPv6.toFamily(), strings.Fields(i.Host.Nameservers)
	h.IP = i.Host.primaryAddress()
	if i.Host.Disk != nil {
		h.Disk = *i.Host.Disk
	}
	v := script.Variables{
		Host:      h,
		Password:  password,
		SSHKeys:   script.SplitLines(i.SSHKeys),
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
		Report:   at + "report",
		Done:     at + "done",
		Failed:   at + "failed",
	}
	return v
}

// toFamily converts the address to the form that templates use. It returns the zero value for nil.
func (a *InstallAddress) toFamily() (f script.Family) {
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
