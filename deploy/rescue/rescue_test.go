// Package rescue has the system in memory: build.sh builds it, system has its files, and disks its program for disks. Netboot's tests boot
// it.
package rescue

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// ironplane-rescue-import makes an ISO of the system in memory, and replaces the ISO's image the next time. It says why it fails, and shows
// nobody its key.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "xorriso"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed; make netboot-setup installs it")
		}
	}
	p := producttest.NewInstallation(t, testkit.Redis(t), service.Settings{}).Open(t)
	c := producttest.FirstAdmin(t, p)
	folder := t.TempDir()
	run := func(key, file string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "import.sh", file)
		cmd.Env = append(os.Environ(), "API="+c.URL, "KEY="+key)
		output, err := cmd.CombinedOutput()
		if strings.Contains(string(output), key) {
			t.Error("got the key in the output")
		}
		return string(output), err
	}
	iso := func(kernel string) string {
		testkit.Must(t, os.MkdirAll(filepath.Join(folder, "iso"), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "iso", "vmlinuz"), []byte(kernel), 0o600))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, "iso", "initrd"), make([]byte, 65<<20), 0o600)) // two requests of the upload
		cmd := exec.CommandContext(t.Context(), "xorriso", "-as", "mkisofs", "-quiet", "-R", "-o", "rescue.iso", "iso")
		cmd.Dir = folder
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return filepath.Join(folder, "rescue.iso")
	}
	sum := func() string {
		var isos []struct{ Name, Folder, Status, SHA256 string }
		testkit.Must(t, json.Unmarshal([]byte(c.Do("GET", "/pxe/iso", nil).Want(200).Text), &isos))
		if len(isos) != 1 || isos[0].Name != "rescue" || isos[0].Folder != "rescue" || isos[0].Status != "ready" {
			t.Fatalf("got the ISOs %+v, want rescue, and that it is ready", isos)
		}
		return isos[0].SHA256
	}
	if output, err := run(c.Key, iso("kernel 1")); err != nil || !strings.Contains(output, "has the system in memory") {
		t.Fatalf("got %v: %s, want it imported", err, output)
	}
	first := sum()
	if output, err := run(c.Key, iso("kernel 2")); err != nil {
		t.Fatalf("got %v: %s, want it imported", err, output)
	}
	if second := sum(); second == first || second == "" {
		t.Errorf("got the SHA-256 %q after the second import, want another than %q", second, first)
	}
	damaged := filepath.Join(folder, "damaged.iso")
	testkit.Must(t, os.WriteFile(damaged, []byte("no image"), 0o600))
	if output, err := run(c.Key, damaged); err == nil || !strings.Contains(output, "The import failed: ") {
		t.Errorf("got %v: %s, want that the import failed", err, output)
	}
	if output, err := run("ip_0000000000000000000000000000000000000000000000000000", damaged); err == nil {
		t.Errorf("got no error with an unknown key: %s", output)
	}
}
