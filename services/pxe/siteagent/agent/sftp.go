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
	// mostConnections is how many speak SSH at a time, mostSessions and mostOpen how many sessions and files one of them has.
	mostConnections, mostSessions, mostOpen = 64, 4, 64
	handshakeTime                           = 20 * time.Second
	// silence is how long nothing may arrive of who is connected.
	silence = 10 * time.Minute
	// mostKeys is how long the file with people's keys can be.
	mostKeys = 1 << 20
	// localFolder is what people bring files to: a sync leaves it alone where there is no parent.
	localFolder = "local"
)

// SFTP is how the agent gives and takes files by SFTP.
type SFTP struct {
	HostKey ssh.Signer
	People  string // a file with the public keys of those who bring files, as authorized_keys has them; empty: of nobody
}

// rights are those of who is connected by SSH.
type rights struct {
	reads         func() bool // as long as this is true
	parts, brings bool        // may send what arrives in parts, and bring files to the folder local
}

type rightsKey struct{}

func (r rights) permissions() *ssh.Permissions {
	return &ssh.Permissions{ExtraData: map[any]any{rightsKey{}: r}}
}

func always() bool { return true }

var errNotLetIn = errors.New("neither the API key, nor a token that holds, nor the key of somebody who is let in")

// ServeSFTP lets in, until ctx ends, who has the API key or a token as password, and people by their keys.
func (a *Agent) ServeSFTP(ctx context.Context, listener net.Listener, s SFTP) error {
	config := &ssh.ServerConfig{
		MaxAuthTries: 6, ServerVersion: "SSH-2.0-Ironplane",
		PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			token := string(password)
			switch {
			case a.right(token):
				return rights{always, true, true}.permissions(), nil
			case a.granted(token):
				return rights{reads: func() bool { return a.granted(token) }}.permissions(), nil
			}
			return nil, errNotLetIn
		},
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			people, err := People(s.People)
			if err != nil {
				a.log.Error("the keys of people cannot be read", "error", err)
			}
			for _, one := range people {
				if bytes.Equal(one.Marshal(), key.Marshal()) {
					return rights{always, false, true}.permissions(), nil
				}
			}
			return nil, errNotLetIn
		},
	}
	config.AddHostKey(s.HostKey)
	var serving sync.WaitGroup
	defer serving.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	places := make(chan struct{}, mostConnections)
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection of SSH: %w", err)
		}
		select {
		case places <- struct{}{}:
			serving.Go(func() {
				defer func() { <-places }()
				a.serveSSH(ctx, conn, config)
			})
		default:
			_ = conn.Close()
		}
	}
}

// People are the public keys in a file, which may be replaced at any time; none, where it is not named.
func People(file string) (keys []ssh.PublicKey, err error) {
	if file == "" {
		return nil, nil
	}
	from, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, mostKeys))
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
func (a *Agent) serveSSH(ctx context.Context, plain net.Conn, config *ssh.ServerConfig) {
	defer plain.Close()
	stop := context.AfterFunc(ctx, func() { _ = plain.Close() })
	defer stop()
	late := time.AfterFunc(handshakeTime, func() { _ = plain.Close() })
	conn, channels, requests, err := ssh.NewServerConn(&impatient{plain}, config)
	late.Stop()
	if err != nil {
		return // who was not let in was told so
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer conn.Close()
	serving.Go(func() { ssh.DiscardRequests(requests) })
	may, _ := conn.Permissions.ExtraData[rightsKey{}].(rights)
	var sessions atomic.Int32
	for asked := range channels {
		if asked.ChannelType() != "session" || sessions.Load() >= mostSessions {
			_ = asked.Reject(ssh.Prohibited, "there is SFTP, and nothing else") // who asked may be gone
			continue
		}
		channel, of, err := asked.Accept()
		if err != nil {
			return
		}
		sessions.Add(1)
		serving.Go(func() {
			defer sessions.Add(-1)
			a.serveSession(channel, of, may)
		})
	}
}

// serveSession waits for the wish for SFTP, and speaks that.
func (a *Agent) serveSession(channel ssh.Channel, asked <-chan *ssh.Request, may rights) {
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
		var others sync.WaitGroup
		others.Go(func() { ssh.DiscardRequests(asked) })
		s := &session{agent: a, may: may}
		_ = sftp.NewRequestServer(channel, sftp.Handlers{FileGet: s, FilePut: s, FileCmd: s, FileList: s}).Serve() // ends when the caller leaves
		_, _ = channel.SendRequest("exit-status", false, make([]byte, 4))                                          // which clients wait for
		_ = channel.Close()
		others.Wait()
		return
	}
}

// impatient gives up on who sends nothing, or takes nothing, for a while.
type impatient struct{ net.Conn }

func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(progress)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
