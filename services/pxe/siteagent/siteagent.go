// Package siteagent is how a site agent is spoken to, by the pxe service and by other agents: what is asked and answered over its
// HTTP interface, and a client for that. See docs/do/site-agent.md.
package siteagent

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// File is a file that an agent has, or is to have.
type File struct {
	Path   string `json:"path"` // boot/vmlinuz
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // in hexadecimal digits
}

const (
	// MaxFiles is how many files an agent can have, and MaxFileSize how large one can be.
	MaxFiles      = 500_000
	MaxFileSize   = 1 << 40
	maxPathLength = 1024
	maxNameLength = 255
)

// CheckPath tells what is wrong with the path of a file.
func CheckPath(path string) error {
	switch {
	case path == "." || !fs.ValidPath(path):
		return errors.New("the names in a path, with / between, can be neither empty nor . or .. themselves")
	case len(path) > maxPathLength:
		return fmt.Errorf("a path has at most %d bytes", maxPathLength)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return errors.New("a path is text in UTF-8 without control characters")
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxNameLength {
			return fmt.Errorf("a name in a path has at most %d bytes", maxNameLength)
		}
	}
	return nil
}

// Check tells what is wrong with a file that somebody names.
func (f File) Check() error {
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	if f.Size < 0 || f.Size > MaxFileSize {
		return fmt.Errorf("a file has 0 to %d bytes", int64(MaxFileSize))
	}
	return CheckSHA256(f.SHA256)
}

// CheckSHA256 tells what is wrong with a SHA-256.
func CheckSHA256(text string) error {
	if sum, err := hex.DecodeString(text); err != nil || len(sum) != sha256.Size || strings.ToLower(text) != text {
		return errors.New("a SHA-256 is 64 hexadecimal digits in lower case")
	}
	return nil
}

// Health is how an agent is.
type Health struct {
	Version    string    `json:"version"`
	StartedAt  time.Time `json:"started_at"`
	FreeBytes  int64     `json:"free_bytes"` // where its folder is
	TotalBytes int64     `json:"total_bytes"`
	// MachinesURL is where machines that boot reach it, without a slash at the end; empty: it serves none.
	MachinesURL string `json:"machines_url,omitempty"`
	// MachinesIPv6URL is where those reach it that have no IPv4; empty: nowhere.
	MachinesIPv6URL string `json:"machines_ipv6_url,omitempty"`
}

// Entry is something that an agent has to say.
type Entry struct {
	Number int64     `json:"number"` // from 1, without gaps
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // started, pulled, pull-failed, not-served, machine
	Text   string    `json:"text,omitempty"`
	// Machine is what a machine asked or said, of the kind machine, which has no text.
	Machine *Report `json:"machine,omitempty"`
}

// Feed are the entries behind a number, the oldest first, and how the agent is.
type Feed struct {
	History string  `json:"history"` // another one begins at 1: the agent has lost what it had to say
	Last    int64   `json:"last"`    // the number of the newest entry that there is
	Entries []Entry `json:"entries"`
	Health  Health  `json:"health"`
}

// Grant lets whoever knows a token read what an agent has, for a while.
type Grant struct {
	SHA256  string `json:"sha256"` // of the token
	Seconds int64  `json:"seconds"`
}

// MaxGrantTTL is how long at most a token holds.
const MaxGrantTTL = 24 * time.Hour

// PullOrder has an agent make its files those of its parent.
type PullOrder struct {
	ID     string `json:"id"` // of this one: the agent does one at a time, and a new one takes the place of another
	Parent Target `json:"parent"`
}

// Target is an agent, and what it is asked with.
type Target struct {
	URL         string        `json:"url"`
	Fingerprint string        `json:"fingerprint,omitempty"` // empty: a public authority vouches for its certificate
	Token       string        `json:"token"`
	SFTP        *SFTPEndpoint `json:"sftp,omitempty"` // where its files are read, if that is not where it is asked for them
}

// SFTPEndpoint is where an agent gives and takes files by SFTP. The password is what it is asked with otherwise.
type SFTPEndpoint struct {
	Address string `json:"address"`  // host and port
	HostKey string `json:"host_key"` // as in authorized_keys
}

// The folders that an agent has by SFTP: its files, and what is arriving of others, by the SHA-256 of their content.
const (
	SFTPFiles = "files"
	SFTPParts = "parts"
)

// The states of a pull.
const (
	PullRunning = "running"
	PullDone    = "done"
	PullFailed  = "failed"
)

// Progress is how far it is that an agent gets files.
type Progress struct {
	Files      int64 `json:"files"`
	FilesTotal int64 `json:"files_total"`
	Bytes      int64 `json:"bytes"`
	BytesTotal int64 `json:"bytes_total"`
}

// Pull is what becomes of an order.
type Pull struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Progress
	Error string `json:"error,omitempty"` // of one that failed: why, with the first files that are missing
}

// MaxBundledSize is how large a file can be that is asked for together with others, and MaxBundledFiles how many these are.
const (
	MaxBundledSize  = 64 << 10
	MaxBundledFiles = 256
)

// BundleRequest are files that are asked for by one request. They arrive one behind the other, each behind a line with its size.
type BundleRequest struct {
	Paths []string `json:"paths"`
}

// BundleHeader is that line.
type BundleHeader struct {
	Size int64 `json:"size"`
	// LeftOut says that it does not arrive. Asked for by itself it is refused, with the reason.
	LeftOut bool `json:"left_out,omitempty"`
}

// Received is how much there is of a content.
type Received struct {
	Offset int64 `json:"offset"`
}

// The end of a manifest, behind its last file: what was cut off has none.
type manifestLine struct {
	File
	End   bool `json:"end,omitempty"`
	Files int  `json:"files,omitempty"`
}

// ParseFingerprint reads the SHA-256 of a certificate, as openssl x509 -fingerprint -sha256 prints it, with colons or without.
func ParseFingerprint(text string) (sum [sha256.Size]byte, err error) {
	digits := strings.ReplaceAll(strings.TrimSpace(text), ":", "")
	sum256, err := hex.DecodeString(digits)
	if err != nil || len(sum256) != len(sum) {
		return sum, errors.New("must be the SHA-256 of a certificate: 64 hexadecimal digits, with colons or without")
	}
	return [sha256.Size]byte(sum256), nil
}

// PinnedTLSConfig is how to speak TLS with who has the certificate of this fingerprint, whoever vouches for it; empty: with whom a public
// authority vouches for.
func PinnedTLSConfig(fingerprint string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if fingerprint == "" {
		return config, nil
	}
	want, err := ParseFingerprint(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("the fingerprint %w", err)
	}
	config.InsecureSkipVerify = true // VerifyConnection looks, also at sessions that are resumed
	config.VerifyConnection = func(s tls.ConnectionState) error {
		got := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return ErrFingerprint
		}
		return nil
	}
	return config, nil
}

// ErrFingerprint says that somebody else answers.
var ErrFingerprint = errors.New("its certificate has another fingerprint")
