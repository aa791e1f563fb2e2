// Package tftp serves files to firmware: RFC 1350 with the options of RFC 2347 to 2349, and windows of RFC 7440. It is read-only.
package tftp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

const (
	opRead, opWrite, opData, opAck, opError, opOptionsAck = 1, 2, 3, 4, 5, 6

	codeNotFound, codeAccess, codeIllegal = 1, 2, 4

	defaultBlockSize = 512
	// maxBlockSize makes packets fit into an Ethernet frame, because firmware often loses fragments.
	minBlockSize, maxBlockSize = 8, 1468
	maxWindow                  = 64
	maxPacketSize              = 1500
	maxAttempts                = 6
	resendTimeout              = time.Second // until a packet is sent again
	// maxResendTimeout is the longest one that a client may ask for, in seconds.
	maxResendTimeout = 5
	transferTimeout  = time.Hour
)

// Files opens files by name.
type Files interface {
	Open(name string) (*os.File, fs.FileInfo, error)
}

// Server answers TFTP requests.
type Server struct {
	Files Files
	// Generate returns a file that is made for a client; nil: there are none.
	Generate func(name string, to netip.Addr) (text string, ok bool)
	Log      *slog.Logger
	Refusals *share.Refusals

	table *table
}

// Serve answers requests that arrive at conn until ctx ends. It closes conn.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	s.table = newTable(s.Refusals)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var transfers sync.WaitGroup
	defer transfers.Wait()
	local, _ := conn.LocalAddr().(*net.UDPAddr)
	packet := make([]byte, maxPacketSize)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read TFTP: %w", err)
		}
		r, refused := parse(packet[:n])
		if refused != nil {
			_, _ = conn.WriteToUDPAddrPort(refused.packet(), from) // the client may be gone
			continue
		}
		if r == nil {
			continue
		}
		e := s.table.start(ctx, from)
		if e == nil {
			continue
		}
		transfers.Go(func() {
			defer s.table.end(e)
			if err := s.transfer(e, local, r); err != nil && e.ctx.Err() == nil {
				s.Log.Info("TFTP transfer failed", "file", r.name, "to", from, "error", err)
			}
		})
	}
}

// refusal is an error packet.
type refusal struct {
	code uint16
	text string
}

// Error returns the message for the client.
func (r *refusal) Error() string { return r.text }

func (r *refusal) packet() []byte {
	p := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, opError), r.code)
	return append(append(p, r.text...), 0)
}

// request is a parsed read request.
type request struct {
	name      string
	block     int
	window    int64
	timeout   time.Duration
	wantsSize bool     // the client wants to know the file's size
	options   []string // accepted options with their values, without tsize
}

