package pxe_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/templates"
)

var update = flag.Bool("update", false, "write the golden files")

// machines are the machines that the seeds are rendered for.
var machines = map[string]string{
	"bios": `{"hostname": "web1.example.com", "mac": "52-54-00-12-34-56", "firmware": "bios", "disk": "/dev/sda", "ipv4": {"address": "192.0.2.10/24", "gateway": "192.0.2.1"}, "nameservers": "192.0.2.53"}`,
	"uefi": `{"hostname": "a-very-long-name.example.com", "mac": "52:54:00:12:34:57", "firmware": "uefi", "ipv4": {"address": "192.0.2.11/28", "gateway": "192.0.2.1"}, "ipv6": {"address": "2001:db8::11/64", "gateway": "fe80::1"}, "nameservers": "192.0.2.53 2001:db8::53"}`,
	"v6":   `{"hostname": "db1.example.com", "mac": "5254.0012.3458", "firmware": "uefi", "disk": "/dev/nvme0n1", "ipv6": {"address": "2001:db8::12/64", "gateway": "2001:db8::1"}, "nameservers": "2001:db8::53"}`,
}

// The profiles that come with Ironplane render as in the golden files, in valid formats.
func TestSeeds(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)
	profiles := testkit.Decode[[]templates.ListedProfile](c.Do("GET", "/pxe/profile", nil).Want(200))
	if len(profiles) < 10 {
		t.Fatalf("got %d profiles, want at least 10", len(profiles))
	}
	for _, profile := range profiles {
		for name, host := range machines {
			rendered := testkit.Decode[templates.Rendering](
				c.Do("POST", fmt.Sprintf("/pxe/profile/%d/render", profile.ID), `{"host": `+host+`, "files": "http://files.fra1.example.net/",
				"ssh_keys": "`+hostKey+` ben's key\nssh-ed25519 AAAA \"anna\"\n", "variables": {"timezone": "Europe/Berlin", "product_key": "AAAAA-<&>", "image": "http://x/it's.gz"}}`).Want(200),
			)
			var all strings.Builder
			for _, f := range rendered.RenderFiles {
				if f.Error != "" {
					t.Errorf("%s for %s: got the error %s, want none", f.Name, name, f.Error)
				}
				fmt.Fprintf(&all, "==> %s: %s <==\n%s", f.Kind, f.Name, f.Text)
				if err := wellFormed(t, f.Text); err != nil {
					t.Errorf("%s for %s: got %v, want no error\n%s", f.Name, name, err, f.Text)
				}
			}
			path := filepath.Join("testdata", strings.ReplaceAll(strings.ToLower(profile.Name), " ", "-")+"."+name)
			if *update {
				if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if all.String() != string(golden) {
				t.Errorf("%s: got\n%s\nwant\n%s", path, all.String(), golden)
			}
		}
	}
}

// wellFormed checks a text whose first line names a known format.
func wellFormed(t *testing.T, text string) error {
	first, _, _ := strings.Cut(text, "\n")
	switch {
	case strings.HasPrefix(first, "<?xml"):
		for in := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := in.Token(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	case first == "#cloud-config":
		var into struct {
			Autoinstall struct {
				Version int
				Network struct{ Version int }
				Storage struct{ Layout struct{ Name string } }
				Late    [][]string `yaml:"late-commands"`
				User    struct {
					Users []struct {
						Name string
						Keys []string `yaml:"ssh_authorized_keys"`
					}
				} `yaml:"user-data"`
			}
		}
		err := yaml.Unmarshal([]byte(text), &into)
		if a := into.Autoinstall; err == nil &&
			(a.Version != 1 || a.Network.Version != 2 || a.Storage.Layout.Name != "direct" || len(a.User.Users) != 1 || len(
				a.User.Users[0].Keys,
			) != 2 || len(a.Late) != 3) {
			err = fmt.Errorf("unexpected autoinstall %+v", a)
		}
		return err
	case first == "#!/bin/bash":
		check := osexec.CommandContext(t.Context(), "bash", "-n")
		check.Stdin = strings.NewReader(text)
		if output, err := check.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %s", err, output)
		}
	case first == "#_preseed_V1":
		check, err := osexec.LookPath("debconf-set-selections")
		if err != nil {
			t.Log("there is no debconf-set-selections")
			return nil
		}
		run := osexec.CommandContext(t.Context(), check, "-c")
		run.Stdin = strings.NewReader(text)
		if output, err := run.CombinedOutput(); err != nil || len(output) > 0 {
			return fmt.Errorf("%v: %s", err, output)
		}
	}
	return nil
}

