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
	sftpUser = "ironplane" // agents accept any user name
	// readAhead is the largest buffer for reading a file.
	readAhead = 1 << 20
)

// ErrHostKey says that the server has another host key than the expected one.
var ErrHostKey = errors.New("the SSH host key is not the expected one")

// SFTPConn transfers files to and from an agent over one SFTP connection.
type SFTPConn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ssh    *ssh.Client
	sftp   *sftp.Client
	stop   func() bool
}

// Dial connects to the endpoint. It fails with ErrHostKey if the server's host key differs. The connection ends with ctx.
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
	c := &SFTPConn{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	conn, err := dial(c.ctx, "tcp", s.Address)
	if err != nil {
		c.cancel(nil)
		return nil, err
	}
	c.stop = context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	timer := time.AfterFunc(requestTimeout, func() { c.cancel(errStalled) })
	defer timer.Stop()
	sshConn, channels, requests, err := ssh.NewClientConn(conn, s.Address, config)
	if err == nil {
		c.ssh = ssh.NewClient(sshConn, channels, requests)
		c.sftp, err = sftp.NewClient(c.ssh, sftp.UseConcurrentWrites(true))
	}
	if err != nil {
		err = c.cause(err)
		c.cancel(nil)
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// hostKeyAlgorithms returns the signature algorithms of a host key.
func hostKeyAlgorithms(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}

// Close ends the connection.
func (c *SFTPConn) Close() {
	_ = c.sftp.Close() // each transfer has reported its own errors
	_ = c.ssh.Close()
	c.cancel(nil)
}

// cause returns ErrHostKey or errStalled if that ended the connection, and err otherwise.
func (c *SFTPConn) cause(err error) error {
	if errors.Is(err, ErrHostKey) {
		return ErrHostKey
	}
	return cause(c.ctx, err)
}

// Send uploads a file's content from an offset on. The file becomes visible only after Client.Put.
func (c *SFTPConn) Send(f File, offset int64, rest io.Reader) error {
	flags := os.O_WRONLY | os.O_CREATE
	if offset == 0 {
		flags |= os.O_TRUNC
	}
	file, err := c.sftp.OpenFile("/"+SFTPParts+"/"+f.SHA256, flags)
	if err != nil {
		return c.cause(err)
	}
	body := newStallReader(rest, c.cancel)
	defer body.stop()
	_, err = file.Seek(offset, io.SeekStart)
	if err == nil {
		_, err = file.ReadFrom(io.LimitReader(body, f.Size-offset))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return c.cause(err)
	}
	return nil
}

// Open reads a file from an offset on. The caller has to verify the content.
func (c *SFTPConn) Open(_ context.Context, f File, offset int64) (io.ReadCloser, error) {
	timer := time.AfterFunc(stallTimeout, func() { c.cancel(errStalled) })
	defer timer.Stop()
	file, err := c.sftp.Open("/" + SFTPFiles + "/" + f.Path)
	if err == nil {
		if _, err = file.Seek(offset, io.SeekStart); err != nil {
			err = errors.Join(err, file.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Refusal{404, "There is no such file."}
	}
	if err != nil {
		return nil, c.cause(err)
	}
	return &sftpDownload{newStallReader(bufio.NewReaderSize(file, int(min(readAhead, f.Size-offset))), c.cancel), file, c}, nil
}

// sftpDownload is an open remote file. Reading it fails with the cause that ended the connection.
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

// Check returns an error if the address has no port or the host key is missing.
func (s SFTPEndpoint) Check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil || strings.TrimSpace(s.HostKey) == "" {
		return errors.New("SFTP needs an address with a port, and the SSH host key")
	}
	return nil
}
