package siteagent

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Machine tells an agent what to do when an install's machine boots.
type Machine struct {
	ID          int64    `json:"id"`       // the install's id
	Revision    int64    `json:"revision"` // grows with every change
	MACs        []string `json:"macs"`     // in lower case, with colons
	Hostname    string   `json:"hostname,omitempty"`
	IPv4        *Address `json:"ipv4,omitempty"`
	IPv6        *Address `json:"ipv6,omitempty"`
	Nameservers []string `json:"nameservers,omitempty"`
	SecureBoot  bool     `json:"secure_boot,omitempty"` // it loads GRUB instead of iPXE
	Boot        string   `json:"boot"`
	Reason      string   `json:"reason,omitempty"` // why the machine waits
	Token       string   `json:"token,omitempty"`  // in the URLs of the files, which are empty without it. A waiting machine that already has its boot script continues with it
	Files       Files    `json:"files,omitzero"`
}

// The actions of Machine.Boot.
const (
	BootInstall = "install" // the boot script, once per boot
	BootWait    = "wait"    // a script that asks again every few seconds
	BootLocal   = "local"   // the machine's disk
)

// MaxReasonLength is the largest length of a reason, in bytes.
const MaxReasonLength = 500

// TruncateReason cuts a reason to MaxReasonLength bytes of valid UTF-8.
func TruncateReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxReasonLength)], "")
}

// Address is a machine's address of one family.
type Address struct {
	Prefix  string `json:"prefix"` // the address with the subnet's prefix length: 192.0.2.10/24
	Gateway string `json:"gateway,omitempty"`
}

// Files are the rendered files that an installing machine reads.
type Files struct {
	Boot    string `json:"boot,omitempty"` // a script for iPXE, or for GRUB
	Preseed string `json:"preseed,omitempty"`
	During  string `json:"during,omitempty"`
	After   string `json:"after,omitempty"`
}

// MachineRevision names a machine that an agent has, and its revision.
type MachineRevision struct {
	ID       int64 `json:"id"`
	Revision int64 `json:"revision"`
	// Unconfirmed says that the machine is to be installed, and that the agent has started since it was told so. The agent gives it no
	// boot script before it is told again: what the agent has stored may be older than its last reports.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

// Report says what a machine requested or reported. It is the content of a feed entry of the kind machine. The reports of one
// machine are in order.
type Report struct {
	ID       int64  `json:"id,omitempty"`       // of the install; 0: an unknown machine
	Revision int64  `json:"revision,omitempty"` // the machine's revision at that time
	MAC      string `json:"mac,omitempty"`
	Address  string `json:"address,omitempty"` // the machine's address
	Event    string `json:"what"`
	Response string `json:"got"`            // what the agent answered, for people
	Step     string `json:"step,omitempty"` // of EventProgress
	Progress int    `json:"progress,omitempty"`
	Error    string `json:"error,omitempty"` // of EventFailed
	// Statement is a signed text of EventStatement, and Signature its signature by the agent's host key, as of ssh-keygen -Y sign.
	Statement string            `json:"statement,omitempty"`
	Signature string            `json:"signature,omitempty"`
	Facts     map[string]string `json:"facts,omitempty"` // of EventDiscovered: uuid, serial, manufacturer, product, firmware, …
}

// The events of Report.Event.
const (
	EventLeased     = "lease"    // the machine got an address
	EventWaiting    = "ask"      // it got a script that asks again
	EventBooted     = "boot"     // it got its boot script
	EventRead       = "read"     // it read a file
	EventProgress   = "progress" // its installer reported progress
	EventStatement  = "report"   // a program on it sent a report, which the agent signed
	EventDone       = "done"     // its installer reported success
	EventFailed     = "failed"   // its installer reported an error
	EventLocal      = "local"    // it was told to boot its disk
	EventDiscovered = "discover" // an unknown machine described itself
	EventRefused    = "refused"  // the agent refused a request
)

// PutMachine creates or replaces a machine. The agent refuses a revision below its own with 409, so that a late request starts no
// installation. After a restore of the database, delete the machine first.
func (c *Client) PutMachine(ctx context.Context, m Machine) error {
	return c.call(ctx, http.MethodPut, "/v1/machine/"+strconv.FormatInt(m.ID, 10), m, nil)
}

// DeleteMachine deletes a machine. It is no error if the machine is missing.
func (c *Client) DeleteMachine(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, "/v1/machine/"+strconv.FormatInt(id, 10), nil, nil)
}

// ListMachines returns the revisions of all machines that the agent has.
func (c *Client) ListMachines(ctx context.Context) (machines []MachineRevision, err error) {
	return machines, c.call(ctx, http.MethodGet, "/v1/machine", nil, &machines)
}
