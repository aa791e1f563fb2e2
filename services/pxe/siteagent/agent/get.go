package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	// atOnce is how many requests for files an agent has at its parent at a time.
	atOnce = 4
	// mostNamed is how many files that failed are named.
	mostNamed = 5
	// So many files that have arrived, or of so many bytes, wait for the disk together, and none for longer until they begin to.
	mostPlaced, mostPlacedBytes, longestWait = 1000, 64 << 20, time.Second
)

// source gives files from an offset on.
type source interface {
	Open(ctx context.Context, f siteagent.File, offset int64) (io.ReadCloser, error)
}

// getting is how the missing files are got.
type getting struct {
	agent    *Agent
	pull     *pull
	from     source
	together *siteagent.Client // of whom small files are asked for together; nil: each by itself
	arrived  chan *tree.Arrived
	end      context.CancelFunc // of all of it

	mu     sync.Mutex
	failed int
	named  []string // the first files that failed, with why
	fatal  error    // why nothing more is got
}

// all gets files, those of the same content together.
func (g *getting) all(ctx context.Context, missing [][]siteagent.File) {
	ctx, g.end = context.WithCancel(ctx)
	defer g.end()
	g.arrived = make(chan *tree.Arrived, mostPlaced)
	next := make(chan [][]siteagent.File)
	var placing, workers sync.WaitGroup
	placing.Go(g.place)
	for range atOnce {
		workers.Go(func() {
			for some := range next {
				g.some(ctx, some)
			}
		})
	}
	for len(missing) > 0 {
		n := 1
		for n < min(
			len(missing), siteagent.MostTogether,
		) && missing[n-1][0].Size <= siteagent.SmallFile && missing[n][0].Size <= siteagent.SmallFile {
			n++
		}
		next <- missing[:n]
		missing = missing[n:]
	}
	close(next)
	workers.Wait()
	close(g.arrived)
	placing.Wait()
}

// place has files seen that have arrived.
func (g *getting) place() {
	for a := range g.arrived {
		all, size := []*tree.Arrived{a}, a.Size
		late := time.After(longestWait)
		for more := true; more && len(all) < mostPlaced && size < mostPlacedBytes; {
			select {
			case <-late:
				more = false
			case a, more = <-g.arrived:
				if more {
					all, size = append(all, a), size+a.Size
				}
			}
		}
		became, err := g.agent.tree.PlaceAll(all)
		for n, a := range all {
			if err == nil && became[n] == nil {
				g.pull.files.Add(1)
				continue
			}
			g.pull.bytes.Add(-a.Size)
			if err == nil {
				g.fail(a.File, 1, became[n])
			}
		}
		if err != nil {
			g.fail(all[0].File, len(all), err)
		}
	}
}

// some gets files of a few contents, from one request as far as that brings them.
func (g *getting) some(ctx context.Context, contents [][]siteagent.File) {
	var asked []siteagent.File
	for _, same := range contents {
		f := same[0]
		if n, err := g.agent.tree.Received(f.SHA256); err == nil && n == 0 && 0 < f.Size && f.Size <= siteagent.SmallFile {
			asked = append(asked, f)
		}
	}
	var bundle *siteagent.Bundle
	if g.together != nil && len(asked) > 1 && ctx.Err() == nil {
		var err error
		if bundle, err = g.together.Together(ctx, asked); err == nil { // or each is asked for by itself, which says what is wrong
			defer bundle.Close()
		}
	}
	for _, same := range contents {
		if ctx.Err() != nil {
			return
		}
		var bundled io.Reader
		if bundle != nil && len(asked) > 0 && same[0] == asked[0] {
			asked = asked[1:]
			var err error
			if bundled, err = bundle.Next(); err != nil {
				bundle = nil
			}
		}
		g.same(ctx, same, bundled)
	}
}

