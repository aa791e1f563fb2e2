package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	// atOnce is how many files an agent reads from its parent at a time.
	atOnce   = 4
	dialTime = 20 * time.Second
	// mostPulls is of how many orders it is known what became of them, and mostNamed how many files that failed are named.
	mostPulls, mostNamed = 8, 5
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
	getting := &getting{agent: a, pull: p, from: from}
	if parent.SFTP != nil && len(missing) > 0 {
		transfers, err := parent.SFTP.Dial(ctx, (&net.Dialer{Timeout: dialTime}).DialContext, from.Key)
		if err != nil {
			return fmt.Errorf("connect to the parent by SFTP: %w", err)
		}
		defer transfers.Close()
		getting.from = transfers
	}
	getting.all(ctx, missing)
	for _, name := range gone { // also where something is missing: it makes room
		if err := a.tree.Delete(name); err != nil && !errors.Is(err, tree.ErrInTheWay) { // it is a folder now
			return fmt.Errorf("delete %s: %w", name, err)
		}
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

// source gives files from an offset on.
type source interface {
	Open(ctx context.Context, f siteagent.File, offset int64) (io.ReadCloser, error)
}

// getting is how the missing files are got.
type getting struct {
	agent *Agent
	pull  *pull
	from  source

	mu     sync.Mutex
	failed int
	named  []string // the first files that failed, with why
	fatal  error    // why nothing more is got
}

func (g *getting) all(ctx context.Context, missing [][]siteagent.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan []siteagent.File)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for same := range next {
				if ctx.Err() == nil && g.several(ctx, same) {
					cancel()
				}
			}
		})
	}
	for _, same := range missing {
		next <- same
	}
	close(next)
	workers.Wait()
}

// several gets files of one content, and tells whether no others are to be got.
func (g *getting) several(ctx context.Context, same []siteagent.File) (end bool) {
	for _, f := range same {
		err := g.one(ctx, f)
		if err == nil {
			g.pull.files.Add(1)
			continue
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if ctx.Err() != nil {
			return true
		}
		if !ofFile(err) {
			g.fatal = fmt.Errorf("get %s: %w", f.Path, g.explain(err))
			return true
		}
		g.failed += len(same)
		if len(g.named) < mostNamed {
			g.named = append(g.named, f.Path+": "+err.Error())
		}
		return false
	}
	return false
}

// ofFile tells whether an error is this file's alone, so that the others may be got.
func ofFile(err error) bool {
	_, refused := errors.AsType[*siteagent.Refusal](err)
	unauthenticated := siteagent.IsRefusal(err, http.StatusUnauthorized) || siteagent.IsRefusal(err, http.StatusServiceUnavailable)
	return errors.Is(err, tree.ErrContent) || errors.Is(err, tree.ErrInTheWay) || errors.Is(err, tree.ErrBusy) || errors.Is(err, io.ErrUnexpectedEOF) || refused && !unauthenticated
}

func (g *getting) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _, _ := g.agent.tree.Space()
		return fmt.Errorf("the disk is full: %d bytes are free (%w)", free, err)
	}
	return err
}

// one gets a file. What has arrived of it before is gone on with, and once not believed where that makes no whole.
func (g *getting) one(ctx context.Context, f siteagent.File) error {
	offset, err := g.agent.tree.Received(f.SHA256)
	if err != nil {
		return err
	}
	if offset > f.Size {
		offset = 0
	}
	err = g.rest(ctx, f, offset)
	if offset > 0 && errors.Is(err, tree.ErrContent) {
		err = g.rest(ctx, f, 0)
	}
	return err
}

func (g *getting) rest(ctx context.Context, f siteagent.File, offset int64) (err error) {
	counted := &counting{Reader: http.NoBody, pull: g.pull}
	counted.add(offset)
	defer func() {
		if err != nil {
			g.pull.bytes.Add(-counted.n)
		}
	}()
	if offset < f.Size {
		body, err := g.from.Open(ctx, f, offset)
		if err != nil {
			return fmt.Errorf("ask the parent: %w", err)
		}
		defer body.Close()
		counted.Reader = body
	}
	err = g.agent.tree.Receive(ctx, f, offset, counted)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrOffset) { // it has just changed
		return fmt.Errorf("%w: %w", tree.ErrBusy, err)
	}
	return err
}

// outcome is what came of it all.
func (g *getting) outcome(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case g.fatal != nil:
		return g.fatal
	case g.failed == 1:
		return errors.New(strings.Join(g.named, "; "))
	case g.failed > 0:
		return fmt.Errorf("%d files: %s", g.failed, strings.Join(g.named, "; "))
	}
	return nil
}

// counting counts what is read into the progress of a pull.
type counting struct {
	io.Reader
	pull *pull
	n    int64
}

func (c *counting) add(n int64) {
	c.n += n
	c.pull.bytes.Add(n)
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}
