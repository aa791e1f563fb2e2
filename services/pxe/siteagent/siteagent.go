// Package siteagent defines the HTTP interface of a site agent, and a client for it. The pxe service and other agents use both.
// See docs/do/site-agent.md.
package siteagent

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// File describes a file of an agent.
type File struct {
	Path   string `json:"path"` // boot/vmlinuz
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // in hexadecimal digits, lower case
}

const (
	// MaxFiles is the largest number of files of an agent, and MaxFileSize the largest size of one, in bytes.
	MaxFiles      = 500_000
	MaxFileSize   = 1 << 40
	maxPathLength = 1024
	maxNameLength = 255
)

// CheckPath returns an error if path cannot be the path of a file.
func CheckPath(path string) error {
	switch {
	case path == "." || !fs.ValidPath(path):
		return errors.New("a path must be relative, and its names must not be empty or dots")
	case len(path) > maxPathLength:
		return fmt.Errorf("a path may have at most %d bytes", maxPathLength)
	case !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl):
		return errors.New("a path must be UTF-8 text without control characters")
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxNameLength {
			return fmt.Errorf("a name in a path may have at most %d bytes", maxNameLength)
		}
	}
	return nil
}

// Check returns an error if the path, the size or the SHA-256 is invalid.
func (f File) Check() error {
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	if f.Size < 0 || f.Size > MaxFileSize {
		return fmt.Errorf("a file may have 0 to %d bytes", int64(MaxFileSize))
	}
	return CheckSHA256(f.SHA256)
}

// CheckSHA256 returns an error if text is no SHA-256 in hexadecimal digits.
func CheckSHA256(text string) error {
	if sum, err := hex.DecodeString(text); err != nil || len(sum) != sha256.Size || strings.ToLower(text) != text {
		return errors.New("a SHA-256 must be 64 hexadecimal digits in lower case")
	}
	return nil
}

// Health describes a running agent.
type Health struct {
	Version    string    `json:"version"`
	StartedAt  time.Time `json:"started_at"`
	Now        time.Time `json:"now,omitzero"` // the agent's clock. An agent of an earlier version does not report it
	FreeBytes  int64     `json:"free_bytes"`   // on the disk of the agent's folder
	TotalBytes int64     `json:"total_bytes"`
	// MachinesURL is the base URL for booting machines, without a slash at the end. It is empty if the agent serves none.
	MachinesURL string `json:"machines_url,omitempty"`
	// MachinesIPv6URL is the base URL for machines without IPv4, or empty.
	MachinesIPv6URL string `json:"machines_ipv6_url,omitempty"`
	// DHCP is nil for an agent of an earlier version, which does not report it.
	DHCP *DHCPHealth `json:"dhcp,omitempty"`
	// Problems are texts on what keeps the agent from working. An agent of an earlier version reports none.
	Problems []string `json:"problems,omitempty"`
}

// MinFreeBytes is how much of its disk an agent needs. With less the disk counts as full. The view site_agent_health has the number,
// too.
const MinFreeBytes = 64 << 20

// DHCPHealth describes what an agent offers to machines that boot.
type DHCPHealth struct {
	Mode DHCPMode `json:"mode,omitempty"` // empty: the agent serves no DHCP
	// Networks are the networks of the agent's interface. They are empty if machines may be anywhere, as behind a relay.
	Networks []netip.Prefix `json:"networks,omitempty"`
	TFTP     bool           `json:"tftp,omitempty"`
}

// Serves reports whether machines with an address can get it from the agent.
func (h *DHCPHealth) Serves(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && (len(h.Networks) == 0 || slices.ContainsFunc(h.Networks, func(n netip.Prefix) bool { return n.Contains(a) }))
}

// DHCPMode says what an agent offers by DHCP.
type DHCPMode string

// The modes. An authoritative server offers addresses, and a proxy leaves these to another DHCP server.
const (
	DHCPAuthoritative DHCPMode = "authoritative"
	DHCPProxy         DHCPMode = "proxy"
)

// The bootloaders of an agent, for firmware that cannot load a boot script by itself.
const (
	BootloaderFolder = "local/boot/"
	BootloaderBIOS   = BootloaderFolder + "undionly.kpxe"
	BootloaderUEFI   = BootloaderFolder + "ipxe.efi"
	// LocalBootUEFI finds an installed system on the disk, for firmware that does not go on after iPXE.
	LocalBootUEFI = BootloaderFolder + "local.efi"
	// BootloaderShim and BootloaderGRUB have signatures, for firmware with Secure Boot. Shim loads GRUB from its own folder.
	BootloaderShim = BootloaderFolder + "shimx64.efi"
	BootloaderGRUB = BootloaderFolder + "grubx64.efi"
)

// MissingRequest asks which of some files an agent lacks, and Missing is the answer. A folder counts as a file.
type MissingRequest struct {
	Paths []string `json:"paths"` // at most MaxMissingPaths
}

