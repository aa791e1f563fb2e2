package script_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
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

// What a template needs is found in about as much memory as the template has, so that its author cannot use up the process's.
func TestNeedsAreFoundInLittleMemory(t *testing.T) {
	const maxSize, maxGrowth = 256 << 10, 100 << 20
	nested := func(begin string) string {
		n := maxSize / len(begin+"{{end}}")
		return strings.Repeat(begin, n) + strings.Repeat("{{end}}", n)
	}
	for name, find := range map[string]func(){
		"nested conditions": func() { script.FindRequired(nested(`{{if value "" $.Variables}}`)) },
		"variables that double themselves": func() {
			script.FindFiles("set a x\n"+strings.Repeat("set a ${a}${a}\n", 26), "http://files")
		},
		"long variables": func() {
			script.FindFiles("set a "+strings.Repeat("x", maxSize/2)+"\n"+strings.Repeat("kernel ${a}\n", maxSize/24), "http://files")
		},
	} {
		if got := testkit.HeapGrowth(find); got > maxGrowth {
			t.Errorf("%s: got a heap that grew by %d MiB, want at most %d", name, got>>20, maxGrowth>>20)
		}
	}
}
