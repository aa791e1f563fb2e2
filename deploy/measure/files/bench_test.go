// Package files compares the speed of site agents with programs that do the same: rsync, TFTP servers, nginx and dnsmasq.
package files

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tftp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

var full = flag.Bool("full", false, "use a file of 4 GiB instead of 256 MiB")

const (
	key        = "what the control plane knows"
	smallFiles = 10_000
	// startTimeout is the limit for a program to listen.
	startTimeout = 20 * time.Second
)

// site is an agent that runs until the benchmark ends.
type site struct {
	*testing.B
	folder      string
	fingerprint string
	plainURL    string // the URL of a second listener, without TLS
	client      *siteagent.Client
	files       *tree.Tree
	agent       *agent.Agent
	stop        func()
}

func newSite(b *testing.B) *site {
	b.Helper()
	s := &site{B: b, folder: b.TempDir()}
	var err error
	if s.files, err = tree.Open(s.folder); err != nil {
		b.Fatal(err)
	}
	a, err := agent.New(s.files, secret.New(key), machine.Settings{}, "", slog.New(slog.DiscardHandler))
	testkit.Must(b, err)
	s.agent = a
	certificate, err := agent.LoadOrCreateCertificate(filepath.Join(s.folder, "certificate"))
	testkit.Must(b, err)
	s.fingerprint, err = certificate.Fingerprint()
	testkit.Must(b, err)
	server := httptest.NewUnstartedServer(a.Handler())
	server.Listener = tls.NewListener(server.Listener, certificate.TLSConfig())
	server.Start()
	plainURL := httptest.NewServer(a.Handler())
	s.plainURL = plainURL.URL
	httpClient, err := siteagent.NewHTTPClient(s.fingerprint)
	testkit.Must(b, err)
	s.client = &siteagent.Client{URL: "https://" + server.Listener.Addr().String(), Key: secret.New(key), HTTP: httpClient}
	ctx, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { _ = a.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		end()
		working.Wait()
		httpClient.CloseIdleConnections()
		server.Close()
		plainURL.Close()
		testkit.Must(b, errors.Join(a.Close(), s.files.Close()))
	})
	b.Cleanup(s.stop)
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.folder, "files", name) }

