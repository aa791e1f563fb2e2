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
func (d *download) run(ctx context.Context, missing [][]siteagent.File) {
	ctx, d.cancel = context.WithCancel(ctx)
	defer d.cancel()
	d.staged = make(chan *tree.StagedFile, maxBatchFiles)
	next := make(chan [][]siteagent.File)
	var publishing, workers sync.WaitGroup
	publishing.Go(d.publish)
	for range maxDownloads {
		workers.Go(func() {
			for contents := range next {
				d.getContents(ctx, contents)
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
	close(d.staged)
	publishing.Wait()
}

// publish makes staged files visible, in batches.
func (d *download) publish() {
	for staged := range d.staged {
		batch, size := []*tree.StagedFile{staged}, staged.Size
		timeout := time.After(batchTimeout)
		for more := true; more && len(batch) < maxBatchFiles && size < maxBatchBytes; {
			select {
			case <-timeout:
				more = false
			case staged, more = <-d.staged:
				if more {
					batch, size = append(batch, staged), size+staged.Size
				}
			}
		}
		errs, err := d.agent.tree.PublishAll(batch)
		for n, staged := range batch {
			if err == nil && errs[n] == nil {
				d.pull.files.Add(1)
				continue
			}
			d.pull.bytes.Add(-staged.Size)
			if err == nil {
				d.recordFailure(staged.File, 1, errs[n])
			}
		}
		if err != nil {
			d.recordFailure(batch[0].File, len(batch), err)
		}
	}
}

// getContents gets the files of several contents. It requests the small ones in one bundle.
func (d *download) getContents(ctx context.Context, contents [][]siteagent.File) {
	var small []siteagent.File
	for _, files := range contents {
		f := files[0]
		if n, err := d.agent.tree.Received(f.SHA256); err == nil && n == 0 && 0 < f.Size && f.Size <= siteagent.MaxBundledSize {
			small = append(small, f)
		}
	}
	var bundle *siteagent.Bundle
	if d.bundles != nil && len(small) > 1 && ctx.Err() == nil {
		var err error
		if bundle, err = d.bundles.OpenBundle(ctx, small); err == nil { // or each file is requested alone
			defer bundle.Close()
		}
	}
	for _, files := range contents {
		if ctx.Err() != nil {
			return
		}
		var bundled io.Reader
		if bundle != nil && len(small) > 0 && files[0] == small[0] {
			small = small[1:]
			var err error
			if bundled, err = bundle.Next(); err != nil {
				bundle = nil
			}
		}
		d.getContent(ctx, files, bundled)
	}
}

// getContent gets the files of one content. bundled, unless nil, reads that content.
func (d *download) getContent(ctx context.Context, files []siteagent.File, bundled io.Reader) {
	for ; len(files) > 0; files = files[1:] {
		staged, err := d.getFile(ctx, files[0], bundled)
		bundled = nil
		switch {
		case err == nil && staged == nil: // the tree has the file already
			d.pull.files.Add(1)
		case err == nil:
			d.copyContent(ctx, staged, files[1:])
			d.staged <- staged
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, tree.ErrPathConflict): // concerns this path alone
			d.recordFailure(files[0], 1, err)
		default:
			d.recordFailure(files[0], len(files), err)
			return
		}
	}
}

// copyContent stages other files with the content of a staged file.
func (d *download) copyContent(ctx context.Context, staged *tree.StagedFile, others []siteagent.File) {
	for _, f := range others {
		copied, err := d.agent.tree.StageCopy(ctx, staged, f)
		switch {
		case err == nil:
			d.pull.bytes.Add(f.Size)
			d.staged <- copied
		case ctx.Err() != nil:
			return
		default:
			d.recordFailure(f, 1, err)
		}
	}
}

// recordFailure counts failed files. It ends the download if the error would meet all other files too.
func (d *download) recordFailure(f siteagent.File, files int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !isFileError(err) {
		if d.fatal == nil {
			d.fatal = fmt.Errorf("get %s: %w", f.Path, d.describeDiskError(err))
		}
		d.cancel()
		return
	}
	d.failures += files
	if len(d.messages) < maxNamedFailures {
		d.messages = append(d.messages, f.Path+": "+err.Error())
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

// describeDiskError adds the free space to the error of a full disk.
func (d *download) describeDiskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		free, _, _ := d.agent.tree.Space()
		return fmt.Errorf("the disk is full: %d bytes are free (%w)", free, err)
	}
	return err
}

// getFile gets a file. It resumes a part that an earlier pull left, and starts from the beginning if that gives another content.
// If the bundled content is wrong, it requests the file alone.
func (d *download) getFile(ctx context.Context, f siteagent.File, bundled io.Reader) (*tree.StagedFile, error) {
	if bundled != nil {
		if staged, err := d.stage(ctx, f, 0, bundled); err == nil || ctx.Err() != nil {
			return staged, err
		}
	}
	offset, err := d.agent.tree.Received(f.SHA256)
	if err != nil {
		return nil, err
	}
	if offset > f.Size {
		offset = 0
	}
	staged, err := d.getRest(ctx, f, offset)
	if offset > 0 && errors.Is(err, tree.ErrContent) {
		staged, err = d.getRest(ctx, f, 0)
	}
	return staged, err
}

// getRest gets a file from an offset on.
func (d *download) getRest(ctx context.Context, f siteagent.File, offset int64) (*tree.StagedFile, error) {
	if offset == f.Size {
		return d.stage(ctx, f, offset, http.NoBody)
	}
	body, err := d.source.Open(ctx, f, offset)
	if err != nil {
		return nil, fmt.Errorf("open the file at the parent: %w", err)
	}
	defer body.Close()
	return d.stage(ctx, f, offset, body)
}

// stage stages a file from an offset on, and counts its bytes in the pull's progress.
func (d *download) stage(ctx context.Context, f siteagent.File, offset int64, from io.Reader) (*tree.StagedFile, error) {
	progress := &progressReader{Reader: from, pull: d.pull}
	progress.count(offset)
	staged, err := d.agent.tree.Stage(ctx, f, offset, progress)
	if err != nil {
		d.pull.bytes.Add(-progress.read)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrOffset) { // the file has just changed
		err = fmt.Errorf("%w: %w", tree.ErrBusy, err)
	}
	return staged, err
}

// result returns the download's error.
func (d *download) result(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case d.fatal != nil:
		return d.fatal
	case d.failures == 1:
		return errors.New(strings.Join(d.messages, "; "))
	case d.failures > 0:
		return fmt.Errorf("%d files failed, such as %s", d.failures, strings.Join(d.messages, "; "))
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
