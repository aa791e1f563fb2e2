package agent_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
)

// sshUser is a person with an SSH key in a file.
type sshUser struct {
	file   string
	signer ssh.Signer
}

func newSSHUser(t *testing.T) sshUser {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	testkit.Must(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	testkit.Must(t, err)
	p := sshUser{file: filepath.Join(t.TempDir(), "key")}
	testkit.Must(t, os.WriteFile(p.file, pem.EncodeToMemory(block), 0o600))
	p.signer, err = ssh.NewSignerFromKey(key)
	testkit.Must(t, err)
	return p
}

// serveSFTP starts SFTP for these users, and for the API key and tokens.
func (r *testAgent) serveSFTP(people ...sshUser) *siteagent.SFTPEndpoint {
	r.Helper()
	key, err := agent.LoadOrCreateHostKey(filepath.Join(r.folder, "ssh-host-key"))
	testkit.Must(r.T, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(r.T, err)
	keys := "# those who bring files\n\n"
	for _, one := range people {
		keys += string(ssh.MarshalAuthorizedKey(one.signer.PublicKey()))
	}
	file := filepath.Join(r.TempDir(), "keys")
	testkit.Must(r.T, os.WriteFile(file, []byte(keys), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := r.agent.ServeSFTP(ctx, listener, agent.SFTPConfig{HostKey: key, AuthorizedKeys: file}); err != nil {
			r.Error(err)
		}
	})
	stop := r.stop
	r.stop = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
		stop()
	})
	r.Cleanup(r.stop)
	return &siteagent.SFTPEndpoint{Address: listener.Addr().String(), HostKey: string(ssh.MarshalAuthorizedKey(key.PublicKey()))}
}

// dialSFTP connects with this authentication.
func (r *testAgent) dialSFTP(endpoint *siteagent.SFTPEndpoint, auth ssh.AuthMethod) (*sftp.Client, *ssh.Client, error) {
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(endpoint.HostKey))
	testkit.Must(r.T, err)
	sshConn, err := ssh.Dial(
		"tcp",
		endpoint.Address,
		&ssh.ClientConfig{User: "files", Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.FixedHostKey(host), Timeout: 5 * time.Minute},
	)
	if err != nil {
		return nil, nil, err
	}
	r.Cleanup(func() { _ = sshConn.Close() })
	c, err := sftp.NewClient(sshConn)
	return c, sshConn, err
}

func sendFile(c *sftp.Client, path, content string) error {
	f, err := c.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, strings.NewReader(content))
	return errors.Join(err, f.Close())
}

func receiveFile(c *sftp.Client, path string) (string, error) {
	f, err := c.Open(path)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(f)
	return string(content), errors.Join(err, f.Close())
}