// pull syncs the parent's files, and returns how long that took.
func (s *site) pull(parent siteagent.Target) time.Duration {
	s.Helper()
	began := time.Now()
	order := siteagent.PullOrder{ID: fmt.Sprint(rand.Uint64()), Parent: parent}
	testkit.Must(s.B, s.client.OrderPull(s.Context(), order))
	for {
		status, err := s.client.GetPull(s.Context(), order.ID)
		testkit.Must(s.B, err)
		switch status.State {
		case siteagent.PullDone:
			return time.Since(began)
		case siteagent.PullFailed:
			s.Fatal(status.Error)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fill writes files with random content, and lets the agent read them. It returns their total size.
func (s *site) fill(files int, size func(int) int64) (bytes int64) {
	s.Helper()
	random := rand.NewChaCha8([32]byte{})
	piece := make([]byte, 1<<20)
	for i := range files {
		name := s.path(fmt.Sprintf("%02d/%d", i%100, i))
		testkit.Must(s.B, os.MkdirAll(filepath.Dir(name), 0o755))
		file, err := os.Create(name)
		testkit.Must(s.B, err)
		left := size(i)
		bytes += left
		for left > 0 {
			_, _ = random.Read(piece)
			n, err := file.Write(piece[:min(left, int64(len(piece)))])
			testkit.Must(s.B, err)
			left -= int64(n)
		}
		testkit.Must(s.B, file.Close())
		testkit.Must(s.B, os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour))) // the agent ignores files that may still be written to
	}
	_, err := s.client.GetManifest(s.Context())
	testkit.Must(s.B, err)
	return bytes
}

// start starts a program, and waits until it is ready. The program stops with the benchmark.
func start(b *testing.B, ready func() bool, program string, arguments ...string) {
	b.Helper()
	cmd := exec.Command(program, arguments...)
	var screen bytes.Buffer
	cmd.Stdout, cmd.Stderr = &screen, &screen
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	testkit.Must(b, err)
	b.Cleanup(func() { _ = running.Stop(context.Background()) })
	ctx, cancel := context.WithTimeout(b.Context(), startTimeout)
	defer cancel()
	if err := running.Await(ctx, ready); err != nil {
		b.Fatalf("%s: %v\n%s", program, err, &screen)
	}
}

// findProgram returns the path of a program. It skips the benchmark if none of the names is installed.
func findProgram(b *testing.B, names ...string) string {
	for _, name := range names {
		for _, path := range []string{name, "/usr/sbin/" + name} {
			if program, err := exec.LookPath(path); err == nil {
				return program
			}
		}
	}
	b.Skipf("%s is not installed", strings.Join(names, " or "))
	return ""
}

// BenchmarkSync compares an agent that syncs another agent's files with rsync, in turn. The agent verifies each file, and writes
// it to the disk before it is visible. It is measured with TLS, and without as behind a proxy.
//
// rsync uses its own daemon, which does not encrypt. It is measured without and with --fsync, since without it the files may not
// be on the disk yet. If OpenSSH is installed, rsync is also measured over SSH.
//
// All pending writes are flushed before each turn. Small files are deleted only at the end: ext4 avoids the inodes of deleted
// files for minutes, which would slow down the next turn.
func BenchmarkSync(b *testing.B) {
	big := int64(256 << 20)
	if *full {
		big = 4 << 30
	}
	for _, data := range []struct {
		name  string
		files int
		size  func(int) int64
	}{
		{"10000_small", smallFiles, func(i int) int64 { return int64(i%8) << 10 }},
		{fmt.Sprintf("one_of_%d_MiB", big>>20), 1, func(int) int64 { return big }},
	} {
		b.Run(data.name, func(b *testing.B) {
			rsync := findProgram(b, "rsync")
			parent := newSite(b)
			size := parent.fill(data.files, data.size)
			own := func(parent siteagent.Target) func() (time.Duration, string) {
				return func() (time.Duration, string) {
					child := newSite(b)
					syscall.Sync()
					elapsed := child.pull(parent)
					child.stop()
					return elapsed, child.folder
				}
			}
			daemon := serveRsync(b, rsync, parent.path(""))
			rsyncWay := func(arguments ...string) func() (time.Duration, string) {
				return func() (time.Duration, string) { return runRsync(b, rsync, arguments...) }
			}
			type way struct {
				name    string
				get     func() (elapsed time.Duration, to string)
				elapsed []float64
			}
			ways := []*way{
				{name: "agent", get: own(siteagent.Target{URL: parent.client.URL, Fingerprint: parent.fingerprint, Token: key})},
				{name: "agent-plain", get: own(siteagent.Target{URL: parent.plainURL, Token: key})},
				{name: "rsync", get: rsyncWay(daemon)},
				{name: "rsync-fsync", get: rsyncWay("--fsync", daemon)},
			}
			if shell := serveSSH(b); shell != "" {
				ways = append(ways, &way{name: "rsync-fsync-ssh", get: rsyncWay("--fsync", "--rsh="+shell, "agent:"+parent.path("")+"/")})
			}
			for turn := 0; b.Loop(); turn++ {
				for n := range ways {
					w := ways[(turn+n)%len(ways)]
					elapsed, folder := w.get()
					w.elapsed = append(w.elapsed, elapsed.Seconds())
					if data.files == 1 {
						testkit.Must(b, os.RemoveAll(folder))
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, w := range ways {
				b.ReportMetric(float64(size)/testkit.Median(w.elapsed)/1e6, w.name+"-MB/s")
				if strings.HasPrefix(w.name, "rsync") {
					b.ReportMetric(testkit.Median(w.elapsed)/testkit.Median(ways[0].elapsed), "times-"+w.name)
				}
			}
		})
	}
}

// serveRsync starts rsync's daemon for a folder, and returns its URL.
func serveRsync(b *testing.B, rsync, folder string) string {
	b.Helper()
	free, err := ports.Free(1)
	testkit.Must(b, err)
	_, port, err := net.SplitHostPort(free[0])
	testkit.Must(b, err)
	config := filepath.Join(b.TempDir(), "rsyncd.conf")
	testkit.Must(
		b,
		os.WriteFile(
			config,
			fmt.Appendf(nil, "use chroot = no\nlog file = /dev/null\n[files]\npath = %s\nread only = yes\n%s", folder, asRoot()),
			0o600,
		),
	)
	start(
		b,
		func() bool { return isListening(free[0]) },
		rsync,
		"--daemon",
		"--no-detach",
		"--config="+config,
		"--address=127.0.0.1",
		"--port="+port,
	)
	return "rsync://127.0.0.1:" + port + "/files/"
}

// serveSSH starts OpenSSH with new keys. It returns the command that connects to it under the host name agent, or an empty
// string if OpenSSH is not installed.
func serveSSH(b *testing.B) string {
	b.Helper()
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Log("rsync is not measured over SSH: ", err)
			return ""
		}
	}
	folder := b.TempDir()
	for _, name := range []string{"host", "user"} {
		output, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(folder, name)).CombinedOutput()
		if err != nil {
			b.Fatalf("ssh-keygen: %v\n%s", err, output)
		}
	}
	me, err := user.Current()
	testkit.Must(b, err)
	var more string
	if me.Uid == "0" {
		more = "UsePAM yes\n"                            // without PAM, sshd refuses root if it has no password
		testkit.Must(b, os.MkdirAll("/run/sshd", 0o755)) // sshd needs this folder
	}
	free, err := ports.Free(1)
	testkit.Must(b, err)
	_, port, err := net.SplitHostPort(free[0])
	testkit.Must(b, err)
	server, client := filepath.Join(folder, "sshd_config"), filepath.Join(folder, "ssh_config")
	testkit.Must(b, errors.Join(
		os.WriteFile(
			server,
			fmt.Appendf(
				nil,
				"ListenAddress %s\nHostKey %[2]s/host\nAuthorizedKeysFile %[2]s/user.pub\nStrictModes no\nPidFile "+
					"none\nPasswordAuthentication no\n%[3]s",
				free[0],
				folder,
				more,
			),
			0o600,
		),
		os.WriteFile(
			client,
			fmt.Appendf(
				nil,
				"Host agent\nHostName 127.0.0.1\nPort %s\nUser %s\nIdentityFile %[3]s/user\nIdentitiesOnly yes\nStrictHostKeyChecking "+
					"no\nUserKnownHostsFile %[3]s/known\nLogLevel ERROR\nCiphers aes128-gcm@openssh.com\n",
				port,
				me.Username,
				folder,
			),
			0o600,
		),
	))
	start(b, func() bool { return isListening(free[0]) }, "/usr/sbin/sshd", "-D", "-e", "-f", server)
	return "ssh -F " + client
}

// asRoot returns the configuration with which a daemon that root starts keeps running as root.
func asRoot() string {
	if os.Geteuid() != 0 {
		return ""
	}
	group := "root"
	if g, err := user.LookupGroupId("0"); err == nil {
		group = g.Name
	}
	return "uid = root\ngid = " + group + "\n"
}

func isListening(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	return err == nil && conn.Close() == nil
}

func runRsync(b *testing.B, rsync string, arguments ...string) (elapsed time.Duration, to string) {
	b.Helper()
	to = b.TempDir()
	syscall.Sync()
	cmd := exec.Command(rsync, slices.Concat([]string{"--archive", "--whole-file"}, arguments, []string{to})...)
	began := time.Now()
	if output, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("rsync: %v\n%s", err, output)
	}
	return time.Since(began), to
}

