package tftp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tftp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// serve serves files until the end of the test, and returns the server's address and the agent's folder.
func serve(t testing.TB, files map[string][]byte) (address *net.UDPAddr, folder string) {
	t.Helper()
	folder = t.TempDir()
	opened, err := tree.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(folder, "files", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		log := slog.New(slog.DiscardHandler)
		if err := (&tftp.Server{Files: opened, Log: log, Refusals: share.NewRefusals(log)}).Serve(ctx, conn); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn.LocalAddr().(*net.UDPAddr), folder
}

// client reads one file. It drops a packet if lose, unless nil, returns true.
type client struct {
	testing.TB
	conn     *net.UDPConn
	accepted map[string]string
	lose     func() bool
}

func (c *client) read(from *net.UDPAddr, name string, options ...string) (content []byte, refused string) {
	c.Helper()
	var err error
	if c.conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: from.IP}); err != nil {
		c.Fatal(err)
	}
	defer c.conn.Close()
	request := append([]byte{0, 1}, strings.Join(append([]string{name, "octet"}, options...), "\x00")+"\x00"...)
	packet, block, window := make([]byte, 70_000), 512, 1
	var to *net.UDPAddr
	send := func(p []byte) {
		address := from
		if to != nil {
			address = to
		}
		if _, err := c.conn.WriteToUDP(p, address); err != nil {
			c.Fatal(err)
		}
	}
	send(request)
	last, have := request, uint16(0)
	acknowledge := func() {
		last = binary.BigEndian.AppendUint16([]byte{0, 4}, have)
		send(last)
	}
	for silent, inWindow := 0, 0; ; {
		if err := c.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			c.Fatal(err)
		}
		n, peer, err := c.conn.ReadFromUDP(packet)
		if err != nil {
			if silent++; silent > 100 {
				c.Fatal("got no packet after 100 repeats, want an answer")
			}
			send(last)
			continue
		}
		if c.lose != nil && c.lose() {
			continue
		}
		to = peer
		switch binary.BigEndian.Uint16(packet) {
		case 5:
			return nil, string(packet[4 : n-1])
		case 6:
			fields := strings.Split(string(packet[2:n-1]), "\x00")
			c.accepted = map[string]string{}
			for ; len(fields) >= 2; fields = fields[2:] {
				c.accepted[fields[0]] = fields[1]
			}
			if text, ok := c.accepted["blksize"]; ok {
				block, _ = strconv.Atoi(text)
			}
			if text, ok := c.accepted["windowsize"]; ok {
				window, _ = strconv.Atoi(text)
			}
			acknowledge()
		case 3:
			if number := binary.BigEndian.Uint16(packet[2:]); number != have+1 {
				acknowledge()
				inWindow = 0
				continue
			}
			have++
			content = append(content, packet[4:n]...)
			if inWindow++; inWindow == window || n-4 < block {
				inWindow = 0
				acknowledge()
			}
			if n-4 < block {
				return content, ""
			}
		}
	}
}

func random(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	return content
}

func TestRead(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 511, 512, 513, 1024, 100_000}
	files := map[string][]byte{}
	for _, n := range sizes {
		files["boot/"+strconv.Itoa(n)] = random(n)
	}
	files["large"] = random(40 << 20) // so large that the numbers of its 512-byte blocks overflow
	server, _ := serve(t, files)
	for name, options := range map[string]struct {
		requested []string
		want      map[string]string
	}{
		"none": {nil, nil},
		"all": {
			[]string{"BLKSIZE", "1024", "windowsize", "4", "tsize", "0", "timeout", "2", "multicast", ""},
			map[string]string{"blksize": "1024", "windowsize": "4", "timeout": "2", "tsize": "100000"},
		},
		"bounded": {[]string{"blksize", "65464", "windowsize", "65535"}, map[string]string{"blksize": "1468", "windowsize": "64"}},
		"invalid": {[]string{"blksize", "7", "windowsize", "0", "timeout", "256", "tsize", "x"}, nil},
		"small":   {[]string{"blksize", "8"}, map[string]string{"blksize": "8"}},
		"slow":    {[]string{"timeout", "6", "blksize", "1024"}, map[string]string{"blksize": "1024"}},
	} {
		for _, n := range sizes {
			file := "boot/" + strconv.Itoa(n)
			c := &client{TB: t}
			got, refused := c.read(server, file, options.requested...)
			if !bytes.Equal(got, files[file]) || refused != "" {
				t.Errorf("%s, options %s: got %d bytes and the refusal %q, want the %d bytes of the file", file, name, len(got), refused, n)
			}
			if n == 100_000 && !maps.Equal(c.accepted, options.want) {
				t.Errorf("options %s: got %v accepted, want %v", name, c.accepted, options.want)
			}
		}
	}
	if got, refused := (&client{TB: t}).read(server, `\boot/1`); len(got) != 1 {
		t.Errorf("got %d bytes and the refusal %q, want 1 byte", len(got), refused)
	}
	if got, refused := (&client{TB: t}).read(server, "large", "windowsize", "16"); !bytes.Equal(got, files["large"]) {
		t.Errorf("got %d bytes and the refusal %q, want the %d bytes of large", len(got), refused, len(files["large"]))
	}
}

