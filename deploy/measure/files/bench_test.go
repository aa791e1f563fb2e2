// Package files measures how fast site agents get files and give them, beside programs that do the same.
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

var full = flag.Bool("full", false, "the big file has 4 GiB, in place of 256 MiB")

const (
	key        = "what the control plane knows"
	smallFiles = 10_000
	// startTime is how long a program may take to listen.
	startTime = 20 * time.Second
)

// site is an agent that runs until the benchmark ends.
type site struct {
	*testing.B
	folder      string
	fingerprint string
	plain       string // the URL of a second door, without TLS
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
	plain := httptest.NewServer(a.Handler())
	s.plain = plain.URL
	asking, err := siteagent.NewHTTPClient(s.fingerprint)
	testkit.Must(b, err)
	s.client = &siteagent.Client{URL: "https://" + server.Listener.Addr().String(), Key: secret.New(key), HTTP: asking}
	ctx, end := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { _ = a.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		end()
		working.Wait()
		asking.CloseIdleConnections()
		server.Close()
		plain.Close()
		testkit.Must(b, errors.Join(a.Close(), s.files.Close()))
	})
	b.Cleanup(s.stop)
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.folder, "files", name) }

// pull gets what a parent has, and tells how long that takes.
func (s *site) pull(parent siteagent.Target) time.Duration {
	s.Helper()
	began := time.Now()
	order := siteagent.PullOrder{ID: fmt.Sprint(rand.Uint64()), Parent: parent}
	testkit.Must(s.B, s.client.OrderPull(s.Context(), order))
	for {
		is, err := s.client.GetPull(s.Context(), order.ID)
		testkit.Must(s.B, err)
		switch is.State {
		case siteagent.PullDone:
			return time.Since(began)
		case siteagent.PullFailed:
			s.Fatal(is.Error)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fill writes files of random content, which are known after a look.
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
		testkit.Must(s.B, os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour))) // one that was just written to is not believed
	}
	_, err := s.client.GetManifest(s.Context())
	testkit.Must(s.B, err)
	return bytes
}

// start starts a program, and waits until it is ready. It ends with the benchmark.
func start(b *testing.B, ready func() bool, program string, arguments ...string) {
	b.Helper()
	cmd := exec.Command(program, arguments...)
	var screen bytes.Buffer
	cmd.Stdout, cmd.Stderr = &screen, &screen
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	testkit.Must(b, err)
	b.Cleanup(func() { _ = running.Stop(context.Background()) })
	ctx, cancel := context.WithTimeout(b.Context(), startTime)
	defer cancel()
	if err := running.Await(ctx, ready); err != nil {
		b.Fatalf("%s: %v\n%s", program, err, &screen)
	}
}

// find finds a program, or skips what is measured beside it.
func find(b *testing.B, names ...string) string {
	for _, name := range names {
		for _, path := range []string{name, "/usr/sbin/" + name} {
			if program, err := exec.LookPath(path); err == nil {
				return program
			}
		}
	}
	b.Skipf("nothing is measured, for %s is not installed", strings.Join(names, " or "))
	return ""
}

// BenchmarkSync has an agent get what another one has, each file verified and on the disk before it is seen: over TLS, and as behind a
// proxy, without; and rsync, by turns, get the same from its own daemon, which does not encrypt, with --fsync, too, without which it leaves
// the files to a disk that has yet to write them; and, where there is OpenSSH, with --fsync by that. Nothing is left to be written when one
// of them begins, and no small file is deleted before all is measured: ext4 avoids the inodes of files that are gone for minutes, which
// whoever comes next would
// pay for.
func BenchmarkSync(b *testing.B) {
	big := int64(256 << 20)
	if *full {
		big = 4 << 30
	}
	for _, of := range []struct {
		name  string
		files int
		size  func(int) int64
	}{
		{"10000_small", smallFiles, func(i int) int64 { return int64(i%8) << 10 }},
		{fmt.Sprintf("one_of_%d_MiB", big>>20), 1, func(int) int64 { return big }},
	} {
		b.Run(of.name, func(b *testing.B) {
			rsync := find(b, "rsync")
			parent := newSite(b)
			size := parent.fill(of.files, of.size)
			ours := func(parent siteagent.Target) func() (time.Duration, string) {
				return func() (time.Duration, string) {
					child := newSite(b)
					syscall.Sync()
					took := child.pull(parent)
					child.stop()
					return took, child.folder
				}
			}
			daemon := serveRsync(b, rsync, parent.path(""))
			theirs := func(arguments ...string) func() (time.Duration, string) {
				return func() (time.Duration, string) { return getByRsync(b, rsync, arguments...) }
			}
			type way struct {
				name string
				get  func() (took time.Duration, to string)
				took []float64
			}
			ways := []*way{
				{name: "agent", get: ours(siteagent.Target{URL: parent.client.URL, Fingerprint: parent.fingerprint, Token: key})},
				{name: "agent-plain", get: ours(siteagent.Target{URL: parent.plain, Token: key})},
				{name: "rsync", get: theirs(daemon)},
				{name: "rsync-fsync", get: theirs("--fsync", daemon)},
			}
			if shell := serveSSH(b); shell != "" {
				ways = append(ways, &way{name: "rsync-fsync-ssh", get: theirs("--fsync", "--rsh="+shell, "agent:"+parent.path("")+"/")})
			}
			for turn := 0; b.Loop(); turn++ {
				for n := range ways {
					w := ways[(turn+n)%len(ways)]
					took, folder := w.get()
					w.took = append(w.took, took.Seconds())
					if of.files == 1 {
						testkit.Must(b, os.RemoveAll(folder))
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, w := range ways {
				b.ReportMetric(float64(size)/testkit.Median(w.took)/1e6, w.name+"-MB/s")
				if strings.HasPrefix(w.name, "rsync") {
					b.ReportMetric(testkit.Median(w.took)/testkit.Median(ways[0].took), "times-"+w.name)
				}
			}
		})
	}
}

// serveRsync starts its daemon for a folder, and answers where.
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
		func() bool { return listens(free[0]) },
		rsync,
		"--daemon",
		"--no-detach",
		"--config="+config,
		"--address=127.0.0.1",
		"--port="+port,
	)
	return "rsync://127.0.0.1:" + port + "/files/"
}

// serveSSH starts OpenSSH with keys of its own, and answers the command that connects to it as agent; empty: it is not installed.
func serveSSH(b *testing.B) string {
	b.Helper()
	for _, program := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			b.Log("rsync is not measured by SSH: ", err)
			return ""
		}
	}
	folder := b.TempDir()
	for _, name := range []string{"host", "user"} {
		said, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(folder, name)).CombinedOutput()
		if err != nil {
			b.Fatalf("ssh-keygen: %v\n%s", err, said)
		}
	}
	me, err := user.Current()
	testkit.Must(b, err)
	var more string
	if me.Uid == "0" {
		more = "UsePAM yes\n"                            // or root is refused where it has no password
		testkit.Must(b, os.MkdirAll("/run/sshd", 0o755)) // without which it does not start
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
	start(b, func() bool { return listens(free[0]) }, "/usr/sbin/sshd", "-D", "-e", "-f", server)
	return "ssh -F " + client
}