// BenchmarkTFTP reads a file of 32 MiB by TFTP from an agent and from another server, in turn. It reads blocks of 1468 bytes, one
// at a time, as firmware does.
func BenchmarkTFTP(b *testing.B) {
	const name, size = "image", 32 << 20
	s := newSite(b)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	testkit.Must(b, os.WriteFile(s.path(name), content, 0o644))
	for folder := s.path(""); folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) { // other servers run as nobody
		if status, err := os.Stat(folder); err == nil && status.Mode().Perm()&0o055 != 0o055 {
			testkit.Must(b, os.Chmod(folder, status.Mode().Perm()|fs.FileMode(0o055)))
		}
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testkit.Must(b, err)
	ctx, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	server := &tftp.Server{Files: s.files, Log: slog.New(slog.DiscardHandler), Refusals: s.agent.Refusals()}
	serving.Go(func() { _ = server.Serve(ctx, conn) })
	b.Cleanup(func() {
		end()
		serving.Wait()
	})
	own := conn.LocalAddr().String()
	for _, other := range []struct {
		name, address string // empty: a free port
		arguments     func(address, folder string) []string
	}{
		{"in.tftpd", "", func(address, folder string) []string {
			return []string{"--foreground", "--address", address, "--secure", folder}
		}},
		{"dnsmasq", "127.0.0.1:69", func(_, folder string) []string { // dnsmasq supports no other port
			return []string{
				"--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--pid-file", "--user=root", "--enable-tftp",
				"--listen-address=127.0.0.1", "--bind-interfaces", "--tftp-root=" + folder,
			}
		}},
	} {
		b.Run(other.name, func(b *testing.B) {
			program, rsyncWay := findProgram(b, other.name), other.address
			if rsyncWay == "" {
				free, err := net.ListenPacket("udp4", "127.0.0.1:0") // ports.Free reserves its ports for UDP, too
				testkit.Must(b, err)
				rsyncWay = free.LocalAddr().String()
				testkit.Must(b, free.Close())
			} else if os.Geteuid() != 0 {
				b.Skip("port 69 needs root")
			}
			start(
				b,
				func() bool { n, err := read(rsyncWay, name, nil); return err == nil && n == size },
				program,
				other.arguments(rsyncWay, s.path(""))...)
			got := make([]byte, size)
			var ratios, rates []float64
			for b.Loop() {
				began := time.Now()
				_, err := read(own, name, got)
				testkit.Must(b, err)
				our := time.Since(began).Seconds()
				if !bytes.Equal(got, content) {
					b.Fatal("got other content than that of the file, want the same")
				}
				began = time.Now()
				_, err = read(rsyncWay, name, nil)
				testkit.Must(b, err)
				ratios, rates = append(ratios, time.Since(began).Seconds()/our), append(rates, size/our/1e6)
			}
			b.ReportMetric(testkit.Median(rates), "MB/s")
			b.ReportMetric(testkit.Median(ratios), "times-"+other.name)
		})
	}
}