// People upload to the folder local with their keys. A token may read. The API key may also write parts.
func TestSFTP(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	folder := filepath.Join(outer, "agent")
	testkit.Must(t, os.Mkdir(folder, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o644))
	r := start(t, folder)
	user, unknown := newSSHUser(t), newSSHUser(t)
	endpoint := r.serveSFTP(user)
	r.put("boot/vmlinuz", "kernel")
	r.put("local/a/b", "by HTTP")
	testkit.Must(t, os.Symlink("../../../secret", filepath.Join(folder, "files/local/link")))
	testkit.Must(t, os.Symlink("../../..", filepath.Join(folder, "files/local/up")))

	for name, auth := range map[string]ssh.AuthMethod{
		"an unknown key": ssh.PublicKeys(unknown.signer), "an invalid API key": ssh.Password(key + "x"), "no password": ssh.Password(""),
		"an unknown token": ssh.Password("token"),
	} {
		if _, _, err := r.dialSFTP(endpoint, auth); err == nil {
			t.Errorf("%s: got a connection, want a refusal", name)
		}
	}
	userClient, _, err := r.dialSFTP(endpoint, ssh.PublicKeys(user.signer))
	testkit.Must(t, err)
	big := strings.Repeat("0123456789", 300_000)
	testkit.Must(t, sendFile(userClient, "/files/local/big", big))
	testkit.Must(t, sendFile(userClient, "/files/local/empty", ""))
	testkit.Must(t, userClient.Mkdir("/files/local/folder"))
	testkit.Must(t, userClient.Rename("/files/local/empty", "/files/local/folder/empty"))
	testkit.Must(t, userClient.PosixRename("/files/local/folder/empty", "/files/local/a/b"))
	testkit.Must(t, userClient.RemoveDirectory("/files/local/folder"))
	want := map[string]string{"boot/vmlinuz": "kernel", "local/big": big, "local/a/b": ""}
	testkit.Must(t, os.Remove(filepath.Join(folder, "files/local/link")))
	testkit.Must(t, os.Remove(filepath.Join(folder, "files/local/up")))
	r.wantTree(want)
	testkit.Must(t, os.Symlink("../../../secret", filepath.Join(folder, "files/local/link")))
	testkit.Must(t, os.Symlink("../../..", filepath.Join(folder, "files/local/up")))
	if got, err := receiveFile(userClient, "/files/boot/vmlinuz"); err != nil || got != "kernel" {
		t.Errorf("got %q (%v), want kernel", got, err)
	}
	all, err := r.client.GetManifest(t.Context())
	if err != nil || len(all) != 3 || all[2] != newFile("local/big", big) {
		t.Errorf("got the files %v (%v), want 3 with local/big as the last", all, err)
	}

	token := r.grant()
	tokenClient, _, err := r.dialSFTP(endpoint, ssh.Password(token))
	testkit.Must(t, err)
	keyClient, _, err := r.dialSFTP(endpoint, ssh.Password(key))
	testkit.Must(t, err)
	if got, err := receiveFile(tokenClient, "/files/local/big"); err != nil || got != big {
		t.Errorf("got %d bytes (%v), want the %d bytes of local/big", len(got), err, len(big))
	}
	part := "/parts/" + newFile("", "content").SHA256
	for name, c := range map[string]*sftp.Client{"a person": userClient, "a token": tokenClient} {
		for _, path := range []string{
			part, "/files/boot/x", "/files/x", "/files/local", "/key", "/files/../key", "/files/local/../x", "/files/local/up/x", "/../secret",
			"x", "/files/local/a\nb", "/files/local/none/x", "/files/local/" + strings.Repeat("a", 300),
		} {
			if err := sendFile(c, path, "planted"); err == nil {
				t.Errorf("%s: got no error for writing %q, want one", name, path)
			}
		}
		for _, path := range []string{
			"/secret", "/files/local/link", "/files/local/up/secret", "/files/../../secret", "/certificate", "/files/../certificate",
			"/said/history", part, "/parts", "/files",
		} {
			if got, err := receiveFile(c, path); err == nil {
				t.Errorf("%s: got %q from %q, want an error", name, got, path)
			}
		}
		for path, err := range map[string]error{"/": c.Mkdir("/x"), "boot": c.Remove("/files/boot/vmlinuz"),
			"rename": c.Rename("/files/local/big", "/files/big"), "in": c.Rename("/files/boot/vmlinuz", "/files/local/x"),
			"over": c.Rename("/files/local/big", "/files/local/a/b"), "link": c.Symlink("/files/boot/vmlinuz", "/files/local/l"),
			"hard": c.Link("/files/boot/vmlinuz", "/files/local/l"), "full": c.RemoveDirectory("/files/local/a")} {
			if err == nil {
				t.Errorf("%s: got no error for the change %s, want one", name, path)
			}
		}
		for path, names := range map[string]string{"/": "files", "/files": "boot local", "/files/local": "a big"} {
			found, err := c.ReadDir(path)
			var got []string
			for _, one := range found {
				got = append(got, one.Name())
			}
			if err != nil || strings.Join(got, " ") != names {
				t.Errorf("%s: got %v (%v) in %s, want %s", name, got, err, path, names)
			}
		}
	}
	if err := sendFile(tokenClient, "/files/local/x", "x"); err == nil {
		t.Error("got no error for writing with a token, want one")
	}
	if err := userClient.Remove("/files/local/big"); err != nil {
		t.Error(err)
	}

	testkit.Must(t, sendFile(keyClient, part, "con"))
	if n, err := r.client.GetReceived(t.Context(), newFile("", "content").SHA256); err != nil || n != 3 {
		t.Errorf("got %d bytes received (%v), want 3", n, err)
	}
	if left, err := os.ReadDir(outer); err != nil || len(left) != 2 {
		t.Errorf("got %v (%v) in the outer folder, want 2 entries", left, err)
	}
	if content, err := os.ReadFile(filepath.Join(outer, "secret")); err != nil || string(content) != "secret" {
		t.Errorf("got the content %q (%v), want secret", content, err)
	}
}

