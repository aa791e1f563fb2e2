package script_test

import (
	"strings"
	"testing"

	"github.com/GehirnInc/crypt"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

func TestFunctions(t *testing.T) {
	t.Parallel()
	v := script.NewSample()
	v.Password, v.Host.Nameservers = secret.New(`it's "<&`+"\n"), []string{"192.0.2.53", "2001:db8::53"}
	for source, want := range map[string]string{
		`{{quote .Password}}`:                          `'it'\''s "<&` + "\n'",
		`{{json .Password}}`:                           `"it's \"<&\n"`,
		`{{xml .Password}}`:                            `it&#39;s &#34;&lt;&amp;&#xA;`,
		`{{line .Password}}`:                           `it's "<& `,
		`{{netmask .Host.IPv4.Prefix}}`:                `255.255.255.0`,
		`{{netmask "192.0.2.8/29"}}`:                   `255.255.255.248`,
		`{{netmask .Host.IPv6.Prefix}}`:                `ffff:ffff:ffff:ffff::`,
		`{{join ", " .Host.Nameservers}}`:              `192.0.2.53, 2001:db8::53`,
		`{{value "timezone" .Variables}}`:              `Europe/Berlin`,
		`{{default "none" (value "x" .Variables)}}`:    `none`,
		`{{upper .Host.MAC}} {{lower "A"}}`:            `52:54:00:12:34:56 a`,
		`{{.Host.MAC}} {{.Profile.Name}} {{.Host.IP}}`: `52:54:00:12:34:56 Debian 13 192.0.2.10`,
	} {
		parsed, reason := script.Shell.Parse(source)
		if reason != "" {
			t.Errorf("%s: got the error %s, want none", source, reason)
			continue
		}
		if got, err := parsed.Render(true, v); got != want || err != nil {
			t.Errorf("%s: got %q (%v), want %q", source, got, err, want)
		}
	}
}

func TestCrypt(t *testing.T) {
	t.Parallel()
	parsed, reason := script.Preseed.Parse("{{crypt .Password}} {{quote (crypt .Password)}}")
	if reason != "" {
		t.Fatalf("got the error %s, want none", reason)
	}
	v := script.NewSample()
	got, err := parsed.Render(true, v)
	hash, quoted, _ := strings.Cut(got, " ")
	if err != nil || !strings.HasPrefix(hash, "$6$") || !strings.HasPrefix(quoted, "'$6$") || strings.Contains(quoted, hash) {
		t.Errorf("got %s (%v), want a hash and another one in quotes", got, err)
	}
	if err := crypt.SHA512.New().Verify(hash, []byte(v.Password.Reveal())); err != nil {
		t.Errorf("got %v, want a hash of the password", err)
	}
	if got, err := parsed.Render(false, v); got != "[secret] '[secret]'" || err != nil {
		t.Errorf("got %s (%v) without secrets, want [secret] '[secret]'", got, err)
	}
	v.Password = secret.New(strings.Repeat("x", 1025))
	if _, err := parsed.Render(true, v); err == nil || err.Error() != "line 1, column 3: crypt: a password can have at most 1024 bytes" {
		t.Errorf("got %v, want that a password can have at most 1024 bytes", err)
	}
}

// Errors have a line and a column, also those that occur only for one machine.
func TestErrors(t *testing.T) {
	t.Parallel()
	const tooLong = "line 1, column 1: the template takes too long: loops are nested too deeply, or call slow functions too often"
	for source, want := range map[string]string{
		"x\n{{.Host.Mac}}":                              "line 2, column 8: there is no .Host.Mac",
		"{{.Hosts}}":                                    "line 1, column 3: there is no .Hosts",
		"{{if}}":                                        "line 1, column 1: missing value for if",
		"{{quote .SSHKeys}}":                            "line 1, column 3: quote takes a text",
		"{{join .SSHKeys \" \"}}":                       "line 1, column 3: join takes a text and a list of texts",
		"{{upper .Password}}":                           "line 1, column 3: a secret can be shown, and nothing else",
		"{{if .Password}}{{end}}":                       "line 1, column 6: a secret can be shown, and nothing else",
		"{{$p := .Password}}":                           "line 1, column 3: a secret can be shown, and nothing else",
		"{{$p := quote .Password}}":                     "line 1, column 3: a secret can be shown, and nothing else",
		"{{if eq (quote .Password) \"x\"}}{{end}}":      "line 1, column 6: a secret can be shown, and nothing else",
		"{{range .SSHKeys}}{{crypt $.Password}}{{end}}": tooLong,
		"{{range .SSHKeys}}{{range $.SSHKeys}}{{quote .}}{{end}}{{end}}": tooLong,
		strings.Repeat("{{crypt .Password}}", 26):                        tooLong,
	} {
		if _, reason := script.Preseed.Parse(source); !strings.HasPrefix(reason, want) {
			t.Errorf("%s: got %s, want %s", source, reason, want)
		}
	}
	if _, reason := script.Boot.Parse("{{quote .Password}}"); reason != "line 1, column 3: a secret cannot stand here" {
		t.Errorf("got %q for a secret in a boot script, want an error in line 1, column 3", reason)
	}
	parsed, _ := script.Preseed.Parse("x\nü {{netmask .Host.Disk}}")
	if got, err := parsed.Render(
		true,
		script.NewSample(),
	); got != "" || err == nil ||
		err.Error() != `line 2, column 5: netmask: "/dev/sda" is not a prefix such as 192.0.2.0/24` {
		t.Errorf("got %q (%v), want the error of netmask in line 2, column 5", got, err)
	}
	// A text that grows in a loop is limited.
	parsed, reason := script.Preseed.Parse(`{{$x := "'"}}{{range .SSHKeys}}{{$x = quote $x}}{{end}}{{$x}}`)
	v := script.NewSample()
	v.SSHKeys = make([]string, 100)
	if _, err := parsed.Render(
		true,
		v,
	); reason != "" || err == nil ||
		!strings.Contains(err.Error(), "the arguments of quote have more than 65536 bytes") &&
			!strings.Contains(err.Error(), "the result of quote has more than 65536 bytes") {
		t.Errorf("got %q and %v, want no error before rendering and then more than 65536 bytes", reason, err)
	}
}

// Every template is accepted or refused, and an accepted one can be rendered within its limits.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"{{quote .Password}}", `{{range .Variables}}{{line .Value}}{{end}}`, "{{crypt .Password | quote}}", `{{value "x" .Variables | default "y" | json}}`, "{{netmask .Host.IPv4.Prefix}}{{join \" \" .Host.MACs | xml}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		for _, kind := range []script.Kind{script.Boot, script.Preseed} {
			parsed, reason := kind.Parse(source)
			if reason != "" {
				continue
			}
			if _, err := parsed.Render(
				true,
				script.NewSample(),
			); err != nil && !strings.Contains(err.Error(), "not a prefix") && !strings.Contains(err.Error(), "at most") &&
				!strings.Contains(err.Error(), "more than") {
				t.Errorf("%q: got %v of an accepted template, want none or that of a prefix or a limit", source, err)
			}
		}
	})
}
