package machine

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// statement is what an agent signs: the report of a program that runs on a machine, and which machine that was.
type statement struct {
	Install int64           `json:"install"`
	MACs    []string        `json:"macs"`
	Address netip.Addr      `json:"address"`
	At      time.Time       `json:"at"`
	Report  json.RawMessage `json:"report"`
}

// maxStatementReport is the largest report, in bytes.
const maxStatementReport = 8 << 10

// postReport signs a report of an installing machine, and sends it to the control plane.
func (m *Machines) postReport(r *http.Request, from netip.Addr) (string, error) {
	mach, err := m.findInstalling(r, from)
	if err != nil {
		return "", err
	}
	var report map[string]any
	text := r.PostForm.Get("report")
	if len(text) > maxStatementReport || json.Unmarshal([]byte(text), &report) != nil {
		return "", problem.Member("/report", "invalid", "must be a JSON object of at most %d bytes", maxStatementReport)
	}
	if rate, limit := m.limitFor(mach); !rate.allow(limit) {
		return "", problem.New(problem.TooManyRequests, "The machine sends too many reports. Try again in a second.")
	}
	signed, err := json.Marshal(statement{
		Install: mach.ID, MACs: mach.MACs, Address: from, At: time.Now().UTC(), Report: json.RawMessage(text),
	})
	if err != nil {
		return "", err
	}
	next := siteagent.Report{ID: mach.ID, Revision: mach.Revision, MAC: mach.MACs[0], Address: from.String(),
		Event: siteagent.EventStatement, Response: "noted", Statement: string(signed)}
	if m.Sign != nil {
		if next.Signature, err = m.Sign(signed); err != nil {
			return "", err
		}
	}
	if err := m.flush(mach); err != nil {
		return "", err
	}
	return noted, m.sendReport(mach, next)
}
