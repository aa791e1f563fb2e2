package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

const (
	// maxSessions and maxOpenFiles bound the sessions and open files of each connection.
	maxSessions, maxOpenFiles = 4, 64
	// loginTimeout is how long a client may take to authenticate.
	loginTimeout = 20 * time.Second
	// idleTimeout is how long a client may send nothing.
	idleTimeout = 10 * time.Minute
	// maxKeysSize is the largest size of the file with authorized keys, in bytes.
	maxKeysSize = 1 << 20
	// localFolder is the folder for uploads by people. A sync without a parent leaves it alone.
	localFolder = "local"
)

// SFTPConfig configures the SFTP server.
type SFTPConfig struct {
	HostKey        ssh.Signer
	AuthorizedKeys string // a file in the form of authorized_keys, whose people may upload; empty: no one may
}

// sftpRights are the rights of an SSH connection.
type sftpRights struct {
	canRead                 func() bool // asked at each access, because a grant expires
	canSendParts, canUpload bool        // may write to the folder parts; may change the folder local
}

// sftpRightsKey is the key of the rights in a connection's ssh.Permissions.
type sftpRightsKey struct{}

func (r sftpRights) permissions() *ssh.Permissions {
	return &ssh.Permissions{ExtraData: map[any]any{sftpRightsKey{}: r}}
}

func always() bool { return true }

var errAccessDenied = errors.New("access denied: use the API key, a token that has not expired, or a registered SSH key")

// ServeSFTP serves SFTP until ctx ends. The API key or a granted token is the password, and people use their keys.
func (a *Agent) ServeSFTP(ctx context.Context, listener net.Listener, s SFTPConfig) error {
	config := &ssh.ServerConfig{
		MaxAuthTries: 6, ServerVersion: "SSH-2.0-Ironplane",
		PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			token := string(password)
			switch {
			case a.isAPIKey(token):
				return sftpRights{always, true, true}.permissions(), nil
			case a.hasGrant(token):
				return sftpRights{canRead: func() bool { return a.hasGrant(token) }}.permissions(), nil
			}
			return nil, errAccessDenied
		},
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			keys, err := ReadAuthorizedKeys(s.AuthorizedKeys)
			if err != nil {
				a.log.Error("read authorized keys failed", "error", err)
			}
			for _, authorized := range keys {
				if bytes.Equal(authorized.Marshal(), key.Marshal()) {
					return sftpRights{always, false, true}.permissions(), nil
				}
			}
			return nil, errAccessDenied
		},
	}
	config.AddHostKey(s.HostKey)
	var serving sync.WaitGroup
	defer serving.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept an SSH connection: %w", err)
		}
		from := share.AddressOf(conn.RemoteAddr())
		if isDroppedEarly(a.limits.logins.Used()) || a.limits.logins.Enter(from) != share.None {
			a.limits.logins.Refuse(from)
			_ = conn.Close()
			continue
		}
		serving.Go(func() { a.serveSSH(ctx, conn, from, config) })
	}
}

// isDroppedEarly decides at random whether a new connection is dropped, while others have not authenticated yet. So an attacker
// who uses many addresses does not keep out everybody else. The probability rises from 30 % at minDropped to 100 % at maxLogins.
func isDroppedEarly(waiting int) bool {
	const minDropped, initial = 10, 0.3
	if waiting < minDropped {
		return false
	}
	return rand.Float64() < initial+(1-initial)*float64(waiting-minDropped)/(maxLogins-minDropped)
}

// ReadAuthorizedKeys reads the public keys in a file. An empty name gives none. The agent reads the file for every connection, so
// that it may be replaced.
func ReadAuthorizedKeys(file string) (keys []ssh.PublicKey, err error) {
	if file == "" {
		return nil, nil
	}
	reader, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	text, err := io.ReadAll(io.LimitReader(reader, maxKeysSize))
	if err != nil {
		return nil, err
	}
	for n, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(line)
		if err == nil && len(options) > 0 {
			err = errors.New("options are not supported")
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// serveSSH serves one connection, which counts as a login until it has authenticated.
func (a *Agent) serveSSH(ctx context.Context, rawConn net.Conn, from netip.Addr, config *ssh.ServerConfig) {
	defer rawConn.Close()
	stop := context.AfterFunc(ctx, func() { _ = rawConn.Close() })
	defer stop()
	timer := time.AfterFunc(a.loginTimeout, func() { _ = rawConn.Close() })
	conn, channels, requests, err := ssh.NewServerConn(&deadlineConn{rawConn}, config)
	timer.Stop()
	a.limits.logins.Leave(from)
	if err != nil {
		return // the handshake has told the client why
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer conn.Close()
	serving.Go(func() { ssh.DiscardRequests(requests) })
	if a.limits.sftpConnections.Enter(from) != share.None {
		a.limits.sftpConnections.Refuse(from)
		return
	}
	defer a.limits.sftpConnections.Leave(from)
	rights, _ := conn.Permissions.ExtraData[sftpRightsKey{}].(sftpRights)
	var sessions atomic.Int32
	for newChannel := range channels {
		if newChannel.ChannelType() != "session" || sessions.Load() >= maxSessions {
			_ = newChannel.Reject(ssh.Prohibited, "only SFTP is supported") // the client may be gone
			continue
		}
		channel, channelRequests, err := newChannel.Accept()
		if err != nil {
			return
		}
		sessions.Add(1)
		serving.Go(func() {
			defer sessions.Add(-1)
			a.serveSession(channel, channelRequests, rights)
		})
	}
}

// serveSession waits for the request for SFTP, and serves it.
func (a *Agent) serveSession(channel ssh.Channel, requests <-chan *ssh.Request, rights sftpRights) {
	defer channel.Close()
	for r := range requests {
		const sftpAsString = "\x00\x00\x00\x04sftp"
		isSFTP := r.Type == "subsystem" && string(r.Payload) == sftpAsString
		if r.WantReply {
			_ = r.Reply(isSFTP, nil) // the client may be gone
		}
		if !isSFTP {
			continue
		}
		var discarding sync.WaitGroup
		discarding.Go(func() { ssh.DiscardRequests(requests) })
		s := &session{agent: a, rights: rights}
		_ = sftp.NewRequestServer(channel, sftp.Handlers{FileGet: s, FilePut: s, FileCmd: s, FileList: s}).Serve() // ends when the client leaves
		_, _ = channel.SendRequest("exit-status", false, make([]byte, 4))                                          // clients wait for it
		_ = channel.Close()
		discarding.Wait()
		return
	}
}

// deadlineConn closes a connection whose client sends or reads nothing for too long.
type deadlineConn struct{ net.Conn }

func (c *deadlineConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(idleTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
