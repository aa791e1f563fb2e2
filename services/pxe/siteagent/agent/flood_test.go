package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tftp"
)

// A machine is installed while another one floods HTTP, TFTP and SFTP.
func TestInstallDuringFloods(t *testing.T) {
	t.Parallel()
	r := startWith(t, t.TempDir(), bootSettings)
	r.agent.SetLoginTimeout(time.Hour)
	r.agent.SetBodyTimeout(time.Hour)
	r.put("boot/ipxe.efi", "a bootloader")
	r.putMachine(web1())
	const attacker, victim = "127.0.0.1", "127.0.0.2"
	r.switchOn(machine.Client{MAC: mac}, victim)
	sftpEndpoint, tftpServer := r.serveSFTP(), r.serveTFTP()
	for range 300 {
		conn := r.dialMachines(attacker)
		_, _ = io.WriteString(conn, "POST /i/x/progress HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx") // may be refused
		r.dialFrom(attacker, sftpEndpoint.Address)
	}
	for n := range 600 {
		r.requestTFTP(fmt.Sprintf("127.0.1.%d", n/8), tftpServer)
	}
	r.wantMetric(`ironplane_site_agent_refused_total{limit="sftp-logins"} 292`)

	r.bootTFTP(victim, tftpServer, "a bootloader")
	httpClient := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return r.dialMachines(victim), nil
	}}}
	t.Cleanup(httpClient.CloseIdleConnections)
	for _, step := range []struct{ path, want string }{
		{"/boot/ipxe.efi", "a bootloader"},
		{"/i/boot", "# web1's"},
		{"/i/" + token + "/preseed", "its preseed"},
		{"/i/" + token + "/progress", "noted"},
		{"/i/" + token + "/done", "noted"},
	} {
		var response *http.Response
		var err error
		if step.want == "noted" {
			response, err = httpClient.PostForm("http://agent"+step.path, url.Values{"step": {"disk"}})
		} else {
			response, err = httpClient.Get("http://agent" + step.path)
		}
		testkit.Must(t, err)
		text, err := io.ReadAll(response.Body)
		testkit.Must(t, err)
		if response.StatusCode != http.StatusOK || !strings.Contains(string(text), step.want) {
			t.Errorf("%s: got %d %s, want %q", step.path, response.StatusCode, text, step.want)
		}
	}
	testkit.Must(t, r.logIn(victim, sftpEndpoint))
}

// serveTFTP serves the agent's files by TFTP until the end of the test.
func (r *testAgent) serveTFTP() *net.UDPAddr {
	r.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testkit.Must(r.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	server := &tftp.Server{Files: r.files, Log: slog.New(slog.DiscardHandler), Refusals: r.agent.Refusals()}
	serving.Go(func() { _ = server.Serve(ctx, conn) })
	r.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return conn.LocalAddr().(*net.UDPAddr)
}

// requestTFTP asks for the bootloader from a loopback address.
func (r *testAgent) requestTFTP(from string, server *net.UDPAddr) *net.UDPConn {
	r.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)})
	testkit.Must(r.T, err)
	r.Cleanup(func() { _ = conn.Close() })
	r.sendTFTP(conn, server)
	return conn
}

func (r *testAgent) sendTFTP(conn *net.UDPConn, server *net.UDPAddr) {
	r.Helper()
	_, err := conn.WriteToUDP([]byte("\x00\x01boot/ipxe.efi\x00octet\x00"), server)
	testkit.Must(r.T, err)
}

// bootTFTP reads the bootloader, which fits into one block. It repeats the request until there is an answer.
func (r *testAgent) bootTFTP(from string, server *net.UDPAddr, want string) {
	r.Helper()
	conn, packet := r.requestTFTP(from, server), make([]byte, 1500)
	testkit.Eventually(r.T, "TFTP answers", func() bool {
		testkit.Must(r.T, conn.SetReadDeadline(time.Now().Add(time.Second)))
		n, peer, err := conn.ReadFromUDP(packet)
		if err != nil {
			r.sendTFTP(conn, server)
			return false
		}
		if got := string(packet[:n]); got != "\x00\x03\x00\x01"+want {
			r.Errorf("got %q by TFTP, want the block %q", got, want)
		}
		_, err = conn.WriteToUDP([]byte("\x00\x04\x00\x01"), peer)
		testkit.Must(r.T, err)
		return true
	})
}
