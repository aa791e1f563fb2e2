// Package signedreport stores the reports of programs on machines, such as that a disk was wiped. The machine's agent has signed them.
package signedreport

import (
	"context"
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	// maxReports is how many reports of an install are stored.
	maxReports = 200
	// maxStatementLength is in characters, and maxSignatureLength in bytes.
	maxStatementLength, maxSignatureLength = 12_000, 2000
)

// Report is a signed report.
type Report struct {
	Statement string `json:"statement" doc:"The signed text: a JSON object with the install, the machine's MAC addresses and address, the agent's time, and the report."`
	Signature string `json:"signature" doc:"The signature by the agent's SSH host key, for ssh-keygen -Y verify -n ironplane-report."`
}

// Store stores a report of an install's machine. An install keeps the first maxReports. The texts are limited, because agents are not
// trusted.
func Store(ctx context.Context, tx *pg.Tx, r siteagent.Report) error {
	signature := strings.ReplaceAll(r.Signature[:min(len(r.Signature), maxSignatureLength)], "\x00", "")
	_, err := tx.Exec(ctx, `INSERT INTO install_report (install_id, statement, signature)
		SELECT $1, $2, $3 WHERE (SELECT count(*) FROM install_report WHERE install_id = $1) < $4`,
		r.ID, siteagent.Sanitize(r.Statement, maxStatementLength), strings.ToValidUTF8(signature, ""), maxReports)
	if err != nil {
		return fmt.Errorf("store a signed report: %w", err)
	}
	return nil
}
