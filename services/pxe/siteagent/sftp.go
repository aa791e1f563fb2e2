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

// SFTPConn give and take an agent's files by SFTP, over one connection.
type SFTPConn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ssh    *ssh.Client
	sftp   *sftp.Client
	stop   func() bool
}

// Dial connects, by this way, to an agent that has this host key, until ctx ends.
func (s SFTPEndpoint) Dial(
	ctx context.Context,
	dial func(ctx context.Context, network, address string) (net.Conn, error),
	password secret.String,
) (*SFTPConn, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read the host key: %w", err)
	}
	config := &ssh.ClientConfig{
		User:              sftpUser,
		Auth:              []ssh.AuthMethod{ssh.Password(password.Reveal())},
		HostKeyAlgorithms: hostKeyAlgorithms(key),
		HostKeyCallback: func(_ string, _ net.Addr, hostKey ssh.PublicKey) error {
			if ssh.FixedHostKey(key)("", nil, hostKey) != nil {
				return ErrHostKey
			}
			return nil
		},
	}
	t := &SFTPConn{}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	conn, err := dial(t.ctx, "tcp", s.Address)
	if err != nil {
		t.cancel(nil)
		return nil, err
	}
	t.stop = context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	timer := time.AfterFunc(requestTimeout, func() { t.cancel(errStalled) })
	defer timer.Stop()
	sshConn, channels, requests, err := ssh.NewClientConn(conn, s.Address, config)
	if err == nil {
		t.ssh = ssh.NewClient(sshConn, channels, requests)
		t.sftp, err = sftp.NewClient(t.ssh, sftp.UseConcurrentWrites(true))
	}
	if err != nil {
		err = t.cause(err)
		t.cancel(nil)
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}

// hostKeyAlgorithms are those that a host with this key signs with.
func hostKeyAlgorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}

// Close ends the connection.
func (t *SFTPConn) Close() {
	_ = t.sftp.Close() // what was moved was closed, or failed
	_ = t.ssh.Close()
	t.cancel(nil)
}

// cause is why something failed, where that was decided here.
func (t *SFTPConn) cause(err error) error {
	if errors.Is(err, ErrHostKey) {
		return ErrHostKey
	}
	return cause(t.ctx, err)
}

// Send sends the rest of a file's content, from an offset of it on. It is a file once Client.Put was told so.
func (t *SFTPConn) Send(f File, offset int64, rest io.Reader) error {
	flags := os.O_WRONLY | os.O_CREATE
	if offset == 0 {
		flags |= os.O_TRUNC
	}
	file, err := t.sftp.OpenFile("/"+SFTPParts+"/"+f.SHA256, flags)
	if err != nil {
		return t.cause(err)
	}
	body := newStallReader(rest, t.cancel)
	defer body.stop()
	_, err = file.Seek(offset, io.SeekStart)
	if err == nil {
		_, err = file.ReadFrom(io.LimitReader(body, f.Size-offset))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return t.cause(err)
	}
	return nil
}

// Open reads a file from an offset on. What arrives is not verified.
func (t *SFTPConn) Open(_ context.Context, f File, offset int64) (io.ReadCloser, error) {
	timer := time.AfterFunc(stallTimeout, func() { t.cancel(errStalled) })
	defer timer.Stop()
	file, err := t.sftp.Open("/" + SFTPFiles + "/" + f.Path)
	if err == nil {
		if _, err = file.Seek(offset, io.SeekStart); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Refusal{404, "There is no such file."}
	}
	if err != nil {
		return nil, t.cause(err)
	}
	return &sftpDownload{newStallReader(bufio.NewReaderSize(file, int(min(readAhead, f.Size-offset))), t.cancel), file, t}, nil
}

type sftpDownload struct {
	*stallReader
	file *sftp.File
	conn *SFTPConn
}

func (d *sftpDownload) Read(p []byte) (int, error) {
	n, err := d.stallReader.Read(p)
	if err != nil && err != io.EOF {
		err = d.conn.cause(err)
	}
	return n, err
}

func (d *sftpDownload) Close() error {
	d.stop()
	return d.file.Close()
}

// Check tells what is wrong with where somebody is told to go.
func (s SFTPEndpoint) Check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil || strings.TrimSpace(s.HostKey) == "" {
		return errors.New("SFTP needs an address with a port, and the host's key")
	}
	return nil
}
