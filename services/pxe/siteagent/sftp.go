package siteagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	sftpUser = "ironplane" // any does
	// readAhead is how much of a file is asked for at once.
	readAhead = 1 << 20
)

// ErrHostKey says that somebody else answers.
var ErrHostKey = errors.New("its SSH host key is another one")

// Transfers give and take an agent's files by SFTP, over one connection.
type Transfers struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	ssh  *ssh.Client
	sftp *sftp.Client
	stop func() bool
}

// Dial connects, by this way, to an agent that has this host key, until ctx ends.
func (s SFTP) Dial(
	ctx context.Context,
	dial func(ctx context.Context, network, address string) (net.Conn, error),
	password secret.String,
) (*Transfers, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read the host key: %w", err)
	}
	config := &ssh.ClientConfig{User: sftpUser, Auth: []ssh.AuthMethod{ssh.Password(password.Reveal())}, HostKeyAlgorithms: algorithms(key),
		HostKeyCallback: func(_ string, _ net.Addr, is ssh.PublicKey) error {
			if ssh.FixedHostKey(key)("", nil, is) != nil {
				return ErrHostKey
			}
			return nil
		}}
	t := &Transfers{}
	t.ctx, t.end = context.WithCancelCause(ctx)
	conn, err := dial(t.ctx, "tcp", s.Address)
	if err != nil {
		t.end(nil)
		return nil, err
	}
	t.stop = context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	late := time.AfterFunc(askTime, func() { t.end(errStalled) })
	defer late.Stop()
	over, channels, requests, err := ssh.NewClientConn(conn, s.Address, config)
	if err == nil {
		t.ssh = ssh.NewClient(over, channels, requests)
		t.sftp, err = sftp.NewClient(t.ssh, sftp.UseConcurrentWrites(true))
	}
	if err != nil {
		err = t.caused(err)
		t.end(nil)
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

// algorithms are those that a host with this key signs with.
func algorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}

// Close ends the connection.
func (t *Transfers) Close() {
	_ = t.sftp.Close() // what was moved was closed, or failed
	_ = t.ssh.Close()
	t.end(nil)
}

// caused is why something failed, where that was decided here.
func (t *Transfers) caused(err error) error {
	if errors.Is(err, ErrHostKey) {
		return ErrHostKey
	}
	return caused(t.ctx, err)
}

// Send sends the rest of a file's content, from an offset of it on. It is a file once Client.Put was told so.
func (t *Transfers) Send(f File, offset int64, rest io.Reader) error {
	flags := os.O_WRONLY | os.O_CREATE
	if offset == 0 {
		flags |= os.O_TRUNC
	}
	to, err := t.sftp.OpenFile("/"+SFTPParts+"/"+f.SHA256, flags)
	if err != nil {
		return t.caused(err)
	}
	body := watch(rest, t.end)
	defer body.stop()
	_, err = to.Seek(offset, io.SeekStart)
	if err == nil {
		_, err = to.ReadFrom(io.LimitReader(body, f.Size-offset))
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return t.caused(err)
	}
	return nil
}

// Open reads a file from an offset on. What arrives is not verified.
func (t *Transfers) Open(_ context.Context, f File, offset int64) (io.ReadCloser, error) {
	late := time.AfterFunc(stallTime, func() { t.end(errStalled) })
	defer late.Stop()
	from, err := t.sftp.Open("/" + SFTPFiles + "/" + f.Path)
	if err == nil {
		if _, err = from.Seek(offset, io.SeekStart); err != nil {
			err = errors.Join(err, from.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Refusal{404, "There is no such file."}
	}
	if err != nil {
		return nil, t.caused(err)
	}
	return &sftpDownload{watch(bufio.NewReaderSize(from, int(min(readAhead, f.Size-offset))), t.end), from, t}, nil
}

type sftpDownload struct {
	*watched
	file *sftp.File
	over *Transfers
}

func (d *sftpDownload) Read(p []byte) (int, error) {
	n, err := d.watched.Read(p)
	if err != nil && err != io.EOF {
		err = d.over.caused(err)
	}
	return n, err
}

func (d *sftpDownload) Close() error {
	d.stop()
	return d.file.Close()
}

// Check tells what is wrong with where somebody is told to go.
func (s SFTP) Check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil || strings.TrimSpace(s.HostKey) == "" {
		return errors.New("SFTP needs an address with a port, and the host's key")
	}
	return nil
}