// Missing are the files that an agent lacks.
type Missing struct {
	Paths []string `json:"paths"`
}

// MaxMissingPaths is the largest number of files in a MissingRequest.
const MaxMissingPaths = 100

// Entry is an entry of an agent's feed.
type Entry struct {
	Number int64     `json:"number"` // from 1, without gaps
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // started, pulled, pull-failed, not-served, machine
	Text   string    `json:"text,omitempty"`
	// Machine is the report of an entry of the kind machine, which has no text.
	Machine *Report `json:"machine,omitempty"`
}

// Feed is a part of an agent's feed, the oldest entry first, with the agent's health.
type Feed struct {
	History string  `json:"history"` // changes when the agent lost its feed; numbers start again from 1 then
	Last    int64   `json:"last"`    // the number of the newest entry
	Entries []Entry `json:"entries"`
	Health  Health  `json:"health"`
}

// Grant lets the holder of a token read an agent's files for some time.
type Grant struct {
	SHA256  string `json:"sha256"` // of the token
	Seconds int64  `json:"seconds"`
}

// MaxGrantTTL is the longest time that a grant may last.
const MaxGrantTTL = 24 * time.Hour

// PullOrder tells an agent to make its files the same as its parent's.
type PullOrder struct {
	ID     string `json:"id"` // an agent runs one pull at a time; another id replaces it
	Parent Target `json:"parent"`
}

// Target is an agent to pull from, and the token for it.
type Target struct {
	URL         string        `json:"url"`
	Fingerprint string        `json:"fingerprint,omitempty"` // of the certificate; empty: a public authority must have signed it
	Token       string        `json:"token"`
	SFTP        *SFTPEndpoint `json:"sftp,omitempty"` // where to read files; nil: over HTTP
}

// SFTPEndpoint is the SFTP server of an agent. Its password is the API key or a token.
type SFTPEndpoint struct {
	Address string `json:"address"`  // host and port
	HostKey string `json:"host_key"` // as in authorized_keys
}

// The folders of an agent's SFTP server: its files, and incomplete contents, named by their SHA-256.
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

// Progress counts the files and bytes of a pull that the agent has.
type Progress struct {
	Files      int64 `json:"files"`
	FilesTotal int64 `json:"files_total"`
	Bytes      int64 `json:"bytes"`
	BytesTotal int64 `json:"bytes_total"`
}

// Pull is the state of a pull.
type Pull struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Progress
	Error string `json:"error,omitempty"` // why it failed, with the first missing files
}

// MaxBundledSize is the largest size of a file in a bundle, in bytes. MaxBundledFiles is the largest number of files in one.
const (
	MaxBundledSize  = 64 << 10
	MaxBundledFiles = 256
)

// BundleRequest requests several small files. The response has each file's content after a line with its BundleHeader.
type BundleRequest struct {
	Paths []string `json:"paths"`
}

// BundleHeader precedes a file's content in a bundle.
type BundleHeader struct {
	Size int64 `json:"size"`
	// LeftOut says that the bundle lacks the file. A request for the file alone is answered with the reason.
	LeftOut bool `json:"left_out,omitempty"`
}

// Received says how many bytes of a content an agent has.
type Received struct {
	Offset int64 `json:"offset"`
}

// manifestLine is a line of a manifest. The last line has End, so that a reader notices a manifest that is cut off.
type manifestLine struct {
	File
	End   bool `json:"end,omitempty"`
	Files int  `json:"files,omitempty"`
}

// ParseFingerprint parses the SHA-256 of a certificate as openssl x509 -fingerprint -sha256 prints it. Colons are optional.
func ParseFingerprint(text string) (sum [sha256.Size]byte, err error) {
	digits := strings.ReplaceAll(strings.TrimSpace(text), ":", "")
	sum256, err := hex.DecodeString(digits)
	if err != nil || len(sum256) != len(sum) {
		return sum, errors.New("must be the SHA-256 of a certificate: 64 hexadecimal digits, with colons or without")
	}
	return [sha256.Size]byte(sum256), nil
}

// PinnedTLSConfig returns a TLS configuration that accepts only the certificate with this fingerprint, with any signature. If the
// fingerprint is empty, a public authority must have signed the certificate.
func PinnedTLSConfig(fingerprint string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if fingerprint == "" {
		return config, nil
	}
	want, err := ParseFingerprint(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("the fingerprint %w", err)
	}
	config.InsecureSkipVerify = true // VerifyConnection checks the certificate, of resumed sessions too
	config.VerifyConnection = func(s tls.ConnectionState) error {
		got := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return ErrFingerprint
		}
		return nil
	}
	return config, nil
}

// ErrFingerprint says that the server has another certificate than the expected one.
var ErrFingerprint = errors.New("the certificate's fingerprint is not the expected one")
