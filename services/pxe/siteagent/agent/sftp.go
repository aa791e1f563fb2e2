package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const (
	// maxConnections is how many speak SSH at a time, maxSessions and maxOpenFiles how many sessions and files one of them has.
	maxConnections, maxSessions, maxOpenFiles = 64, 4, 64
	handshakeTimeout                          = 20 * time.Second
	// idleTimeout is how long nothing may arrive of who is connected.
	idleTimeout = 10 * time.Minute
	// maxKeysSize is how long the file with people's keys can be.
	maxKeysSize = 1 << 20
	// localFolder is what people bring files to: a sync leaves it alone where there is no parent.
	localFolder = "local"
)

// SFTPConfig is how the agent gives and takes files by SFTP.
type SFTPConfig struct {
	HostKey        ssh.Signer
	AuthorizedKeys string // a file with the public keys of those who bring files, as authorized_keys has them; empty: of nobody
}

// sftpRights are those of who is connected by SSH.
type sftpRights struct {
	canRead                 func() bool // as long as this is true
	canSendParts, canUpload bool        // may send what arrives in parts, and bring files to the folder local
}

type sftpRightsKey struct{}

func (r sftpRights) permissions() *ssh.Permissions {
	return &ssh.Permissions{ExtraData: map[any]any{sftpRightsKey{}: r}}
}

func always() bool { return true }

var errAccessDenied = errors.New("neither the API key, nor a token that holds, nor the key of somebody who is let in")

// ServeSFTP lets in, until ctx ends, who has the API key or a token as password, and people by their keys.
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
				a.log.Error("the keys of people cannot be read", "error", err)
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
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection of SSH: %w", err)
		}
		select {
		case slots <- struct{}{}:
			serving.Go(func() {
				defer func() { <-slots }()
				a.serveSSH(ctx, conn, config)
			})
		default:
			_ = conn.Close()
		}
	}
}

// ReadAuthorizedKeys are the public keys in a file, which may be replaced at any time; none, where it is not named.
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
			err = errors.New("options are not understood")
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// serveSSH serves one connection.
func (a *Agent) serveSSH(ctx context.Context, rawConn net.Conn, config *ssh.ServerConfig) {
	defer rawConn.Close()
	stop := context.AfterFunc(ctx, func() { _ = rawConn.Close() })
	defer stop()
	timer := time.AfterFunc(handshakeTimeout, func() { _ = rawConn.Close() })
	conn, channels, requests, err := ssh.NewServerConn(&deadlineConn{rawConn}, config)
	timer.Stop()
	if err != nil {
		return // who was not let in was told so
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer conn.Close()
	serving.Go(func() { ssh.DiscardRequests(requests) })
	rights, _ := conn.Permissions.ExtraData[sftpRightsKey{}].(sftpRights)
	var sessions atomic.Int32
	for asked := range channels {
		if asked.ChannelType() != "session" || sessions.Load() >= maxSessions {
			_ = asked.Reject(ssh.Prohibited, "there is SFTP, and nothing else") // who asked may be gone
			continue
		}
		channel, channelRequests, err := asked.Accept()
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

// serveSession waits for the wish for SFTP, and speaks that.
func (a *Agent) serveSession(channel ssh.Channel, asked <-chan *ssh.Request, rights sftpRights) {
	defer channel.Close()
	for r := range asked {
		const sftpAsString = "\x00\x00\x00\x04sftp"
		isSFTP := r.Type == "subsystem" && string(r.Payload) == sftpAsString
		if r.WantReply {
			_ = r.Reply(isSFTP, nil) // who asked may be gone
		}
		if !isSFTP {
			continue
		}
		var discarding sync.WaitGroup
		discarding.Go(func() { ssh.DiscardRequests(asked) })
		s := &session{agent: a, rights: rights}
		_ = sftp.NewRequestServer(channel, sftp.Handlers{FileGet: s, FilePut: s, FileCmd: s, FileList: s}).Serve() // ends when the caller leaves
		_, _ = channel.SendRequest("exit-status", false, make([]byte, 4))                                          // which clients wait for
		_ = channel.Close()
		discarding.Wait()
		return
	}
}

// deadlineConn gives up on who sends nothing, or takes nothing, for a while.
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