// read reads a file by TFTP, into a buffer if that is not nil, and returns the file's size.
func read(server, name string, target []byte) (size int, err error) {
	const block, readTimeout, refused, accepted, data = 1468, 5 * time.Second, 5, 6, 3
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	to, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		return 0, err
	}
	if _, err := conn.WriteToUDP(
		[]byte("\x00\x01"+strings.Join([]string{name, "octet", "blksize", fmt.Sprint(block)}, "\x00")+"\x00"),
		to,
	); err != nil {
		return 0, err
	}
	packet := make([]byte, 2000)
	for expected := uint16(1); ; {
		if err := conn.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
			return size, err
		}
		n, from, err := conn.ReadFromUDP(packet)
		if err != nil {
			return size, err
		}
		number, last := binary.BigEndian.Uint16(packet[2:]), false
		switch packet[1] {
		case refused:
			return size, fmt.Errorf("the server refuses the request: %s", packet[4:n])
		case accepted:
			number = 0
		case data:
			if number == expected {
				if target != nil {
					copy(target[min(size, len(target)):], packet[4:n])
				}
				size += n - 4
				last = n-4 < block
				expected++
			}
		}
		if _, err := conn.WriteToUDP(binary.BigEndian.AppendUint16([]byte{0, 4}, number), from); err != nil || last {
			return size, err
		}
	}
}
