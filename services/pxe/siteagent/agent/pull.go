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
	dialTime = 20 * time.Second
	// mostPulls is of how many orders it is known what became of them.
	mostPulls = 8
)

// pulls are the orders that there are, of which the last one counts.
type pulls struct {
	next chan siteagent.Order

	mu  sync.Mutex
	all []*pull // the newest last
}

// pull is what becomes of an order.
type pull struct {
	id           string
	files, bytes atomic.Int64

	mu    sync.Mutex
	total siteagent.Progress
	state string
	err   string
}

func (p *pull) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = siteagent.Done
	if err != nil {
		p.state, p.err = siteagent.Failed, err.Error()
	}
}

func (p *pull) is() siteagent.Pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := siteagent.Pull{ID: p.id, State: p.state, Progress: p.total, Error: p.err}
	is.Files, is.Bytes = p.files.Load(), p.bytes.Load()
	return is
}

func (s *pulls) find(id string) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.IndexFunc(s.all, func(p *pull) bool { return p.id == id }); at >= 0 {
		return s.all[at]
	}
	return nil
}

// order has a pull done, in place of one that is being done. One that was ordered already is not ordered again.
func (s *pulls) order(o siteagent.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.all, func(p *pull) bool { return p.id == o.ID }) {
		return
	}
	s.all = append(s.all, &pull{id: o.ID, state: siteagent.Running})
	if over := len(s.all) - mostPulls; over > 0 {
		s.all = slices.Clone(s.all[over:])
	}
	select {
	case replaced := <-s.next: // nobody has begun it
		if at := slices.IndexFunc(s.all, func(p *pull) bool { return p.id == replaced.ID }); at >= 0 {
			s.all[at].end(errReplaced)
		}
	default:
	}
	s.next <- o
}

var errReplaced = errors.New("another order has taken its place")

// pull does what it was ordered to, and says what came of it.
func (a *Agent) pull(ctx context.Context, o siteagent.Order) {
	p := a.pulls.find(o.ID)
	if p == nil { // many others were ordered since
		return
	}
	err := a.mirror(ctx, p, o.Parent)
	if ctx.Err() != nil {
		p.end(errReplaced)
		return
	}
	is := p.is()
	kind, text := "pulled", fmt.Sprintf("The files are those of the parent: %d, with %d bytes.", is.FilesTotal, is.BytesTotal)
	if err != nil {
		kind, text = "pull-failed", "The parent's files were not got: "+err.Error()
	}
	if err := errors.Join(a.say(kind, text), a.tree.Save()); err != nil {
		a.log.Error("what came of a pull cannot be kept", "error", err)
	}
	p.end(err)
}

// mirror makes the files those of the parent. What it has got stays, whatever ends it.
func (a *Agent) mirror(ctx context.Context, p *pull, parent siteagent.Target) error {
	asking, err := siteagent.NewHTTP(parent.Fingerprint)
	if err != nil {
		return err
	}
	defer asking.CloseIdleConnections()
	from := &siteagent.Client{URL: parent.URL, Key: secret.New(parent.Token), HTTP: asking}
	wanted, err := from.Manifest(ctx)
	if err != nil {
		return fmt.Errorf("ask the parent for its files: %w", err)
	}
	have, err := a.manifest(ctx)
	if err != nil {
		return fmt.Errorf("look at the files that are there: %w", err)
	}
	missing, gone := p.compare(wanted, have)
	if err := a.clear(missing, gone); err != nil {
		return err
	}
	getting := &getting{agent: a, pull: p, from: from, together: from}
	if parent.SFTP != nil && len(missing) > 0 {
		transfers, err := parent.SFTP.Dial(ctx, (&net.Dialer{Timeout: dialTime}).DialContext, from.Key)
		if err != nil {
			return fmt.Errorf("connect to the parent by SFTP: %w", err)
		}
		defer transfers.Close()
		getting.from, getting.together = transfers, nil
	}
	getting.all(ctx, missing)
	for _, name := range gone { // also where something is missing: it makes room
		if err := a.tree.Delete(name); err != nil && !errors.Is(err, tree.ErrInTheWay) { // it is a folder now
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	if err := a.tree.Sync(); err != nil {
		return err
	}
	return getting.outcome(ctx)
}

// compare finds what is missing, the same contents together, and what the parent does not have.
func (p *pull) compare(wanted, have []siteagent.File) (missing [][]siteagent.File, gone []string) {
	there := make(map[string]siteagent.File, len(have))
	for _, f := range have {
		there[f.Path] = f
	}
	bySum := map[string]int{}
	var total siteagent.Progress
	for _, f := range wanted {
		total.FilesTotal++
		total.BytesTotal += f.Size
		same := there[f.Path] == f
		delete(there, f.Path)
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
	for name := range there {
		gone = append(gone, name)
	}
	slices.Sort(gone)
	p.mu.Lock()
	p.total = total
	p.mu.Unlock()
	return missing, gone
}

// clear deletes what is gone and in the way of what is missing: a file where a folder is to be, or the other way round.
func (a *Agent) clear(missing [][]siteagent.File, gone []string) error {
	for _, same := range missing {
		for _, f := range same {
			below, _ := slices.BinarySearch(gone, f.Path+"/")
			for ; below < len(gone) && strings.HasPrefix(gone[below], f.Path+"/"); below++ {
				if err := a.tree.Delete(gone[below]); err != nil {
					return fmt.Errorf("delete %s: %w", gone[below], err)
				}
			}
			for at := range len(f.Path) {
				if f.Path[at] != '/' {
					continue
				}
				if _, is := slices.BinarySearch(gone, f.Path[:at]); is {
					if err := a.tree.Delete(f.Path[:at]); err != nil {
						return fmt.Errorf("delete %s: %w", f.Path[:at], err)
					}
				}
			}
		}
	}
	return nil
}