// parse parses a request. It returns nil and nil for a packet that needs no reply.
func parse(packet []byte) (*request, *refusal) {
	if len(packet) < 2 {
		return nil, nil
	}
	switch binary.BigEndian.Uint16(packet) {
	case opRead:
	case opWrite:
		return nil, &refusal{codeAccess, "files are read-only"}
	default:
		return nil, nil
	}
	fields := strings.Split(string(packet[2:]), "\x00")
	if len(fields) < 3 || fields[len(fields)-1] != "" {
		return nil, &refusal{codeIllegal, "the request is incomplete"}
	}
	fields = fields[:len(fields)-1]
	if !strings.EqualFold(fields[1], "octet") {
		return nil, &refusal{codeIllegal, "the mode must be octet"}
	}
	r := &request{
		name:    strings.TrimLeft(strings.ReplaceAll(fields[0], `\`, "/"), "/"),
		block:   defaultBlockSize,
		window:  1,
		timeout: resendTimeout,
	}
	for options := fields[2:]; len(options) >= 2; options = options[2:] {
		name := strings.ToLower(options[0])
		n, err := strconv.Atoi(options[1])
		if err != nil || n < 0 {
			continue // RFC 2347: omit options that are not understood
		}
		switch {
		case name == "blksize" && n >= minBlockSize:
			r.block = min(n, maxBlockSize)
			r.acceptOption(name, r.block)
		case name == "windowsize" && n >= 1:
			r.window = int64(min(n, maxWindow))
			r.acceptOption(name, int(r.window))
		case name == "timeout" && n >= 1 && n <= maxResendTimeout: // RFC 2349 lets the server accept the client's value or none
			r.timeout = time.Duration(n) * time.Second
			r.acceptOption(name, n)
		case name == "tsize":
			r.wantsSize = true
		}
	}
	return r, nil
}

// acceptOption adds an option to those that the server accepts.
func (r *request) acceptOption(name string, n int) {
	r.options = append(r.options, name, strconv.Itoa(n))
}

// optionsAck returns the packet that accepts options, or nil if there are none.
func (r *request) optionsAck(size int64) []byte {
	options := r.options
	if r.wantsSize {
		options = append(options, "tsize", strconv.FormatInt(size, 10))
	}
	if len(options) == 0 {
		return nil
	}
	return append(binary.BigEndian.AppendUint16(nil, opOptionsAck), strings.Join(options, "\x00")+"\x00"...)
}

// transfer sends a file from a port of its own.
func (s *Server) transfer(e *entry, local *net.UDPAddr, r *request) error {
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: local.IP, Zone: local.Zone}, net.UDPAddrFromAddrPort(e.client))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(e.ctx, transferTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	file, size, err := s.open(r.name, e.client.Addr().Unmap())
	if err != nil {
		refused := &refusal{codeNotFound, "there is no such file"}
		if !errors.Is(err, fs.ErrNotExist) {
			s.Log.Error("open file failed", "file", r.name, "error", err)
		}
		_, err := conn.Write(refused.packet())
		return err
	}
	defer file.Close()
	t := &transfer{request: r, entry: e, conn: conn, file: file, size: size}
	t.last = t.size/int64(r.block) + 1
	if optionsAck := r.optionsAck(t.size); optionsAck != nil {
		if err := t.sendUntilAcked(func() error { _, err := conn.Write(optionsAck); return err }, 0); err != nil {
			return err
		}
	}
	for t.acked < t.last {
		if err := t.sendUntilAcked(t.send, min(t.window, t.last-t.acked)); err != nil {
			return err
		}
	}
	return nil
}

// file is an open file.
type file interface {
	io.ReaderAt
	io.Closer
}

// text is an open generated file.
type text struct{ *strings.Reader }

func (text) Close() error { return nil }

// open opens a file for a client, and returns its size.
func (s *Server) open(name string, to netip.Addr) (file, int64, error) {
	if s.Generate != nil {
		if content, ok := s.Generate(name, to); ok {
			return text{strings.NewReader(content)}, int64(len(content)), nil
		}
	}
	opened, info, err := s.Files.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return opened, info.Size(), nil
}

// transfer is a transfer in progress.
type transfer struct {
	*request
	*entry
	conn  *net.UDPConn
	file  file
	size  int64
	last  int64 // number of the last block
	acked int64 // number of the last acknowledged block
	out   []byte
}

// send sends the blocks of the next window.
func (t *transfer) send() error {
	n := min(t.window, t.last-t.acked)
	if t.out == nil {
		t.out = make([]byte, 4+t.block)
		binary.BigEndian.PutUint16(t.out, opData)
	}
	for block := t.acked + 1; block <= t.acked+n; block++ {
		offset := (block - 1) * int64(t.block)
		length := min(int64(t.block), t.size-offset)
		if _, err := t.file.ReadAt(t.out[4:4+length], offset); err != nil && !(errors.Is(err, io.EOF) && length == 0) {
			refused := &refusal{0, "the file cannot be read"}
			_, _ = t.conn.Write(refused.packet()) // the client also notices when nothing arrives
			return err
		}
		binary.BigEndian.PutUint16(t.out[2:], uint16(block))
		if _, err := t.conn.Write(t.out[:4+length]); err != nil {
			return err
		}
	}
	return nil
}

// sendUntilAcked calls send until the client acknowledges one of the next blocks; with blocks 0, until it acknowledges the current
// one. It ignores a repeated acknowledgement, so that no block is sent twice for it. It resends once, if that acknowledgement
// shows that a window's first block was lost.
func (t *transfer) sendUntilAcked(send func() error, blocks int64) error {
	var packet [maxPacketSize]byte
	for range maxAttempts {
		if err := send(); err != nil {
			return err
		}
		mayResend := t.window > 1 && blocks > 1
		if err := t.conn.SetReadDeadline(time.Now().Add(t.timeout)); err != nil {
			return err
		}
		for {
			n, err := t.conn.Read(packet[:])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if n < 4 {
				continue
			}
			switch code, number := binary.BigEndian.Uint16(packet[:]), binary.BigEndian.Uint16(packet[2:]); code {
			case opError:
				text, _, _ := bytes.Cut(packet[4:n], []byte{0})
				return fmt.Errorf("the client reported an error: %q", text)
			case opAck:
				newlyAcked := int64(number - uint16(t.acked))
				if newlyAcked <= blocks && (newlyAcked > 0 || blocks == 0) {
					t.isAcked.Store(true)
					t.acked += newlyAcked
					return nil
				}
				if newlyAcked == 0 && mayResend {
					mayResend = false
					if err := send(); err != nil {
						return err
					}
				}
			}
		}
	}
	return errors.New("the client does not respond")
}
