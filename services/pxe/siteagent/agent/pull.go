package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	dialTimeout = 20 * time.Second
	// maxPulls is how many pulls the agent remembers.
	maxPulls = 8
)

// pulls are the newest pulls. Only the last one runs.
type pulls struct {
	next chan siteagent.PullOrder

	mu  sync.Mutex
	all []*pull // the newest last
}

// pull is the state of one pull.
type pull struct {
	id           string
	files, bytes atomic.Int64

	mu    sync.Mutex
	total siteagent.Progress
	state string
	err   string
}

// finish ends the pull: done, or failed if err is not nil.
func (p *pull) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = siteagent.PullDone
	if err != nil {
		p.state, p.err = siteagent.PullFailed, err.Error()
	}
}

// status returns the pull as callers see it.
func (p *pull) status() siteagent.Pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	pull := siteagent.Pull{ID: p.id, State: p.state, Progress: p.total, Error: p.err}
	pull.Files, pull.Bytes = p.files.Load(), p.bytes.Load()
	return pull
}

// find returns a pull, or nil if the agent does not remember it.
func (s *pulls) find(id string) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.IndexFunc(s.all, func(p *pull) bool { return p.id == id }); at >= 0 {
		return s.all[at]
	}
	return nil
}

// add starts a pull, which replaces the one that runs. It ignores a known id, so that the control plane can repeat its request.
func (s *pulls) add(o siteagent.PullOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.all, func(p *pull) bool { return p.id == o.ID }) {
		return
	}
	s.all = append(s.all, &pull{id: o.ID, state: siteagent.PullRunning})
	if excess := len(s.all) - maxPulls; excess > 0 {
		s.all = slices.Clone(s.all[excess:])
	}
	select {
	case replaced := <-s.next: // no pull has started on it
		if at := slices.IndexFunc(s.all, func(p *pull) bool { return p.id == replaced.ID }); at >= 0 {
			s.all[at].finish(errReplaced)
		}
	default:
	}
	s.next <- o
}

var errReplaced = errors.New("another pull replaced this one")

// runPull runs a pull and records its result.
func (a *Agent) runPull(ctx context.Context, o siteagent.PullOrder) {
	p := a.pulls.find(o.ID)
	if p == nil { // newer pulls have pushed it out
		return
	}
	err := a.mirror(ctx, p, o.Parent)
	if ctx.Err() != nil {
		p.finish(errReplaced)
		return
	}
	pull := p.status()
	kind, text := "pulled", fmt.Sprintf("The files are the same as the parent's: %d files with %d bytes.", pull.FilesTotal, pull.BytesTotal)
	if err != nil {
		kind, text = "pull-failed", "The pull failed: "+err.Error()
	}
	if err := errors.Join(a.record(kind, text), a.tree.Save()); err != nil {
		a.log.Error("record pull failed", "error", err)
	}
	p.finish(err)
}

// mirror makes the agent's files the same as the parent's. After an error it keeps the files that it got.
func (a *Agent) mirror(ctx context.Context, p *pull, parent siteagent.Target) error {
	httpClient, err := siteagent.NewHTTPClient(parent.Fingerprint)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	client := &siteagent.Client{URL: parent.URL, Key: secret.New(parent.Token), HTTP: httpClient}
	wanted, err := client.GetManifest(ctx)
	if err != nil {
		return fmt.Errorf("list the parent's files: %w", err)
	}
	have, err := a.manifest(ctx)
	if err != nil {
		return fmt.Errorf("list this agent's files: %w", err)
	}
	missing, obsolete := p.compare(wanted, have)
	if err := a.clearConflicts(missing, obsolete); err != nil {
		return err
	}
	download := &download{agent: a, pull: p, source: client, bundles: client}
	if parent.SFTP != nil && len(missing) > 0 {
		sftpConn, err := parent.SFTP.Dial(ctx, (&net.Dialer{Timeout: dialTimeout}).DialContext, client.Key)
		if err != nil {
			return fmt.Errorf("connect to the parent by SFTP: %w", err)
		}
		defer sftpConn.Close()
		download.source, download.bundles = sftpConn, nil
	}
	download.run(ctx, missing)
	for _, name := range obsolete { // also after errors, because it frees space
		if err := a.tree.Delete(name); err != nil && !errors.Is(err, tree.ErrPathConflict) { // it is a folder now
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	if err := a.tree.Sync(); err != nil {
		return err
	}
	return download.result(ctx)
}

// compare returns the missing files, grouped by content, and the paths that the parent does not have. It counts the rest as done.
func (p *pull) compare(wanted, have []siteagent.File) (missing [][]siteagent.File, obsolete []string) {
	existing := make(map[string]siteagent.File, len(have))
	for _, f := range have {
		existing[f.Path] = f
	}
	bySum := map[string]int{}
	var total siteagent.Progress
	for _, f := range wanted {
		total.FilesTotal++
		total.BytesTotal += f.Size
		same := existing[f.Path] == f
		delete(existing, f.Path)
		if same {
			p.files.Add(1)
			p.bytes.Add(f.Size)
			continue
		}
		at, known := bySum[f.SHA256]
		if !known {
			at = len(missing)
			bySum[f.SHA256], missing = at, append(missing, nil)
		}
		missing[at] = append(missing[at], f)
	}
	for name := range existing {
		obsolete = append(obsolete, name)
	}
	slices.Sort(obsolete)
	p.mu.Lock()
	p.total = total
	p.mu.Unlock()
	return missing, obsolete
}

// clearConflicts deletes obsolete files where a missing file needs a folder, and obsolete folders where it needs a file.
func (a *Agent) clearConflicts(missing [][]siteagent.File, obsolete []string) error {
	for _, files := range missing {
		for _, f := range files {
			below, _ := slices.BinarySearch(obsolete, f.Path+"/")
			for ; below < len(obsolete) && strings.HasPrefix(obsolete[below], f.Path+"/"); below++ {
				if err := a.tree.Delete(obsolete[below]); err != nil {
					return fmt.Errorf("delete %s: %w", obsolete[below], err)
				}
			}
			for at := range len(f.Path) {
				if f.Path[at] != '/' {
					continue
				}
				if _, isObsolete := slices.BinarySearch(obsolete, f.Path[:at]); isObsolete {
					if err := a.tree.Delete(f.Path[:at]); err != nil {
						return fmt.Errorf("delete %s: %w", f.Path[:at], err)
					}
				}
			}
		}
	}
	return nil
}
