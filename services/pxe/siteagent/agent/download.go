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
	// maxDownloads is how many requests to the parent run at the same time.
	maxDownloads = 4
	// maxNamedFailures is how many failed files an error names.
	maxNamedFailures = 5
	// Staged files are published in batches, because each batch costs a sync of the disk. A batch is full at maxBatchFiles or
	// maxBatchBytes, and waits batchTimeout at most.
	maxBatchFiles, maxBatchBytes, batchTimeout = 1000, 64 << 20, time.Second
)

// source opens a parent's files from an offset on.
type source interface {
	Open(ctx context.Context, f siteagent.File, offset int64) (io.ReadCloser, error)
}

// download gets the files of one pull that are missing.
type download struct {
	agent   *Agent
	pull    *pull
	source  source
	bundles *siteagent.Client // requests small files together; nil: each alone
	staged  chan *tree.StagedFile
	cancel  context.CancelFunc // ends the whole download

	mu       sync.Mutex
	failures int
	messages []string // of the first failed files
	fatal    error    // the error that ended the download
}

// run gets files, grouped by content: missing has a list of files for each content. It transfers each content once.
func (g *download) run(ctx context.Context, missing [][]siteagent.File) {
	ctx, g.cancel = context.WithCancel(ctx)
	defer g.cancel()
	g.staged = make(chan *tree.StagedFile, maxBatchFiles)
	next := make(chan [][]siteagent.File)
	var publishing, workers sync.WaitGroup
	publishing.Go(g.publish)
	for range maxDownloads {
		workers.Go(func() {
			for contents := range next {
				g.getContents(ctx, contents)
			}
		})
	}
	for len(missing) > 0 {
		n := 1
		for n < min(
			len(missing), siteagent.MaxBundledFiles,
		) && missing[n-1][0].Size <= siteagent.MaxBundledSize && missing[n][0].Size <= siteagent.MaxBundledSize {
			n++
		}
		next <- missing[:n]
		missing = missing[n:]
	}
	close(next)
	workers.Wait()
	close(g.staged)
	publishing.Wait()
}

// publish makes staged files visible, in batches.
func (g *download) publish() {
	for a := range g.staged {
		batch, size := []*tree.StagedFile{a}, a.Size
		timeout := time.After(batchTimeout)
		for more := true; more && len(batch) < maxBatchFiles && size < maxBatchBytes; {
			select {
			case <-timeout:
				more = false
			case a, more = <-g.staged:
				if more {
					batch, size = append(batch, a), size+a.Size
				}
			}
		}
		errs, err := g.agent.tree.PublishAll(batch)
		for n, a := range batch {
			if err == nil && errs[n] == nil {
				g.pull.files.Add(1)
				continue
			}
			g.pull.bytes.Add(-a.Size)
			if err == nil {
				g.recordFailure(a.File, 1, errs[n])
			}
		}
		if err != nil {
			g.recordFailure(batch[0].File, len(batch), err)
		}
	}
}

// getContents gets the files of several contents. It requests the small ones in one bundle.
func (g *download) getContents(ctx context.Context, contents [][]siteagent.File) {
	var small []siteagent.File
	for _, same := range contents {
		f := same[0]
		if n, err := g.agent.tree.Received(f.SHA256); err == nil && n == 0 && 0 < f.Size && f.Size <= siteagent.MaxBundledSize {
			small = append(small, f)
		}
	}
	var bundle *siteagent.Bundle
	if g.bundles != nil && len(small) > 1 && ctx.Err() == nil {
		var err error
		if bundle, err = g.bundles.OpenBundle(ctx, small); err == nil { // or each file is requested alone
			defer bundle.Close()
		}
	}
	for _, same := range contents {
		if ctx.Err() != nil {
			return
		}
		var bundled io.Reader
		if bundle != nil && len(small) > 0 && same[0] == small[0] {
			small = small[1:]
			var err error
			if bundled, err = bundle.Next(); err != nil {
				bundle = nil
			}
		}
		g.getContent(ctx, same, bundled)
	}
}

// getContent gets the files of one content. bundled, unless nil, reads that content.
func (g *download) getContent(ctx context.Context, same []siteagent.File, bundled io.Reader) {
	for ; len(same) > 0; same = same[1:] {
		a, err := g.getFile(ctx, same[0], bundled)
		bundled = nil
		switch {
		case err == nil && a == nil: // the tree has the file already
			g.pull.files.Add(1)
		case err == nil:
			g.copyContent(ctx, a, same[1:])
			g.staged <- a
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, tree.ErrPathConflict): // concerns this path alone
			g.recordFailure(same[0], 1, err)
		default:
			g.recordFailure(same[0], len(same), err)
			return
		}
	}
}

