package pxe_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/install"
	"github.com/ironplane/ironplane/services/pxe/templates"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

var update = flag.Bool("update", false, "write the golden files")

// machines are the machines that the seeds are rendered for.
var machines = map[string]string{
	"bios": `{"hostname": "web1.example.com", "macs": ["52-54-00-12-34-56"], "firmware": "bios", "disk": "/dev/sda", "entity": 101, "nameservers": "192.0.2.53"}`,
	"uefi": `{"hostname": "a-very-long-name.example.com", "macs": ["52:54:00:12:34:57"], "firmware": "uefi", "entity": 102, "nameservers": "192.0.2.53 2001:db8::53"}`,
	"v6":   `{"hostname": "db1.example.com", "macs": ["5254.0012.3458"], "firmware": "uefi", "disk": "/dev/nvme0n1", "entity": 103, "nameservers": "2001:db8::53"}`,
}

// newPreviews returns a client of the service with the IP entities of machines.
func newPreviews(t *testing.T) *testkit.Client {
	t.Helper()
	db := testkit.Database(t, pxe.Name, pxe.Definition.Migrations)
	testkit.Execute(t, db, "INSERT INTO ref (type, id, name, version) VALUES ('client', 5, 'Ben Miller', 1)")
	box, err := pxe.Definition.NewBox(seal.NewMasterKey())
	if err != nil {
		t.Fatal(err)
	}
	known := owners{
		"/internal/machine-address/101": `{"v4": {"first": "192.0.2.10", "mask": 24, "gateway": "192.0.2.1"}}`,
		"/internal/machine-address/102": `{"v4": {"first": "192.0.2.11", "mask": 28, "gateway": "192.0.2.1"}, "v6": {"first": "2001:db8::11", "mask": 64, "gateway": "fe80::1"}}`,
		"/internal/machine-address/103": `{"v6": {"first": "2001:db8::12", "mask": 64, "gateway": "2001:db8::1"}}`,
		"/internal/email/5":             `"ben@example.com"`,
	}
	routes := pxe.New(service.Deps{DB: db, Box: box, Peers: known, Settings: service.Settings{Store: t.TempDir()}}).Routes()
	handler := rest.NewHandler(pxe.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), routes)
	return testkit.NewClient(t, testkit.As(handler, testkit.AdminWith(principal.All)))
}