// A file arrives even if packets are lost in both directions.
func TestLoss(t *testing.T) {
	t.Parallel()
	content := random(60_000)
	server, _ := serve(t, map[string][]byte{"file": content})
	for _, window := range []string{"1", "8"} {
		lost := rand.New(rand.NewPCG(1, 2))
		c := &client{TB: t, lose: func() bool { return lost.IntN(40) == 0 }}
		if got, refused := c.read(server, "file", "blksize", "1024", "windowsize", window); !bytes.Equal(got, content) {
			t.Errorf("window %s: got %d bytes and the refusal %q, want the %d bytes of the file", window, len(got), refused, len(content))
		}
	}
}

// Files outside of the folder are missing, and nothing can be written.
func TestRefused(t *testing.T) {
	t.Parallel()
	server, folder := serve(t, map[string][]byte{"boot/file": []byte("x")})
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "files/passwd")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"passwd", "/etc/passwd", "../index", "boot/../../index", `..\index`, "boot", "boot/", "", ".", strings.Repeat("x", 400)} {
		if got, refused := (&client{TB: t}).read(server, name); refused != "there is no such file" {
			t.Errorf("%q: got %q and the refusal %q, want that there is no such file", name, got, refused)
		}
	}
	conn, err := net.DialUDP("udp", nil, server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for request, want := range map[string]string{
		"\x00\x02boot/file\x00octet\x00":    "files are read-only",
		"\x00\x01boot/file\x00netascii\x00": "the mode must be octet",
		"\x00\x01boot/file\x00octet":        "the request is incomplete",
	} {
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1500)
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(answer)
		if err != nil || !strings.Contains(string(answer[:n]), want) {
			t.Errorf("%q: got %q (%v), want %q", request, answer[:n], err, want)
		}
	}
}

// Requests from forged addresses, which nothing acknowledges, do not silence the server for others, nor for the forged addresses.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	content := random(60_000)
	server, _ := serve(t, map[string][]byte{"file": content})
	for n := range 600 {
		from := &net.UDPAddr{IP: net.IPv4(127, 0, 1, byte(n/8))}
		if n < 50 {
			from = &net.UDPAddr{IP: server.IP}
		}
		conn, err := net.ListenUDP("udp", from)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.WriteToUDP([]byte("\x00\x01file\x00octet\x00timeout\x00255\x00"), server); err != nil {
			t.Fatal(err)
		}
	}
	if got, refused := (&client{TB: t}).read(server, "file"); !bytes.Equal(got, content) {
		t.Errorf("got %d bytes and the refusal %q, want the %d bytes of the file", len(got), refused, len(content))
	}
}

// curl reads files, with and without options.
func TestCurl(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed; Debian's package curl has it")
	}
	content := random(300_000)
	server, _ := serve(t, map[string][]byte{"boot/file": content})
	for _, options := range [][]string{{"--tftp-no-options"}, {"--tftp-blksize", "1400"}} {
		got, err := exec.CommandContext(t.Context(), curl, append(options, "-sS", "--max-time", "60", "tftp://"+server.String()+"/boot/file")...).
			Output()
		if err != nil && err.Error() == "exit status 1" { // unsupported protocol
			t.Skip("the installed curl was built without TFTP; the one of Debian's package curl supports it")
		}
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%v: got %d bytes (%v), want the %d bytes of the file", options, len(got), err, len(content))
		}
	}
}
