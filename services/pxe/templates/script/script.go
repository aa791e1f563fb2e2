// Package script defines the templates for boot scripts, preseeds and shell scripts: their variables and functions.
package script

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/template"
)

// Variables are the variables of the templates of an install. The tag doc is for operators, and example is the value in
// previews and golden files.
type Variables struct {
	Host      Host
	Password  secret.String `example:"correct horse battery staple" doc:"the password of root, or of Administrator on Windows"`
	SSHKeys   []string      `example:"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG ben@example.com" doc:"the public SSH keys that may sign in as root"`
	Client    Client
	Profile   Profile
	ISO       ISO
	Drivers   []Driver
	URL       URL
	Variables []Variable
}

// Host is the machine.
type Host struct {
	Hostname    string   `example:"web1.example.com" doc:"the full host name"`
	Name        string   `example:"web1" doc:"the first label of the host name"`
	NetBIOS     string   `example:"web1" doc:"the first label of the host name, up to 15 characters, for Windows"`
	Domain      string   `example:"example.com" doc:"the other labels of the host name"`
	MAC         string   `example:"52:54:00:12:34:56" doc:"the MAC address of the interface that the machine boots from, in lower case with colons"`
	MACDashes   string   `example:"52-54-00-12-34-56" doc:"the same address with dashes, for Windows"`
	MACs        []string `example:"52:54:00:12:34:56" doc:"the MAC addresses of all interfaces"`
	Firmware    string   `example:"uefi" doc:"bios or uefi"`
	SecureBoot  bool     `doc:"whether the firmware loads only programs with signatures"`
	Disk        string   `example:"/dev/sda" doc:"the disk to install on; empty: the installer chooses"`
	IP          string   `example:"192.0.2.10" doc:"the IPv4 address, or the IPv6 address if there is no other"`
	IPv4        Family
	IPv6        Family
	Nameservers []string `example:"192.0.2.53" doc:"the name servers"`
}

// SecureBoot is the firmware of an install whose machine loads only programs with signatures. Templates see uefi.
const SecureBoot = "uefi-secure"

// NewHost returns a machine that boots from the first of its interfaces.
func NewHost(hostname, firmware string, macs []string) Host {
	h := Host{Hostname: hostname, Firmware: cmp.Or(firmware, "bios"), SecureBoot: firmware == SecureBoot, Nameservers: []string{}}
	if h.SecureBoot {
		h.Firmware = "uefi"
	}
	h.Name, h.Domain, _ = strings.Cut(hostname, ".")
	h.NetBIOS = h.Name[:min(len(h.Name), 15)]
	if len(macs) > 0 {
		h.MAC, h.MACs, h.MACDashes = macs[0], macs, strings.ReplaceAll(macs[0], ":", "-")
	}
	return h
}

// NewFamily returns an address by its prefix.
func NewFamily(p netip.Prefix) Family {
	return Family{Address: p.Addr().String(), Prefix: p.Masked().String(), Length: int64(p.Bits())}
}

// SplitLines returns the lines of a text that are not empty.
func SplitLines(text string) []string {
	all := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// Family is a machine's address of one IP version.
type Family struct {
	Address string `doc:"the address; empty: none"`
	Prefix  string `doc:"the subnet, such as 192.0.2.0/24 or 2001:db8::/64"`
	Length  int64  `doc:"the prefix length: 24"`
	Gateway string `doc:"the gateway of the subnet"`
}

// Client is the client that the machine belongs to.
type Client struct {
	Name  string `example:"Ben Miller" doc:"the client's name; empty: no client"`
	Email string `example:"ben@example.com" doc:"the client's email address"`
}

// Profile is the profile of the install.
type Profile struct {
	ID   int64  `doc:"the id of the profile"`
	Name string `example:"Debian 13" doc:"the name of the profile"`
}

// ISO is the ISO of the profile.
type ISO struct {
	Folder  string        `example:"windows-server-2022" doc:"the folder of the profile's ISO on file servers, which have the ISO itself as FOLDER.iso; empty: the profile has no ISO"`
	Edition string        `example:"Windows Server 2022 SERVERSTANDARD" doc:"the edition of Windows that the profile installs; empty: none"`
	HasKey  bool          `doc:"whether the edition has a license key"`
	Key     secret.String `example:"ABCDE-FGHIJ-KLMNO-PQRST-UVWXY" doc:"the license key of the edition"`
}

// Driver is a driver of the profile.
type Driver struct {
	ID   int64  `doc:"the id of a driver of the profile"`
	Name string `example:"virtio for Windows" doc:"the name of the driver"`
	Path string `example:"drivers/1" doc:"the path of the driver on file servers: {{.URL.Files}}/{{.Path}}"`
}

// URL has the addresses of the machine's files. They contain a token that is valid for this install only.
type URL struct {
	Files    string `example:"http://files.fra1.example.net" doc:"the site's file server, or the DHCP server's agent if the IP group has none, without a trailing slash"`
	Boot     string `example:"http://boot.fra1.example.net/i/[secret]/boot" doc:"the profile's boot script"`
	Preseed  string `example:"http://boot.fra1.example.net/i/[secret]/preseed" doc:"the profile's preseed"`
	NoCloud  string `example:"http://boot.fra1.example.net/i/[secret]/nocloud/" doc:"a folder for cloud-init: the preseed as user-data, and an empty meta-data"`
	During   string `example:"http://boot.fra1.example.net/i/[secret]/during" doc:"a shell script that runs those of shell.during in order"`
	After    string `example:"http://boot.fra1.example.net/i/[secret]/after" doc:"a shell script that runs those of shell.after in order"`
	Progress string `example:"http://boot.fra1.example.net/i/[secret]/progress" doc:"POST step=… and progress=0 to 100 here to report progress"`
	Report   string `example:"http://boot.fra1.example.net/i/[secret]/report" doc:"POST report=… here, a JSON object, to have the agent sign it and the install show it"`
	Done     string `example:"http://boot.fra1.example.net/i/[secret]/done" doc:"POST here to report that the machine is installed"`
	Failed   string `example:"http://boot.fra1.example.net/i/[secret]/failed" doc:"POST error=… here to report a failure"`
}

// Variable is a value that the caller chose for the install.
type Variable struct {
	Name  string `example:"timezone" doc:"the name of a value that the caller chose"`
	Value string `example:"Europe/Berlin" doc:"the value"`
}

// NewVariables returns variables sorted by name.
func NewVariables(values map[string]string) []Variable {
	all := []Variable{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, Variable{name, values[name]})
	}
	return all
}

