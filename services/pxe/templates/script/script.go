// Package script is what machines are given that boot over the network: boot scripts, preseeds and shell scripts, which
// operators write as templates.
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

// Variables are what templates can show of an installation. doc says to operators what they are, example what the golden
// files and previews show.
type Variables struct {
	Host      Host
	Password  secret.String `example:"correct horse battery staple" doc:"of root, or of Windows' Administrator"`
	SSHKeys   []string      `example:"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG ben@example.com" doc:"that may sign in as root, a line each"`
	Client    Client
	Profile   Profile
	URL       URL
	Variables []Variable
}

// Host is the machine.
type Host struct {
	Hostname    string   `example:"web1.example.com" doc:"its full name"`
	Name        string   `example:"web1" doc:"the first part of its name"`
	NetBIOS     string   `example:"web1" doc:"the first part of its name, up to 15 characters, as Windows takes it"`
	Domain      string   `example:"example.com" doc:"the other parts"`
	MAC         string   `example:"52:54:00:12:34:56" doc:"of the interface that it boots from, in lower case with colons"`
	MACDashes   string   `example:"52-54-00-12-34-56" doc:"the same with dashes, as Windows takes it"`
	MACs        []string `example:"52:54:00:12:34:56" doc:"of all its interfaces"`
	Firmware    string   `example:"uefi" doc:"bios or uefi"`
	Disk        string   `example:"/dev/sda" doc:"to install on; empty: the installer chooses"`
	IP          string   `example:"192.0.2.10" doc:"its address: of IPv4, or of IPv6 where it has no other"`
	IPv4        Family
	IPv6        Family
	Nameservers []string `example:"192.0.2.53" doc:"which it asks"`
}

// NewHost is a machine with a name, which boots from the first of its interfaces.
func NewHost(hostname, firmware string, macs []string) Host {
	h := Host{Hostname: hostname, Firmware: cmp.Or(firmware, "bios"), Nameservers: []string{}}
	h.Name, h.Domain, _ = strings.Cut(hostname, ".")
	h.NetBIOS = h.Name[:min(len(h.Name), 15)]
	if len(macs) > 0 {
		h.MAC, h.MACs, h.MACDashes = macs[0], macs, strings.ReplaceAll(macs[0], ":", "-")
	}
	return h
}

// NewFamily is an address with the length of its prefix.
func NewFamily(p netip.Prefix) Family {
	return Family{Address: p.Addr().String(), Prefix: p.Masked().String(), Length: int64(p.Bits())}
}

// Lines are those of a text that have something in them.
func Lines(text string) []string {
	all := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// Family is a machine's address of one family of protocols.
type Family struct {
	Address string `doc:"empty: it has none"`
	Prefix  string `doc:"the subnet, such as 192.0.2.0/24 or 2001:db8::/64"`
	Length  int64  `doc:"of the prefix: 24"`
	Gateway string `doc:"of the subnet"`
}

// Client is whose machine it is.
type Client struct {
	Name  string `example:"Ben Miller" doc:"empty: nobody's"`
	Email string `example:"ben@example.com" doc:"where it is written to"`
}

// Profile is what is installed.
type Profile struct {
	ID   int64  `doc:"its number"`
	Name string `example:"Debian 13" doc:"its name"`
}

// URL is where the machine finds what it is given. It holds a token that is good for this installation alone.
type URL struct {
	Files    string `example:"http://files.fra1.example.net" doc:"the site's file server, or the DHCP server's agent where its IP group has none, without a slash at the end"`
	Boot     string `example:"http://boot.fra1.example.net/i/[secret]/boot" doc:"the profile's boot script"`
	Preseed  string `example:"http://boot.fra1.example.net/i/[secret]/preseed" doc:"the profile's preseed"`
	NoCloud  string `example:"http://boot.fra1.example.net/i/[secret]/nocloud/" doc:"a folder for cloud-init: the preseed as user-data, and an empty meta-data"`
	During   string `example:"http://boot.fra1.example.net/i/[secret]/during" doc:"a shell script that runs those of shell.during in their order"`
	After    string `example:"http://boot.fra1.example.net/i/[secret]/after" doc:"a shell script that runs those of shell.after in their order"`
	Progress string `example:"http://boot.fra1.example.net/i/[secret]/progress" doc:"where a POST of step=… and progress=0 to 100 says how far it is"`
	Done     string `example:"http://boot.fra1.example.net/i/[secret]/done" doc:"where a POST says that it is installed"`
	Failed   string `example:"http://boot.fra1.example.net/i/[secret]/failed" doc:"where a POST of error=… says that it has failed"`
}

// Variable is one that who asks for an installation chooses.
type Variable struct {
	Name  string `example:"timezone" doc:"of one that who asks for an installation chooses"`
	Value string `example:"Europe/Berlin" doc:"what it holds"`
}

// NewVariables are some in the order of their names.
func NewVariables(values map[string]string) []Variable {
	all := []Variable{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, Variable{name, values[name]})
	}
	return all
}

var language = template.NewLanguage(functions, Variables{})

// Kind is what a template is for.
type Kind string

// The kinds. Boot scripts are given to whatever says that it has the machine's MAC address: they show no secrets.
const (
	Boot    Kind = "boot_script"
	Preseed Kind = "preseed"
	Shell   Kind = "shell_script"
)

// Check parses a template, or says all that is wrong with it, in one line.
func (k Kind) Check(source string) (*template.Template, string) {
	check := language.Text
	if k == Boot {
		check = language.Open
	}
	made, wrong := check(source)
	return made, template.Said(wrong)
}

// Sample is an installation as previews show it.
func Sample() Variables {
	v := template.Example(Variables{}).(Variables)
	v.Host.IPv4 = Family{"192.0.2.10", "192.0.2.0/24", 24, "192.0.2.1"}
	v.Host.IPv6 = Family{"2001:db8::10", "2001:db8::/64", 64, "2001:db8::1"}
	v.Profile.ID = 1
	return v
}

// Reference is a page that says what templates can show and call, in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(
		"# Variables of boot scripts, preseeds and shell scripts\n\nWhat these templates can show, and the functions that they have. `make " +
			"openapi` writes this page from the program.\n\n",
	)
	b.WriteString(language.Table("a secret: a function makes another one of it, and boot scripts have none"))
	b.WriteString(
		"\nA list stands with `[]`: `{{range .SSHKeys}}{{.}}{{end}}`, `{{range .Variables}}{{.Name}}{{end}}`.\n\n## Functions\n\n| Function | " +
			"What it makes |\n|---|---|\n",
	)
	for _, f := range described {
		fmt.Fprintf(&b, "| `{{%s}}` | %s |\n", f.example, f.makes)
	}
	return b.String()
}

// InTurn is a shell script that runs others in their order, by the interpreters that they name, and ends with the first that fails.
func InTurn(scripts []string) string {
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
