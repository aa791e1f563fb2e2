package pxe_test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// A program on the machine sends reports, such as that a disk was wiped. The agent signs them, and the install keeps them with their
// signatures. What is no report is refused, and so is one after the install has ended.
func TestSignedReports(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	m := b.install("")
	token := b.bootToken(m)
	at := "/i/" + token + "/report"
	form := func(report string) string { return url.Values{"report": {report}}.Encode() }
	for _, invalid := range []string{"", "wiped", "[1]", `{"a": "` + strings.Repeat("x", 8<<10) + `"}`} {
		if got := b.agent.Request("POST", at, m.address, form(invalid)); got.Code != 422 {
			t.Errorf("got the status %d for the report %.20q, want 422", got.Code, invalid)
		}
	}
	b.agent.MustRequest("POST", at, m.address, form(`{"disk": "/dev/sda", "serial": "S1", "method": "zeros"}`))
	b.agent.MustRequest("POST", at, m.address, form(`{"disk": "/dev/sdb", "serial": "S2", "method": "discard"}`))
	b.agent.PostEvent(token, "done", m.address, "")
	if got := b.agent.Request("POST", at, m.address, form(`{}`)); got.Code != 404 {
		t.Errorf("got the status %d for a report after the end, want 404", got.Code)
	}
	i := b.awaitStatus(m, "installed")
	if len(i.Reports) != 2 {
		t.Fatalf("got the reports %+v, want 2", i.Reports)
	}
	for n, serial := range []string{"S1", "S2"} {
		var signed struct {
			Install int64
			MACs    []string
			Address string
			Report  struct{ Serial string }
		}
		testkit.Must(t, json.Unmarshal([]byte(i.Reports[n].Statement), &signed))
		if signed.Install != m.id || signed.MACs[0] != m.mac || signed.Address != m.address || signed.Report.Serial != serial {
			t.Errorf("got the statement %s, want that of install %d on the disk %s", i.Reports[n].Statement, m.id, serial)
		}
	}
	if strings.Contains(b.Do("GET", "/pxe/install", nil).Want(200).Text, "BEGIN SSH SIGNATURE") {
		t.Error("got reports in the list of installs, want them in the install alone")
	}
	b.verifySignature(i.Reports[0].Statement, i.Reports[0].Signature)
}

// verifySignature verifies a signature as docs/do/disks.md shows it, and that another text does not pass.
func (b *bootSite) verifySignature(statement, signature string) {
	b.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		b.Skip("ssh-keygen is not installed; Debian's package openssh-client has it")
	}
	folder := b.TempDir()
	testkit.Must(b, os.WriteFile(filepath.Join(folder, "agents"), []byte("fra1 "+b.agent.HostKey()), 0o600))
	testkit.Must(b, os.WriteFile(filepath.Join(folder, "signature"), []byte(signature), 0o600))
	verify := func(text string) error {
		cmd := exec.CommandContext(b.Context(), "ssh-keygen", "-Y", "verify", "-f", "agents", "-I", "fra1", "-n", "ironplane-report",
			"-s", "signature")
		cmd.Dir, cmd.Stdin = folder, strings.NewReader(text)
		return cmd.Run()
	}
	if err := verify(statement); err != nil {
		b.Errorf("got %v for the signature, want it valid", err)
	}
	if verify(strings.Replace(statement, "S1", "S3", 1)) == nil {
		b.Error("got a valid signature of a changed statement, want it refused")
	}
}