// asRoot has a daemon that root starts stay root.
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

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	return err == nil && conn.Close() == nil
}

func getByRsync(b *testing.B, rsync string, arguments ...string) (took time.Duration, to string) {
	b.Helper()
	to = b.TempDir()
	syscall.Sync()
	cmd := exec.Command(rsync, slices.Concat([]string{"--archive", "--whole-file"}, arguments, []string{to})...)
	began := time.Now()
	if said, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("rsync: %v\n%s", err, said)
	}
	return time.Since(began), to
}

// BenchmarkTFTP reads a file of 32 MiB by TFTP from an agent and, by turns, from another server, as firmware does: block by block, of
// 1468 bytes.
func BenchmarkTFTP(b *testing.B) {
	const name, size = "image", 32 << 20
	s := newSite(b)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	testkit.Must(b, os.WriteFile(s.path(name), content, 0o644))
	for folder := s.path(""); folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) { // others run as nobody
		if is, err := os.Stat(folder); err == nil && is.Mode().Perm()&0o055 != 0o055 {
			testkit.Must(b, os.Chmod(folder, is.Mode().Perm()|fs.FileMode(0o055)))
		}
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testkit.Must(b, err)
	ctx, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = (&tftp.Server{Files: s.files, Log: slog.New(slog.DiscardHandler)}).Serve(ctx, conn) })
	b.Cleanup(func() {
		end()
		serving.Wait()
	})
	ours := conn.LocalAddr().String()
	for _, other := range []struct {
		name, address string // empty: wherever one is free
		arguments     func(address, folder string) []string
	}{
		{"in.tftpd", "", func(address, folder string) []string {
			return []string{"--foreground", "--address", address, "--secure", folder}
		}},
		{"dnsmasq", "127.0.0.1:69", func(_, folder string) []string { // nowhere else
			return []string{
				"--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--pid-file", "--user=root", "--enable-tftp",
				"--listen-address=127.0.0.1", "--bind-interfaces", "--tftp-root=" + folder,
			}
		}},
	} {
		b.Run(other.name, func(b *testing.B) {
			program, theirs := find(b, other.name), other.address
			if theirs == "" {
				free, err := net.ListenPacket("udp4", "127.0.0.1:0") // ports.Free keeps the UDP ports of those that it answers
				testkit.Must(b, err)
				theirs = free.LocalAddr().String()
				testkit.Must(b, free.Close())
			} else if os.Geteuid() != 0 {
				b.Skip("nothing is measured, for port 69 needs root")
			}
			start(
				b,
				func() bool { n, err := read(theirs, name, nil); return err == nil && n == size },
				program,
				other.arguments(theirs, s.path(""))...)
			got := make([]byte, size)
			var ratios, rates []float64
			for b.Loop() {
				began := time.Now()
				_, err := read(ours, name, got)
				testkit.Must(b, err)
				our := time.Since(began).Seconds()
				if !bytes.Equal(got, content) {
					b.Fatal("got another content, want that of the file")
				}
				began = time.Now()
				_, err = read(theirs, name, nil)
				testkit.Must(b, err)
				ratios, rates = append(ratios, time.Since(began).Seconds()/our), append(rates, size/our/1e6)
			}
			b.ReportMetric(testkit.Median(rates), "MB/s")
			b.ReportMetric(testkit.Median(ratios), "times-"+other.name)
		})
	}
}

// read reads a file, into a buffer if there is one, and answers its size.
func read(server, name string, into []byte) (size int, err error) {
	const block, patience, refused, accepted, data = 1468, 5 * time.Second, 5, 6, 3
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
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return size, err
		}
		n, from, err := conn.ReadFromUDP(packet)
		if err != nil {
			return size, err
		}
		number, last := binary.BigEndian.Uint16(packet[2:]), false
		switch packet[1] {
		case refused:
			return size, fmt.Errorf("it refuses: %s", packet[4:n])
		case accepted:
			number = 0
		case data:
			if number == expected {
				if into != nil {
					copy(into[min(size, len(into)):], packet[4:n])
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