// copyContent stages other files with the content of a staged file.
func (g *download) copyContent(ctx context.Context, a *tree.StagedFile, others []siteagent.File) {
	for _, f := range others {
		copied, err := g.agent.tree.StageCopy(ctx, a, f)
		switch {
		case err == nil:
			g.pull.bytes.Add(f.Size)
			g.staged <- copied
		case ctx.Err() != nil:
			return
		default:
			g.recordFailure(f, 1, err)
		}
	}
}

// recordFailure counts failed files. It ends the download if the error would meet all other files too.
func (g *download) recordFailure(f siteagent.File, files int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isFileError(err) {
		if g.fatal == nil {
			g.fatal = fmt.Errorf("get %s: %w", f.Path, g.describeDiskError(err))
		}
		g.cancel()
		return
	}
	g.failures += files
	if len(g.messages) < maxNamedFailures {
		g.messages = append(g.messages, f.Path+": "+err.Error())
	}
}

// isFileError reports whether an error concerns one file alone, so that the download can go on.
func isFileError(err error) bool {
	_, refused := errors.AsType[*siteagent.Refusal](err)
	unauthenticated := siteagent.IsRefusal(err, http.StatusUnauthorized) || siteagent.IsRefusal(err, http.StatusServiceUnavailable)
	return errors.Is(err, tree.ErrContent) || errors.Is(err, tree.ErrPathConflict) || errors.Is(err, tree.ErrBusy) ||
		errors.Is(err, io.ErrUnexpectedEOF) ||
		refused && !unauthenticated
}

func (g *download) describeDiskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _, _ := g.agent.tree.Space()
		return fmt.Errorf("the disk is full: %d bytes are free (%w)", free, err)
	}
	return err
}

// getFile gets a file. It resumes a part that an earlier pull left, and starts from the beginning if that gives another content.
// If the bundled content is wrong, it requests the file alone.
func (g *download) getFile(ctx context.Context, f siteagent.File, bundled io.Reader) (*tree.StagedFile, error) {
	if bundled != nil {
		if a, err := g.stage(ctx, f, 0, bundled); err == nil || ctx.Err() != nil {
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
	a, err := g.getRest(ctx, f, offset)
	if offset > 0 && errors.Is(err, tree.ErrContent) {
		a, err = g.getRest(ctx, f, 0)
	}
	return a, err
}

// getRest gets a file from an offset on.
func (g *download) getRest(ctx context.Context, f siteagent.File, offset int64) (*tree.StagedFile, error) {
	if offset == f.Size {
		return g.stage(ctx, f, offset, http.NoBody)
	}
	body, err := g.source.Open(ctx, f, offset)
	if err != nil {
		return nil, fmt.Errorf("open the file at the parent: %w", err)
	}
	defer body.Close()
	return g.stage(ctx, f, offset, body)
}

// stage stages a file from an offset on, and counts its bytes in the pull's progress.
func (g *download) stage(ctx context.Context, f siteagent.File, offset int64, from io.Reader) (*tree.StagedFile, error) {
	progress := &progressReader{Reader: from, pull: g.pull}
	progress.count(offset)
	a, err := g.agent.tree.Stage(ctx, f, offset, progress)
	if err != nil {
		g.pull.bytes.Add(-progress.read)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrOffset) { // the file has just changed
		err = fmt.Errorf("%w: %w", tree.ErrBusy, err)
	}
	return a, err
}

// result returns the download's error.
func (g *download) result(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case g.fatal != nil:
		return g.fatal
	case g.failures == 1:
		return errors.New(strings.Join(g.messages, "; "))
	case g.failures > 0:
		return fmt.Errorf("%d files failed, such as %s", g.failures, strings.Join(g.messages, "; "))
	}
	return nil
}

// progressReader counts what it reads in a pull's progress.
type progressReader struct {
	io.Reader
	pull *pull
	read int64
}

func (c *progressReader) count(n int64) {
	c.read += n
	c.pull.bytes.Add(n)
}

func (c *progressReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.count(int64(n))
	return n, err
}
