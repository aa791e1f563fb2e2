// Package agenttest runs a site agent, and plays its machines, for tests of the pxe service.
package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// BootAgent is a running agent whose machines the test plays.
type BootAgent struct {
	*testing.T
	URL    string
	IsDown atomic.Bool // the control plane cannot reach the agent
	Agent  *agent.Agent
	Stop   func()
	// ClockOffset is how far the agent's clock is ahead, in nanoseconds.
	ClockOffset atomic.Int64
	// DHCP is what the agent reports to offer. The default is an authoritative DHCP server for any network, and TFTP.
	DHCP atomic.Pointer[siteagent.DHCPHealth]

	key       secret.String
	folder    string
	onRequest atomic.Pointer[func(*http.Request, string)]
	server    *httptest.Server
}

// NewBootAgent starts an agent with an API key. It stops at the end of the test.
func NewBootAgent(t *testing.T, key string) *BootAgent {
	t.Helper()
	b := &BootAgent{T: t, key: secret.New(key), folder: t.TempDir()}
	b.DHCP.Store(&siteagent.DHCPHealth{Mode: siteagent.DHCPAuthoritative, TFTP: true})
	for _, path := range []string{siteagent.BootloaderBIOS, siteagent.BootloaderUEFI, siteagent.LocalBootUEFI, "linux"} {
		b.WriteFile(path)
	}
	b.Start()
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.IsDown.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		if onRequest := b.onRequest.Load(); onRequest != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			(*onRequest)(r, string(body))
		}
		if offset := time.Duration(b.ClockOffset.Load()); offset != 0 && r.URL.Path == "/v1/feed" {
			b.serveShiftedFeed(w, r, offset)
			return
		}
		b.Agent.Handler().ServeHTTP(w, r)
	}))
	b.URL = b.server.URL
	t.Cleanup(func() {
		b.server.Close()
		b.Stop()
	})
	return b
}

// serveShiftedFeed serves the agent's feed with the times of a clock that is ahead.
func (b *BootAgent) serveShiftedFeed(w http.ResponseWriter, r *http.Request, offset time.Duration) {
	recorder := httptest.NewRecorder()
	b.Agent.Handler().ServeHTTP(recorder, r)
	var feed siteagent.Feed
	if err := json.Unmarshal(recorder.Body.Bytes(), &feed); err != nil {
		b.Error(err)
	}
	feed.Health.Now = feed.Health.Now.Add(offset)
	for i := range feed.Entries {
		feed.Entries[i].At = feed.Entries[i].At.Add(offset)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(feed); err != nil {
		b.Error(err)
	}
}

// HostKey returns the agent's public host key, which verifies its signatures.
func (b *BootAgent) HostKey() string {
	b.Helper()
	key, err := agent.LoadOrCreateHostKey(b.folder + "/ssh-host-key")
	if err != nil {
		b.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(key.PublicKey()))
}

// Restart starts the agent again, with what its folder has.
func (b *BootAgent) Restart() {
	b.Helper()
	b.Stop()
	b.Start()
}

// Snapshot copies the agent's folder. The function that it returns starts the agent again with that copy, as after the restore of a
// virtual machine.
func (b *BootAgent) Snapshot() (restore func()) {
	b.Helper()
	copied := filepath.Join(b.TempDir(), "snapshot")
	if err := os.CopyFS(copied, os.DirFS(b.folder)); err != nil {
		b.Fatal(err)
	}
	return func() {
		b.Helper()
		b.Stop()
		if err := errors.Join(os.RemoveAll(b.folder), os.CopyFS(b.folder, os.DirFS(copied))); err != nil {
			b.Fatal(err)
		}
		b.Start()
	}
}

// WriteFile creates a file of the agent.
func (b *BootAgent) WriteFile(path string) {
	b.Helper()
	path = filepath.Join(b.folder, "files", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("content"), 0o644)); err != nil {
		b.Fatal(err)
	}
}

