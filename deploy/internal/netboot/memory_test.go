package netboot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/install"
)

// TestSystemInMemory boots the system in memory with two of the profiles that come with Ironplane. The first writes
// a compressed image and compares its checksum. With a wrong checksum the install fails and leaves no disk that
// boots. The second is a rescue system: root signs in by key and password, finds the disk unchanged, and boots it.
func TestSystemInMemory(t *testing.T) {
	t.Parallel()
	requireTools(t, memoryTools...)
	requireFull(t)
	image := newImage(t)
	for n, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			image.addFiles(t, o.folder)
			shell(t, filepath.Join(o.folder, "files/local/image"), "zstd -q disk.raw")
			o.addMemorySystem()
			key := o.newKey()
			mac := fmt.Sprintf("52:54:00:77:00:%02x", 80+n)
			one := map[string]any{
				"host": map[string]any{
					"macs":     []string{mac},
					"hostname": "web1.example.com",
					"entity":   o.entity(1),
					"disk":     "/dev/vda",
					"firmware": firmware,
				},
				"password": password,
				"ssh_keys": key.public,
			}
			m := o.newMachine(mac, firmware, 1024)

			invalid := strings.Repeat("0", 64)
			failing := o.install(one, o.profile("Disk image"), map[string]string{"image": url + "/local/image/disk.raw.zst", "sha256": invalid})
			m.on()
			failed := o.awaitInstall(failing, "the install has failed", func(i *install.Install) bool { return i.Status == install.Failed })
			if want := "The SHA-256 of what was written is " + image.sum + ", and not " + invalid + "."; *failed.Error != want {
				t.Errorf("got %s, want %s", *failed.Error, want)
			}
			if left := key.run("head -c 1048576 /dev/vda | tr -d '\\0' | wc -c"); left != "0\n" {
				t.Errorf("got %s bytes left at the disk's start, want 0", left)
			}

			written := o.install(
				one,
				o.profile("Disk image"),
				map[string]string{"image": url + "/local/image/disk.raw.zst", "sha256": strings.ToUpper(image.sum)},
			)
			m.reset()
			m.shows("SYSTEM: it runs from its disk", 1)
			o.awaitInstall(written, "the machine is installed", func(i *install.Install) bool { return i.Status == install.Installed })
			m.awaitOff()

			rescued := o.install(one, o.profile("Rescue system"), nil)
			m.on()
			o.awaitInstall(rescued, "the rescue system runs", func(i *install.Install) bool { return i.Status == install.Installed })
			key.password = password
			if sum := key.run(fmt.Sprintf("hostname; head -c %d /dev/vda | sha256sum", diskSize)); sum != "web1\n"+image.sum+"  -\n" {
				t.Errorf("got %s, want web1 and %s", sum, image.sum)
			}
			key.run("(sleep 1; systemctl reboot) > /dev/null 2>&1 &")
			m.shows("SYSTEM: it runs from its disk", 2)
		})
	}
}

// key is an SSH key for root.
type key struct {
	*operator
	public, private string
	password        string // used instead of the key if not empty
}

func (o *operator) newKey() *key {
	o.Helper()
	folder := o.TempDir()
	k := &key{operator: o, private: filepath.Join(folder, "key")}
	shell(o, folder, "ssh-keygen -q -t ed25519 -N '' -f key")
	public, err := os.ReadFile(k.private + ".pub")
	if err != nil {
		o.Fatal(err)
	}
	k.public = string(public)
	return k
}

// run runs a script on the machine web1 by SSH, and returns its output.
func (k *key) run(script string) string {
	k.Helper()
	arguments := []string{
		"netns",
		"exec",
		k.space,
		"ssh",
		"-o",
		"StrictHostKeyChecking=no",
		"-o",
		"UserKnownHostsFile=/dev/null",
		"-o",
		"LogLevel=ERROR",
		"-o",
		"ConnectTimeout=120",
		"-o",
		"ConnectionAttempts=900",
	}
	cmd := exec.CommandContext(k.Context(), "ip")
	if k.password == "" {
		arguments = append(arguments, "-o", "BatchMode=yes", "-i", k.private)
	} else {
		ask := filepath.Join(k.TempDir(), "ask")
		if err := os.WriteFile(ask, []byte("#!/bin/sh\necho '"+k.password+"'\n"), 0o700); err != nil {
			k.Fatal(err)
		}
		cmd.Env = append(os.Environ(), "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force")
		arguments = append(arguments, "-o", "PubkeyAuthentication=no")
	}
	cmd.Args = append(append(cmd.Args, arguments...), "root@"+address(1), script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		k.Fatalf("%s: %v\n%s%s", script, err, output, stderr.String())
	}
	return string(output)
}

// profile returns the id of a profile that comes with Ironplane.
func (o *operator) profile(name string) int64 {
	o.Helper()
	return testkit.Decode[[]struct{ ID int64 }](o.c.Do("GET", "/pxe/profile?name="+strings.ReplaceAll(name, " ", "%20"), nil).Want(200))[0].ID
}
