package siteagent

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Machine is what an agent is to do with a machine that asks to boot: the one of an install, by its number.
type Machine struct {
	ID          int64    `json:"id"`       // of the install
	Revision    int64    `json:"revision"` // rises with every change
	MACs        []string `json:"macs"`     // in lower case with colons
	Hostname    string   `json:"hostname,omitempty"`
	IPv4        *Address `json:"ipv4,omitempty"`
	IPv6        *Address `json:"ipv6,omitempty"`
	Nameservers []string `json:"nameservers,omitempty"`
	Boot        string   `json:"boot"`
	Reason      string   `json:"reason,omitempty"` // why it waits
	Token       string   `json:"token,omitempty"`  // of the URLs in the files; without it there are no files. By it goes on who was given his boot script before he was to wait
	Files       Files    `json:"files,omitzero"`
}

// What a machine boots.
const (
	BootInstall = "install" // its boot script, once each time that it boots
	BootWait    = "wait"    // a script that asks again
	BootLocal   = "local"   // its disk
)

// MaxReasonLength is how many bytes a reason can have.
const MaxReasonLength = 500

// TruncateReason is a reason with as many of its bytes.
func TruncateReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxReasonLength)], "")
}

// Address is what a machine is given of one family.
type Address struct {
	Prefix  string `json:"prefix"` // its address and the length of the subnet's prefix: 192.0.2.10/24
	Gateway string `json:"gateway,omitempty"`
}

// Files are what a machine with a token reads, as they were rendered for it.
type Files struct {
	Boot    string `json:"boot,omitempty"` // an iPXE script
	Preseed string `json:"preseed,omitempty"`
	During  string `json:"during,omitempty"`
	After   string `json:"after,omitempty"`
}

// MachineRevision is a machine that an agent knows of.
type MachineRevision struct {
	ID       int64 `json:"id"`
	Revision int64 `json:"revision"`
}

// Report is what a machine asked for or said, in an entry of the feed of the kind machine. Entries of one machine are in the order in
// which it happened.
type Report struct {
	ID       int64             `json:"id,omitempty"`       // of the install; 0: nobody named the machine
	Revision int64             `json:"revision,omitempty"` // that the agent had of it then
	MAC      string            `json:"mac,omitempty"`
	Address  string            `json:"address,omitempty"` // which it asked from, or was leased
	Event    string            `json:"what"`
	Response string            `json:"got"`            // in words: what it was answered
	Step     string            `json:"step,omitempty"` // of progress
	Progress int               `json:"progress,omitempty"`
	Error    string            `json:"error,omitempty"` // of failed
	Facts    map[string]string `json:"facts,omitempty"` // of discovered: uuid, serial, manufacturer, product, firmware, …
}

// What a machine did.
const (
	EventLeased     = "lease"    // it was given an address
	EventWaiting    = "ask"      // it asked for a script, and got one that asks again
	EventBooted     = "boot"     // it was given its boot script
	EventRead       = "read"     // it read a file
	EventProgress   = "progress" // its installer said how far it is
	EventDone       = "done"     // its installer said that it is installed
	EventFailed     = "failed"   // its installer said that it failed
	EventLocal      = "local"    // it was sent to its disk
	EventDiscovered = "discover" // nobody named it, and it said what it is
	EventRefused    = "refused"  // it was given nothing, and why
)

// PutMachine tells an agent what to do with a machine, in the place of what it was told before. A lower revision than it has is
// refused with 409, so that what comes late starts no installation; who has restored his database deletes the machine first.
func (c *Client) PutMachine(ctx context.Context, m Machine) error {
	return c.call(ctx, http.MethodPut, "/v1/machine/"+strconv.FormatInt(m.ID, 10), m, nil)
}

// DeleteMachine has an agent forget a machine. One that it does not know is no error.
func (c *Client) DeleteMachine(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, "/v1/machine/"+strconv.FormatInt(id, 10), nil, nil)
}

// ListMachines are those that an agent knows of.
func (c *Client) ListMachines(ctx context.Context) (machines []MachineRevision, err error) {
	return machines, c.call(ctx, http.MethodGet, "/v1/machine", nil, &machines)
}