// A preview reports the errors of templates for this machine, and the difference to an earlier one.
func TestRender(t *testing.T) {
	t.Parallel()
	c, _, _ := newClient(t)
	boot := createItem(
		t,
		c,
		"/pxe/boot-script",
		`{"name": "boot", "body": "#!ipxe\n# {{.Host.MAC}} {{.Profile.Name}}\nchain {{.URL.Preseed}}\n"}`,
	)
	preseed := createItem(t, c, "/pxe/preseed", `{"name": "seed", "body": "x\n {{netmask .Host.IPv4.Prefix}}"}`)
	first, second := createItem(
		t,
		c,
		"/pxe/shell",
		`{"name": "first", "body": "{{quote .Password}} {{.Client.Email}}"}`,
	), createItem(
		t,
		c,
		"/pxe/shell",
		`{"name": "second", "body": "{{range .SSHKeys}}[{{.}}]{{end}}"}`,
	)
	profile := createItem(
		t,
		c,
		"/pxe/profile",
		fmt.Sprintf(
			`{"name": "mine", "boot_script": %d, "preseed": %d, "shell": {"after": [%d, %d], "during": [%[4]d]}}`,
			boot,
			preseed,
			second,
			first,
		),
	)
	at := fmt.Sprintf("/pxe/profile/%d/render", profile)
	const body = `{"host": {"hostname": "web1.example.com", "mac": "52:54:00:12:34:5A"}, "ssh_keys": "one\n\ntwo", "client": {"email": "ben@example.com"}`
	rendered := testkit.Decode[templates.Rendering](c.Do("POST", at, body+"}").Want(200))
	var got []string
	for _, f := range rendered.RenderFiles {
		got = append(got, fmt.Sprintf("%s %s %q %s", f.Kind, f.Name, f.Text, f.Error))
	}
	want := []string{
		`boot_script boot "#!ipxe\n# 52:54:00:12:34:5a mine\nchain http://boot.fra1.example.net/i/[secret]/preseed\n" `,
		`preseed seed "" line 2, column 4: netmask: "" is not a prefix such as 192.0.2.0/24`,
		`shell_during first "'[secret]' ben@example.com" `,
		`shell_after second "[one][two]" `,
		`shell_after first "'[secret]' ben@example.com" `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	earlier := testkit.JSON(rendered.RenderFiles)
	same := testkit.Decode[templates.Rendering](
		c.Do("POST", at, strings.Replace(body, ":5A", ":5B", 1)+`, "earlier": `+earlier+"}").Want(200),
	)
	if same.RenderFiles[0].Difference != "--- earlier\n+++ now\n@@ -1,3 +1,3 @@\n #!ipxe\n-# 52:54:00:12:34:5a mine\n+# 52:54:00:12:34:5b "+
		"mine\n chain http://boot.fra1.example.net/i/[secret]/preseed\n" ||
		same.RenderFiles[2].Difference != "" {
		t.Errorf("got the differences %q and %q, want the MAC address and none", same.RenderFiles[0].Difference, same.RenderFiles[2].Difference)
	}
	c.Do("POST", at, `{"host": {"mac": "x", "ipv4": {"address": "2001:db8::1/64"}, "ipv6": {"gateway": "fe80::1"}, "nameservers": "x", "disk": "sda", "firmware": "none"}}`).
		WantErrors(
			"/host/disk", "invalid", "/host/firmware", "invalid", "/host/hostname", "required", "/host/ipv4/address", "invalid",
			"/host/ipv6/gateway", "invalid", "/host/mac", "invalid", "/host/nameservers", "invalid",
		)
	c.Do("POST", "/pxe/profile/999/render", body+"}").Want(404)
}