// same gets files of one content.
func (g *getting) same(ctx context.Context, same []siteagent.File, bundled io.Reader) {
	for ; len(same) > 0; same = same[1:] {
		a, err := g.one(ctx, same[0], bundled)
		bundled = nil
		switch {
		case err == nil && a == nil: // it is there already
			g.pull.files.Add(1)
		case err == nil:
			g.copies(ctx, a, same[1:])
			g.arrived <- a
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, tree.ErrInTheWay): // of this one
			g.fail(same[0], 1, err)
		default:
			g.fail(same[0], len(same), err)
			return
		}
	}
}

// copies makes other files of a content that has arrived.
func (g *getting) copies(ctx context.Context, a *tree.Arrived, others []siteagent.File) {
	for _, f := range others {
		copied, err := g.agent.tree.Again(ctx, a, f)
		switch {
		case err == nil:
			g.pull.bytes.Add(f.Size)
			g.arrived <- copied
		case ctx.Err() != nil:
			return
		default:
			g.fail(f, 1, err)
		}
	}
}

// fail notes why so many files are missing, and ends all of it where others would be, too.
func (g *getting) fail(f siteagent.File, files int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ofFile(err) {
		if g.fatal == nil {
			g.fatal = fmt.Errorf("get %s: %w", f.Path, g.explain(err))
		}
		g.end()
		return
	}
	g.failed += files
	if len(g.named) < mostNamed {
		g.named = append(g.named, f.Path+": "+err.Error())
	}
}

// ofFile tells whether an error is this file's alone, so that the others may be got.
func ofFile(err error) bool {
	_, refused := errors.AsType[*siteagent.Refusal](err)
	unauthenticated := siteagent.IsRefusal(err, http.StatusUnauthorized) || siteagent.IsRefusal(err, http.StatusServiceUnavailable)
	return errors.Is(err, tree.ErrContent) || errors.Is(err, tree.ErrInTheWay) || errors.Is(err, tree.ErrBusy) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		refused && !unauthenticated
}

func (g *getting) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _, _ := g.agent.tree.Space()
		return fmt.Errorf("the disk is full: %d bytes are free (%w)", free, err)
	}
	return err
}

// one gets a file. What has arrived of it before is gone on with, and once not believed where that makes no whole; and what came with
// others
// and makes none is asked for by itself.
func (g *getting) one(ctx context.Context, f siteagent.File, bundled io.Reader) (*tree.Arrived, error) {
	if bundled != nil {
		if a, err := g.take(ctx, f, 0, bundled); err == nil || ctx.Err() != nil {
			return a, err
		}
	}
	offset, err := g.agent.tree.Received(f.SHA256)
	if err != nil {
		return nil, err
	}
	if offset > f.Size {
		offset = 0
	}
	a, err := g.rest(ctx, f, offset)
	if offset > 0 && errors.Is(err, tree.ErrContent) {
		a, err = g.rest(ctx, f, 0)
	}
	return a, err
}

// rest gets a file from an offset on.
func (g *getting) rest(ctx context.Context, f siteagent.File, offset int64) (*tree.Arrived, error) {
	if offset == f.Size {
		return g.take(ctx, f, offset, http.NoBody)
	}
	body, err := g.from.Open(ctx, f, offset)
	if err != nil {
		return nil, fmt.Errorf("ask the parent: %w", err)
	}
	defer body.Close()
	return g.take(ctx, f, offset, body)
}

// take takes a file from an offset on, as the pull's progress shows.
func (g *getting) take(ctx context.Context, f siteagent.File, offset int64, from io.Reader) (*tree.Arrived, error) {
	counted := &counting{Reader: from, pull: g.pull}
	counted.add(offset)
	a, err := g.agent.tree.Take(ctx, f, offset, counted)
	if err != nil {
		g.pull.bytes.Add(-counted.n)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrOffset) { // it has just changed
		err = fmt.Errorf("%w: %w", tree.ErrBusy, err)
	}
	return a, err
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