// The profiles that come with Ironplane render as in the golden files, in valid formats.
func TestSeeds(t *testing.T) {
	t.Parallel()
	c := newPreviews(t)
	profiles := testkit.Decode[[]templates.ListedProfile](c.Do("GET", "/pxe/profile", nil).Want(200))
	if len(profiles) < 10 {
		t.Fatalf("got %d profiles, want at least 10", len(profiles))
	}
	for _, profile := range profiles {
		for name, host := range machines {
			rendered := testkit.Decode[install.Rendering](
				c.Do("POST", fmt.Sprintf("/pxe/profile/%d/render", profile.ID), `{"host": `+host+`,
				"ssh_keys": "`+hostKey+` ben's key\n`+hostKey+` \"anna\"\n", "variables": {"timezone": "Europe/Berlin", "product_key": "AAAAA-<&>", "image": "http://x/it's.gz"}}`).Want(200),
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

// The page about profiles has each of them, and says truly whether it is experimental, which files it needs, and which tests boot
// it. The templates of an experimental profile say so, too.
func TestProfilesPage(t *testing.T) {
	t.Parallel()
	c := newPreviews(t)
	page, err := os.ReadFile("../../docs/do/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \|$`).FindAllStringSubmatch(string(page), -1)[1:] {
		cells := strings.Split(row[1], " | ")
		rows[cells[0]] = cells
	}
	tests := readNetbootTests(t)
	profiles := testkit.Decode[[]templates.ListedProfile](c.Do("GET", "/pxe/profile", nil).Want(200))
	if len(rows) != len(profiles) {
		t.Errorf("got %d rows, want %d", len(rows), len(profiles))
	}
	for _, listed := range profiles {
		profile := testkit.Decode[templates.OSReloadProfile](c.Do("GET", fmt.Sprint("/pxe/profile/", listed.ID), nil).Want(200))
		cells := rows[profile.Name]
		if len(cells) != 6 {
			t.Errorf("%s: got the cells %q, want 6", profile.Name, cells)
			continue
		}
		if want := map[bool]string{true: "yes", false: "no"}[profile.Experimental]; cells[4] != want {
			t.Errorf("%s: got experimental %s, want %s", profile.Name, cells[4], want)
		}
		named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(cells[5], -1)
		if len(named) == 0 && !profile.Experimental {
			t.Errorf("%s: got no test, want one that boots it", profile.Name)
		}
		for _, test := range named {
			if source := tests[test[1]]; !strings.Contains(source, `"`+profile.Name+`"`) {
				t.Errorf("%s: got %s, want the name of a test in a file that boots this profile", profile.Name, test[1])
			}
		}
		wantFilesInCell(t, c, profile, cells[2])
		for kind, ref := range map[string]*rest.Ref{"boot-script": profile.BootScript, "preseed": profile.Preseed} {
			if ref == nil {
				continue
			}
			item := c.Do("GET", fmt.Sprintf("/pxe/%s/%d", kind, ref.ID), nil).Want(200).Text
			if says := strings.Contains(item, `"description":"experimental, `); says != profile.Experimental {
				t.Errorf("%s: got the %s %s, want a description that says experimental: %v", profile.Name, kind, item, profile.Experimental)
			}
		}
	}
}

// readNetbootTests returns the source of the file of each test that boots machines.
func readNetbootTests(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../deploy/internal/netboot/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d files (%v), want some", len(files), err)
	}
	tests := map[string]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`).FindAllStringSubmatch(string(source), -1) {
			tests[test[1]] = string(source)
		}
	}
	return tests
}

// wantFilesInCell tests that a cell names the folder of each file that a profile loads from the file server.
func wantFilesInCell(t *testing.T, c *testkit.Client, profile templates.OSReloadProfile, cell string) {
	t.Helper()
	for _, host := range machines {
		at := fmt.Sprintf("/pxe/profile/%d/render", profile.ID)
		rendered := testkit.Decode[install.Rendering](c.Do("POST", at, `{"host": `+host+`}`).Want(200))
		for _, file := range script.FindFiles(rendered.RenderFiles[0].Text, script.NewSample().URL.Files) {
			folder := strings.TrimSuffix(strings.Split(file, "/")[0], ".iso")
			if folder == "local" {
				folder = strings.Join(strings.Split(file, "/")[:2], "/")
			}
			if !strings.Contains(cell, "`"+folder) {
				t.Errorf("%s: got %s, want the folder %s of %s", profile.Name, cell, folder, file)
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
	c := newPreviews(t)
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
	const body = `{"host": {"hostname": "web1.example.com", "macs": ["52:54:00:12:34:5A"], "entity": 103}, "ssh_keys": "` + hostKey + `", "client": 5`
	rendered := testkit.Decode[install.Rendering](c.Do("POST", at, body+"}").Want(200))
	var got []string
	for _, f := range rendered.RenderFiles {
		got = append(got, fmt.Sprintf("%s %s %q %s", f.Kind, f.Name, f.Text, f.Error))
	}
	want := []string{
		`boot_script boot "#!ipxe\n# 52:54:00:12:34:5a mine\nchain http://boot.fra1.example.net/i/[secret]/preseed\n" `,
		`preseed seed "" line 2, column 4: netmask: "" is not a prefix such as 192.0.2.0/24`,
		`shell_during first "'[secret]' ben@example.com" `,
		`shell_after second "[` + hostKey + `]" `,
		`shell_after first "'[secret]' ben@example.com" `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	earlier := testkit.JSON(rendered.RenderFiles)
	same := testkit.Decode[install.Rendering](
		c.Do("POST", at, strings.Replace(body, ":5A", ":5B", 1)+`, "earlier": `+earlier+"}").Want(200),
	)
	if same.RenderFiles[0].Difference != "--- earlier\n+++ now\n@@ -1,3 +1,3 @@\n #!ipxe\n-# 52:54:00:12:34:5a mine\n+# 52:54:00:12:34:5b "+
		"mine\n chain http://boot.fra1.example.net/i/[secret]/preseed\n" ||
		same.RenderFiles[2].Difference != "" {
		t.Errorf("got the differences %q and %q, want the MAC address and none", same.RenderFiles[0].Difference, same.RenderFiles[2].Difference)
	}

	// Drafts are rendered instead of the stored templates, and as if the profile had them.
	drafts := fmt.Sprintf(`, "drafts": [{"kind": "shell_script", "id": %d, "body": "{{.Client.Name}}"}, {"kind": "preseed", "id": %d, "body": "{{.Nothing}}"}]`,
		first, preseed)
	drafted := testkit.Decode[install.Rendering](c.Do("POST", at, body+drafts+"}").Want(200)).RenderFiles
	if drafted[2].Text != "Ben Miller" || drafted[4].Text != "Ben Miller" || drafted[3].Text != rendered.RenderFiles[3].Text {
		t.Errorf("got the scripts %q, %q and %q, want the draft of the first script alone", drafted[2].Text, drafted[3].Text, drafted[4].Text)
	}
	if !strings.HasPrefix(drafted[1].Error, "line 1, column 3: ") {
		t.Errorf("got the error %q for a draft with an unknown variable, want its line and column", drafted[1].Error)
	}
	other := createItem(t, c, "/pxe/shell", `{"name": "other", "body": "stored"}`)
	added := testkit.Decode[install.Rendering](
		c.Do("POST", at, body+fmt.Sprintf(`, "drafts": [{"kind": "shell_script", "id": %d, "body": "last"}]}`, other)).Want(200),
	).RenderFiles
	if last := added[len(added)-1]; len(added) != len(rendered.RenderFiles)+1 || last.Name != "other" || last.Text != "last" {
		t.Errorf("got %d files, the last %+v, want one more file with the draft of another script", len(added), last)
	}
	c.Do("POST", at, `{"drafts": [{"kind": "boot_script", "id": 999, "body": ""}]}`).WantErrors("/drafts/0/id", "not_found")

	c.Do("POST", at, `{"profile": 999, "host": {"macs": ["x"], "entity": 9, "nameservers": "x", "disk": "sda", "firmware": "none"}}`).
		WantErrors(
			"/host/disk", "invalid", "/host/entity", "not_found", "/host/firmware", "invalid", "/host/macs", "invalid",
			"/host/nameservers", "invalid", "/profile", "disagrees",
		)
	c.Do("POST", "/pxe/profile/999/render", body+"}").Want(404)
}
