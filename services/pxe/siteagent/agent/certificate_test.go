package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
)

// A replaced certificate is used from the next connection on.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir())
	file := filepath.Join(r.folder, "certificate")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got the certificate file %v (%v), want the mode 0600", info, err)
	}
	testkit.Must(t, os.Remove(file))
	other, err := agent.LoadOrCreateCertificate(file)
	testkit.Must(t, err)
	testkit.Must(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour))) // file times may be too coarse to differ
	r.client.HTTP.CloseIdleConnections()
	if _, err := r.client.GetHealth(t.Context()); !errors.Is(err, siteagent.ErrFingerprint) {
		t.Errorf("got %v with the old fingerprint, want %v", err, siteagent.ErrFingerprint)
	}
	if r.fingerprint, err = other.Fingerprint(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.clientWith(key).GetHealth(t.Context()); err != nil {
		t.Error(err)
	}
}