var language = template.NewLanguage(functions, Variables{})

// Kind is the kind of a template.
type Kind string

// The kinds of templates. Any machine that claims the right MAC address gets the boot script, so a boot script cannot
// contain secrets.
const (
	Boot    Kind = "boot_script"
	Preseed Kind = "preseed"
	Shell   Kind = "shell_script"
)

// Parse parses a template. If it is not valid, it returns all its errors in one line.
func (k Kind) Parse(source string) (*template.Template, string) {
	check := language.Text
	if k == Boot {
		check = language.Open
	}
	parsed, reason := check(source)
	return parsed, template.FormatErrors(reason)
}

// NewSample returns the variables of previews.
func NewSample() Variables {
	v := template.Example(Variables{}).(Variables)
	v.Host.IPv4 = Family{"192.0.2.10", "192.0.2.0/24", 24, "192.0.2.1"}
	v.Host.IPv6 = Family{"2001:db8::10", "2001:db8::/64", 64, "2001:db8::1"}
	v.Profile.ID, v.ISO.HasKey, v.Drivers[0].ID = 1, true, 1
	return v
}

// Values returns the variables and functions of the templates of a kind.
func (k Kind) Values() (variables []template.Variable, functions []template.FunctionDoc) {
	for _, v := range language.Variables() {
		if k != Boot || !v.Secret {
			variables = append(variables, v)
		}
	}
	return variables, functionDocs
}

// RenderReference returns a page in Markdown with all variables and functions.
func RenderReference() string {
	var b strings.Builder
	b.WriteString(
		"# Variables of boot scripts, preseeds and shell scripts\n\nThe variables and functions of these templates. `make " +
			"openapi` writes this page from the code.\n\n",
	)
	b.WriteString(language.Table("a secret: a function makes another one of it, and boot scripts have none"))
	b.WriteString(
		"\nA list is marked with `[]`: `{{range .SSHKeys}}{{.}}{{end}}`, `{{range .Variables}}{{.Name}}{{end}}`.\n\n## Functions\n\n" +
			"| Function | Result |\n|---|---|\n",
	)
	for _, f := range functionDocs {
		fmt.Fprintf(&b, "| `{{%s}}` | %s |\n", f.Example, f.Result)
	}
	return b.String()
}

// Combine returns a shell script that runs the given scripts in order, each by the interpreter of its first line. It
// stops at the first one that fails.
func Combine(scripts []string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nset -e\n")
	for _, one := range scripts {
		interpreter, end := "sh", "END-"+rand.Text()
		if first, _, _ := strings.Cut(one, "\n"); strings.HasPrefix(first, "#!") {
			interpreter = strings.TrimSpace(first[2:])
		}
		fmt.Fprintf(
			&b,
			"script=$(mktemp)\ncat > \"$script\" <<'%s'\n%s\n%[1]s\n%[3]s \"$script\"\nrm -f \"$script\"\n",
			end,
			strings.TrimSuffix(one, "\n"),
			interpreter,
		)
	}
	return b.String()
}
