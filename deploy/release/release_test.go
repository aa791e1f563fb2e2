package main

import (
	"archive/zip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// need skips a test on a machine without a program.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed; Debian's packages gnupg, apt and dpkg have what this test needs", name)
		}
	}
}

// mustRun runs a program that must succeed.
func mustRun(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if printed, err := command(t, name, arguments...); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, arguments, err, printed)
	}
}

func command(t *testing.T, name string, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	printed, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput()
	return string(printed), err
}

// newKey makes a key without a passphrase in a GnuPG of the test alone.
func newKey(t *testing.T, address string) signer {
	t.Helper()
	home, err := os.MkdirTemp("", "gnupg-") // t.TempDir is too long for the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", home)
	t.Cleanup(func() {
		_, _ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").CombinedOutput()
		_ = os.RemoveAll(home)
	})
	mustRun(t, "gpg", "--batch", "--passphrase", "", "--quick-generate-key", address, "ed25519", "sign", "never")
	s, err := newSigner(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// buildDeb builds a package with one file.
func buildDeb(t *testing.T, name, architecture, compression string) string {
	t.Helper()
	tree, file := t.TempDir(), filepath.Join(t.TempDir(), name+".deb")
	control := "Package: " + name + "\nVersion: 1.2.0\nArchitecture: " + architecture +
		"\nMaintainer: Ironplane <a@example.com>\nDescription: short\n long\n .\n longer\n"
	for path, content := range map[string]string{"DEBIAN/control": control, "usr/share/" + name: "content"} {
		if err := writeFile(filepath.Join(tree, path), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "dpkg-deb", "--root-owner-group", "-Z"+compression, "--build", tree, file)
	return file
}

// testParts returns the parts of a release: real packages, and this test's own program.
func testParts(t *testing.T) parts {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := writeFile(path, []byte(name)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	programs := []program{{"linux", "amd64", own}, {"windows", "arm64", own}}
	return parts{
		packages: []string{
			buildDeb(t, "ironplane", "amd64", "zstd"), buildDeb(t, "ironplane-rescue", "all", "gzip"), file("ironplane-1.2.0-1.x86_64.rpm"),
		},
		programs:  programs,
		providers: programs,
		contents:  []string{file("ironplane.cdx.json")},
		notes:     "See [install](docs/operate/install.md#apt) and [the site](https://example.com/x).\n",
	}
}

var testSource = source{"1.2.0", time.Unix(1_700_000_000, 0)}

// makeRelease makes a release in a new folder.
func makeRelease(t *testing.T, p parts, s signer) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "release")
	if err := assemble(t.Context(), testSource, p, s, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// contentsOf returns the files of a folder by name.
func contentsOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, folder+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A release has all files, the same bytes each time except for signatures, and signatures that GnuPG accepts.
func TestRelease(t *testing.T) {
	need(t, "gpg", "dpkg-deb", "sha256sum")
	sign, p := newKey(t, "releases@example.com"), testParts(t)
	out := makeRelease(t, p, sign)
	first, second := contentsOf(t, out), contentsOf(t, makeRelease(t, p, sign))
	var names []string
	for name, content := range first {
		names = append(names, name)
		if !isSignature(name) && second[name] != content {
			t.Errorf("%s: got other bytes in the second run, want the same", name)
		}
	}
	slices.Sort(names)
	const provider = "terraform/terraform-provider-ironplane_1.2.0_"
	want := []string{
		"SHA256SUMS", "SHA256SUMS.asc",
		"apt/dists/stable/InRelease", "apt/dists/stable/Release", "apt/dists/stable/Release.gpg",
		"apt/dists/stable/main/binary-amd64/Packages", "apt/dists/stable/main/binary-amd64/Packages.gz", "apt/ironplane.asc",
		"apt/pool/main/i/ironplane-rescue/ironplane-rescue_1.2.0_all.deb", "apt/pool/main/i/ironplane/ironplane_1.2.0_amd64.deb",
		"ironplane-1.2.0-1.x86_64.rpm", "ironplane_1.2.0_linux_amd64", "ironplane_1.2.0_windows_arm64.exe", "notes.md", "sbom/ironplane.cdx.json",
		provider + "SHA256SUMS", provider + "SHA256SUMS.sig", provider + "linux_amd64.zip",
		provider + "manifest.json", provider + "windows_arm64.zip",
	}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("got the files\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	for signature, signed := range map[string]string{
		"SHA256SUMS.asc": "SHA256SUMS", provider + "SHA256SUMS.sig": provider + "SHA256SUMS",
		"apt/dists/stable/Release.gpg": "apt/dists/stable/Release",
	} {
		mustRun(t, "gpg", "--batch", "--verify", filepath.Join(out, signature), filepath.Join(out, signed))
	}
	mustRun(t, "gpg", "--batch", "--verify", filepath.Join(out, "apt/dists/stable/InRelease"))
	mustRun(t, "sh", "-c", `cd "$1" && sha256sum --strict --check SHA256SUMS && cd terraform && sha256sum --strict --check *_SHA256SUMS`, "sh", out)
	if lines := strings.Count(first["SHA256SUMS"], "\n"); lines != 14 {
		t.Errorf("got %d checksums, want one for each of 14 files without signatures:\n%s", lines, first["SHA256SUMS"])
	}
	const link = "[install](" + repositoryURL + "v1.2.0/docs/operate/install.md#apt) and [the site](https://example.com/x)"
	if notes := first["notes.md"]; !strings.Contains(notes, link) || !strings.Contains(notes, "gpg --verify SHA256SUMS.asc") {
		t.Errorf("got the notes\n%s\nwant %s and how to verify", notes, link)
	}
	archive, err := zip.OpenReader(filepath.Join(out, provider+"windows_arm64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if len(archive.File) != 1 || archive.File[0].Name != "terraform-provider-ironplane_v1.2.0.exe" || archive.File[0].Mode().Perm() != 0o755 {
		t.Errorf("got the archive %v, want one program for Windows", archive.File)
	}
}

// apt runs apt-get with folders of the test alone.
type apt struct {
	t    *testing.T
	root string
}

// newApt returns an apt that trusts one key for one repository.
func newApt(t *testing.T, address, key string) *apt {
	t.Helper()
	a := &apt{t, t.TempDir()}
	for _, folder := range []string{"lists/partial", "cache/archives/partial", "parts", "downloads"} {
		if err := os.MkdirAll(filepath.Join(a.root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	trusted := filepath.Join(a.root, "ironplane.asc")
	sources := "Types: deb\nURIs: " + address + "\nSuites: stable\nComponents: main\nArchitectures: amd64\nSigned-By: " + trusted + "\n"
	config := fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::lists "%[1]s/lists"; Dir::State::status "%[1]s/status"; Dir::Cache "%[1]s/cache";
Dir::Etc "%[1]s"; Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "%[1]s/sources"; Dir::Etc::trusted "/dev/null"; Dir::Etc::trustedparts "%[1]s/parts";
Dir::Etc::parts "%[1]s/parts"; Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "%[1]s/parts"; APT::Architecture "amd64"; APT::Sandbox::User "";
Acquire::http::Proxy "DIRECT"; Acquire::Languages "none"; Acquire::Retries "0"; APT::Update::Error-Mode "any";`+"\n", a.root)
	for name, content := range map[string]string{
		"sources/ironplane.sources": sources, "ironplane.asc": key, "status": "", "apt.conf": config,
	} {
		if err := writeFile(filepath.Join(a.root, name), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *apt) get(arguments ...string) (string, error) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-get", arguments...)
	cmd.Dir, cmd.Env = filepath.Join(a.root, "downloads"), append(os.Environ(), "APT_CONFIG="+filepath.Join(a.root, "apt.conf"), "LC_ALL=C")
	printed, err := cmd.CombinedOutput()
	return string(printed), err
}

// apt-get reads the repository and downloads a package. It refuses changed packages and indexes, and other keys.
func TestAptRepository(t *testing.T) {
	need(t, "gpg", "dpkg-deb", "apt-get")
	sign, p := newKey(t, "releases@example.com"), testParts(t)
	out := makeRelease(t, p, sign)
	key := contentsOf(t, out)["apt/ironplane.asc"]
	server := httptest.NewServer(http.FileServer(http.Dir(out)))
	t.Cleanup(server.Close)
	address := server.URL + "/apt/"

	a := newApt(t, address, key)
	if printed, err := a.get("update"); err != nil {
		t.Fatalf("apt-get update: %v\n%s", err, printed)
	}
	if printed, err := a.get("download", "ironplane", "ironplane-rescue"); err != nil {
		t.Fatalf("apt-get download: %v\n%s", err, printed)
	}
	built, err := os.ReadFile(p.packages[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := contentsOf(t, filepath.Join(a.root, "downloads")); len(got) != 2 || got["ironplane_1.2.0_amd64.deb"] != string(built) {
		t.Errorf("got %d packages, want the two that were built", len(got))
	}

	change(t, filepath.Join(out, "apt/pool/main/i/ironplane/ironplane_1.2.0_amd64.deb"))
	other := newApt(t, address, key)
	if printed, err := other.get("update"); err != nil {
		t.Fatalf("apt-get update: %v\n%s", err, printed)
	}
	if printed, err := other.get("download", "ironplane"); err == nil || !strings.Contains(printed, "Hash Sum mismatch") {
		t.Errorf("a changed package: got %v and\n%s\nwant it refused", err, printed)
	}
	if printed, err := command(t, "sh", "-c", `cd "$1" && sha256sum --check --quiet SHA256SUMS`, "sh", out); err == nil {
		t.Errorf("a changed package: got the checksums accepted, want them refused\n%s", printed)
	}
	otherKey, err := newKey(t, "other@example.com").public(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if printed, err := newApt(t, address, string(otherKey)).get("update"); err == nil || !strings.Contains(printed, "is not signed") {
		t.Errorf("another key: got %v and\n%s\nwant the repository refused", err, printed)
	}
	change(t, filepath.Join(out, "apt/dists/stable/InRelease"))
	if printed, err := newApt(t, address, key).get("update"); err == nil || !strings.Contains(printed, "signature") {
		t.Errorf("a changed index: got %v and\n%s\nwant it refused", err, printed)
	}
}

// change changes a byte in the middle of a file.
func change(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/3] ^= 1
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Without a key, or with one that GnuPG lacks, nothing is released.
func TestReleaseNeedsAKey(t *testing.T) {
	need(t, "gpg")
	newKey(t, "releases@example.com")
	for key, want := range map[string]string{"": "make release KEY=", "missing@example.com": "find the secret key missing@example.com"} {
		if err := run(t.Context(), key, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", key, err, want)
		}
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 1.2.0 (2027-01-02)\n\n### For operators\n\n- one\n\n" +
		"## 1.1.0\n\n- old\n\n## 1.0.0\n\n## 0.9.0\n"
	if got, err := extractNotes(changelog, "1.2.0"); err != nil || got != "### For operators\n\n- one\n" {
		t.Errorf("got %q and %v, want the section of 1.2.0", got, err)
	}
	for _, version := range []string{"1.2", "1.0.0", "2.0.0"} {
		if got, err := extractNotes(changelog, version); err == nil {
			t.Errorf("%s: got %q, want an error", version, got)
		}
	}
}

func TestMalformedPackages(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.deb")
	for content, want := range map[string]string{
		"":          "no package of Debian",
		"!<arch>\n": "no control.tar",
		"!<arch>\n" + arHeader("control.tar.xz", "4") + "abcd": "unknown compression",
		"!<arch>\n" + arHeader("debian-binary", "-4"):          "malformed",
		"!<arch>\n" + arHeader("debian-binary", "999"):         "cut off",
		"!<arch>\n" + arHeader("control.tar", "4") + "abcd":    "find the file control",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readDeb(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", content, err, want)
		}
	}
}

// arHeader returns the header of a member of an archive.
func arHeader(name, size string) string {
	return fmt.Sprintf("%-16s%-12s%-6s%-6s%-8s%-10s`\n", name, "0", "0", "0", "100644", size)
}
