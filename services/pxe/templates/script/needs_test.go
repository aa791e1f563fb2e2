package script_test

import (
	"slices"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

func TestFindRequired(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][]string{
		`{{value "b" .Variables}} {{quote (value "a" .Variables)}} {{value "b" .Variables}}`:         {"a", "b"},
		`{{range .SSHKeys}}{{value "a" $.Variables | line}}{{end}}`:                                  {"a"},
		`{{default "x" (line (value "a" .Variables))}}{{value "b" .Variables | default "x" | json}}`: nil,
		`{{with value "a" .Variables}}{{xml .}}{{end}}`:                                              nil,
		`{{if value "a" .Variables}}{{value "a" .Variables}}{{else}}{{value "b" .Variables}}{{end}}`: {"b"},
		`{{if value "a" .Variables}}x{{end}}{{value "a" .Variables}}`:                                {"a"},
		`{{$m := value "a" .Variables}}{{default "x" $m}}`:                                           nil,
		`{{if}}`: nil,
	} {
		if got := script.FindRequired(source); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func TestFindFiles(t *testing.T) {
	t.Parallel()
	const base = "http://files"
	for source, want := range map[string][]string{
		"#!ipxe\nkernel http://files/linux quiet\ninitrd --name x http://files/a/initrd.gz x\nboot\n":      {"linux", "a/initrd.gz"},
		"set base http://files/u\nset casper ${base}/casper\nkernel ${casper}/vmlinuz url=${base}/u.iso\n": {"u/casper/vmlinuz", "u/u.iso"},
		"kernel http://files/k srv=http://files/rescue/\n":                                                 {"k", "rescue"},
		"kernel http://mirror.example.net/linux\n# http://files/comment\necho http://files/text\n":         nil,
		"chain http://files/${buildarch}/x.efi\nchain http://files/a || chain http://files/b\n":            nil,
		"chain http://files/local.efi || exit 1\n":                                                         {"local.efi"},
		"kernel http://files/linux?x=1\nkernel http://files/linux\n":                                       {"linux"},
	} {
		if got := script.FindFiles(source, base); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}