// RemoveFile deletes a file of the agent.
func (b *BootAgent) RemoveFile(path string) {
	b.Helper()
	if err := os.Remove(filepath.Join(b.folder, "files", path)); err != nil {
		b.Fatal(err)
	}
}

// OnRequest calls do before the agent handles each request of the control plane.
func (b *BootAgent) OnRequest(do func(r *http.Request, body string)) { b.onRequest.Store(&do) }

// Start starts the agent, with what its folder has.
func (b *BootAgent) Start() {
	b.Helper()
	files, err := tree.Open(b.folder)
	if err != nil {
		b.Fatal(err)
	}
	pool := machine.Pool{First: netip.MustParseAddr("10.1.0.100"), Last: netip.MustParseAddr("10.1.0.110"), Bits: 24}
	if b.Agent, err = agent.New(
		files,
		b.key,
		machine.Settings{
			URL: "http://10.1.0.1", Discover: true, Pool: pool, DHCP: func() siteagent.DHCPHealth { return *b.DHCP.Load() },
			Sign: func(text []byte) (string, error) {
				key, err := agent.LoadOrCreateHostKey(b.folder + "/ssh-host-key")
				if err != nil {
					return "", err
				}
				return agent.Sign(key, text)
			},
		},
		"1.2.3",
		slog.New(slog.DiscardHandler),
	); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() { _ = b.Agent.Run(ctx) })
	b.Stop = func() {
		cancel()
		working.Wait()
		if err := errors.Join(b.Agent.Close(), files.Close()); err != nil {
			b.Error(err)
		}
	}
}

// Boot boots a machine and returns the script that it gets.
func (b *BootAgent) Boot(mac, address string) string {
	b.Helper()
	client := machine.Client{MAC: mac, IsBooting: true}
	machines := b.Agent.Machines()
	if !machines.Admit(client) || !machines.ConfirmLease(client, netip.MustParseAddr(address)) {
		b.Fatalf("%s gets no address", mac)
	}
	return b.MustRequest("GET", "/i/boot", address, "")
}

// TryBoot boots a machine if the agent knows its install. It returns the script, and whether the script contains text.
func (b *BootAgent) TryBoot(install int64, mac, address, text string) (script string, ok bool) {
	b.Helper()
	if !slices.ContainsFunc(b.Agent.Machines().Revisions(), func(r siteagent.MachineRevision) bool { return r.ID == install }) {
		return "", false
	}
	script = b.Boot(mac, address)
	return script, strings.Contains(script, text)
}

// Token returns the token in a boot script.
func Token(script string) string { return inScript.FindStringSubmatch(script)[1] }

var inScript = regexp.MustCompile(`/i/([A-Z0-9]+)/preseed`)

// Request sends a machine's request and returns the response.
func (b *BootAgent) Request(method, path, address, form string) *httptest.ResponseRecorder {
	response, request := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(form))
	request.RemoteAddr = address + ":4711"
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	b.Agent.Machines().Handler().ServeHTTP(response, request)
	return response
}

// MustRequest sends a machine's request, and returns the body of a response that must have the status 200.
func (b *BootAgent) MustRequest(method, path, address, form string) string {
	b.Helper()
	response := b.Request(method, path, address, form)
	if response.Code != http.StatusOK {
		b.Errorf("%s %s is answered %d: %s", method, path, response.Code, response.Body)
	}
	return response.Body.String()
}

// PostEvent reports an installer's progress, success or failure.
func (b *BootAgent) PostEvent(token, event, address, form string) {
	b.Helper()
	b.MustRequest("POST", "/i/"+token+"/"+event, address, form)
}

// Reports returns all reports in the agent's feed.
func (b *BootAgent) Reports() (all []siteagent.Report) {
	b.Helper()
	client := &siteagent.Client{URL: b.URL, Key: b.key, HTTP: b.server.Client()}
	for after := int64(0); ; {
		found, err := client.GetFeed(b.Context(), after)
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range found.Entries {
			if after = e.Number; e.Machine != nil {
				all = append(all, *e.Machine)
			}
		}
		if after >= found.Last {
			return all
		}
	}
}