// An upload that breaks off or has gaps creates no file.
func TestSFTPIsCutOff(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	user := newSSHUser(t)
	endpoint := r.serveSFTP(user)
	c, sshConn, err := r.dialSFTP(endpoint, ssh.PublicKeys(user.signer))
	testkit.Must(t, err)
	gaps, err := c.OpenFile("/files/local/gaps", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	testkit.Must(t, err)
	_, err = gaps.WriteAt([]byte("behind"), 10)
	testkit.Must(t, err)
	if err := gaps.Close(); err == nil {
		t.Error("got no error for a file with a gap, want one")
	}
	mixed, err := c.OpenFile("/files/local/mixed", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	testkit.Must(t, err)
	for _, at := range []int64{6, 3, 0} {
		_, err = mixed.WriteAt([]byte("abcdefghi")[at:at+3], at)
		testkit.Must(t, err)
	}
	testkit.Must(t, mixed.Close())
	half, err := c.OpenFile("/files/local/half", os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	testkit.Must(t, err)
	_, err = half.Write([]byte("half of it"))
	testkit.Must(t, err)
	testkit.Must(t, sshConn.Close())
	r.stop() // waits for all connections
	r.wantTree(map[string]string{"local/mixed": "abcdefghi"})
	if parts, err := os.ReadDir(filepath.Join(r.folder, "parts")); err != nil || len(parts) > 0 {
		t.Errorf("got the parts %v (%v), want none", parts, err)
	}
}

// A child transfers files by SFTP if the order says so, but not from a host with another key.
func TestPullBySFTP(t *testing.T) {
	t.Parallel()
	parent, child := start(t, t.TempDir()), start(t, t.TempDir())
	want := mixedFiles(40)
	want["big"] = strings.Repeat("0123456789", 500_000)
	for path, content := range want {
		parent.put(path, content)
	}
	counted := newProxy(t, parent)
	from := counted.target()
	other := newSSHUser(t)
	endpoint := parent.serveSFTP()
	from.SFTP = &siteagent.SFTPEndpoint{Address: endpoint.Address, HostKey: string(ssh.MarshalAuthorizedKey(other.signer.PublicKey()))}
	if pull := child.runPull(from); pull.State != siteagent.PullFailed || !strings.Contains(pull.Error, siteagent.ErrHostKey.Error()) {
		t.Errorf("got %+v, want it failed with %v", pull, siteagent.ErrHostKey)
	}
	child.wantTree(map[string]string{})
	from.SFTP = endpoint
	if pull := child.runPull(from); pull.State != siteagent.PullDone || pull.Bytes != pull.BytesTotal || counted.files.Load() != 0 {
		t.Errorf("got %+v and %d requests for files by HTTP, want it done without", pull, counted.files.Load())
	}
	child.wantTree(want)
	if status, text := child.request(
		"POST",
		"/v1/pull",
		key,
		strings.NewReader(`{"id": "x", "parent": {"url": "https://x", "sftp": {"address": "x"}}}`),
	); status != 422 {
		t.Errorf("got %d %s, want 422", status, text)
	}
}

// OpenSSH's client uploads, lists and downloads files.
func TestOpenSSH(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("sftp")
	if err != nil {
		t.Skip("sftp is not installed; Debian's package openssh-client has it")
	}
	r := start(t, t.TempDir())
	user := newSSHUser(t)
	endpoint := r.serveSFTP(user)
	host, port, err := net.SplitHostPort(endpoint.Address)
	testkit.Must(t, err)
	folder := t.TempDir()
	known := filepath.Join(folder, "known_hosts")
	testkit.Must(t, os.WriteFile(known, fmt.Appendf(nil, "[%s]:%s %s", host, port, endpoint.HostKey), 0o600))
	content := bytes.Repeat([]byte("0123456789"), 200_000)
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "image"), content, 0o644))
	run := func(batch string) (string, error) {
		cmd := exec.Command(
			program,
			"-b",
			"-",
			"-P",
			port,
			"-i",
			user.file,
			"-o",
			"UserKnownHostsFile="+known,
			"-o",
			"StrictHostKeyChecking=yes",
			"-o",
			"IdentitiesOnly=yes",
			"files@"+host,
		)
		cmd.Dir, cmd.Stdin = folder, strings.NewReader(batch)
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	output, err := run(
		"mkdir files/local/boot\nput -p image files/local/boot/image\nrename files/local/boot/image files/local/boot/disk\nls -l " +
			"files/local/boot\nget files/local/boot/disk back\n",
	)
	if err != nil || !strings.Contains(output, "2000000") {
		t.Fatalf("got %s (%v), want a listing with the size 2000000", output, err)
	}
	if back, err := os.ReadFile(filepath.Join(folder, "back")); err != nil || !bytes.Equal(back, content) {
		t.Errorf("got %d bytes (%v), want the %d bytes that were sent", len(back), err, len(content))
	}
	r.wantTree(map[string]string{"local/boot/disk": string(content)})
	if output, err := run("put image files/image\n"); err == nil || !strings.Contains(strings.ToLower(output), "permission denied") {
		t.Errorf("got %s (%v), want permission denied", output, err)
	}
	testkit.Must(t, os.WriteFile(known, fmt.Appendf(nil, "[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(user.signer.PublicKey())), 0o600))
	if output, err := run("ls\n"); err == nil {
		t.Errorf("got %s with another host key, want an error", output)
	}
}

// A file with an invalid key is refused as a whole.
func TestReadAuthorizedKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	for text, right := range map[string]bool{"": true, "# none\n": true, "ssh-ed25519 AAAA": false,
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG anna\r\n":         true,
		`command="x" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG anna`: false} {
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if keys, err := agent.ReadAuthorizedKeys(file); (err == nil) != right {
			t.Errorf("%q: got %v (%v), want it accepted: %v", text, keys, err, right)
		}
	}
	if _, err := agent.ReadAuthorizedKeys(file + "x"); err == nil {
		t.Error("got no error for a missing file, want one")
	}
}
