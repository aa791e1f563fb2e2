package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const (
	// localFolder is a folder of file servers that the store does not manage. Operators put files of their own there.
	localFolder = "local/"
	// maxConcurrentFiles is how many files are sent to an agent at a time, and maxNamedFailures how many failed files an
	// error names.
	maxConcurrentFiles, maxNamedFailures = 4, 5
	// minResumeSize is the size in bytes above which the agent is first asked how much of a file it already has.
	minResumeSize    = 256 << 10
	progressInterval = time.Second
	// maxSurplusSize is how many bytes of surplus paths one attempt deletes.
	maxSurplusSize = 4 << 20
)

// fillFromStore makes a file server without a parent hold the files of the store.
func (s *Syncs) fillFromStore(ctx context.Context, id int64) error {
	to, err := s.Agents.Open(ctx, site.FileServer, id)
	if err != nil {
		return err
	}
	defer to.Close()
	f := &storeFill{syncs: s, id: id, agent: to}
	missing, surplus, err := f.compare(ctx)
	if err != nil {
		return err
	}
	if to.SFTP != nil && len(missing) > 0 {
		if f.transfers, err = to.SFTP.Dial(ctx, s.Agents.Allowed.Dial, to.Key); err != nil {
			return fmt.Errorf("connect to the agent by SFTP: %w", describeError(err))
		}
		defer f.transfers.Close()
	}
	showing, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { f.reportProgress(showing) })
	err = f.run(ctx, missing, surplus)
	stop()
	shown.Wait()
	return errors.Join(err, s.storeProgress(ctx, id, f.progress()))
}

// storeFill is the transfer of files from the store to one file server.
type storeFill struct {
	syncs *Syncs
	id    int64
	agent *site.Agent
	// transfers sends file contents by SFTP. If it is nil, they are sent by HTTP.
	transfers *siteagent.SFTPConn

	total        siteagent.Progress
	files, bytes atomic.Int64

	isCut bool // the agent has more surplus files than one attempt deletes

	mu      sync.Mutex
	failed  []string // files with their errors
	blocked []storage.File
	fatal   error // stops the transfer
}

func (f *storeFill) progress() siteagent.Progress {
	p := f.total
	p.Files, p.Bytes = f.files.Load(), f.bytes.Load()
	return p
}

// reportProgress stores the progress repeatedly until ctx ends.
func (f *storeFill) reportProgress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = f.syncs.storeProgress(ctx, f.id, f.progress()) // the final progress is stored in any case
		}
	}
}

// compare returns the files of the store that the agent lacks, and the paths of the agent that the store lacks. It keeps
// the store's files in memory, and of the agent's only the surplus paths, up to maxSurplusSize: an agent could list any.
func (f *storeFill) compare(ctx context.Context) (missing []storage.File, surplus []string, err error) {
	stored := map[string]storage.File{}
	for file, err := range f.syncs.Store.Files(ctx) {
		if err != nil {
			return nil, nil, err
		}
		stored[file.Path] = file
		f.total.FilesTotal++
		f.total.BytesTotal += file.Size
	}
	size := 0
	err = f.agent.ReadManifest(ctx, func(have siteagent.File) error {
		want, ok := stored[have.Path]
		switch {
		case ok && want.Size == have.Size && want.SHA256 == have.SHA256:
			f.files.Add(1)
			f.bytes.Add(want.Size)
			delete(stored, have.Path)
		case ok, strings.HasPrefix(have.Path, localFolder):
		case size+len(have.Path) > maxSurplusSize:
			f.isCut = true
		default:
			size += len(have.Path)
			surplus = append(surplus, have.Path)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the agent's manifest: %w", describeError(err))
	}
	return slices.SortedFunc(maps.Values(stored), func(a, b storage.File) int { return strings.Compare(a.Path, b.Path) }), surplus, nil
}

// run sends the missing files and deletes the surplus ones. Its error names the first files that failed.
func (f *storeFill) run(ctx context.Context, missing []storage.File, surplus []string) error {
	f.sendAll(ctx, missing)
	for _, path := range surplus { // also if a file could not be sent: a deletion frees space
		if err := f.agent.Delete(ctx, path); err != nil {
			return fmt.Errorf("delete %s: %w", path, describeError(err))
		}
	}
	if blocked := f.blocked; len(blocked) > 0 && f.fatal == nil { // the deletions may have removed what blocked them
		f.blocked = nil
		f.sendAll(ctx, blocked)
	}
	for _, file := range f.blocked {
		f.failed = append(f.failed, file.Path+": another file or folder has this name")
	}
	switch n := len(f.failed); {
	case ctx.Err() != nil:
		return ctx.Err()
	case f.fatal != nil:
		return f.fatal
	case f.isCut:
		return fmt.Errorf("the agent had too many other files: %d were deleted, and the next attempt continues", len(surplus))
	case n > 0:
		return fmt.Errorf("%d of %d files: %s", n, f.total.FilesTotal, strings.Join(f.failed[:min(n, maxNamedFailures)], "; "))
	}
	return nil
}

// sendAll sends several files at a time. It stops when handleResult says so.
func (f *storeFill) sendAll(ctx context.Context, files []storage.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan storage.File)
	var workers sync.WaitGroup
	for range maxConcurrentFiles {
		workers.Go(func() {
			for file := range next {
				if ctx.Err() == nil && f.handleResult(ctx, file, f.sendFile(ctx, file)) {
					cancel()
				}
			}
		})
	}
	for _, file := range files {
		next <- file
	}
	close(next)
	workers.Wait()
}

// handleResult stores the result of a file, and reports whether the transfer must stop.
func (f *storeFill) handleResult(ctx context.Context, file storage.File, err error) (end bool) {
	if err == nil {
		f.files.Add(1)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return true
	case siteagent.IsRefusal(err, http.StatusConflict):
		f.blocked = append(f.blocked, file)
	case siteagent.IsRefusal(err, http.StatusUnprocessableEntity):
		f.failed = append(f.failed, file.Path+": "+site.DescribeError(err))
	default:
		f.fatal = fmt.Errorf("send %s: %w", file.Path, describeError(err))
	}
	return f.fatal != nil
}

// sendFile sends one file. A large file continues where an earlier attempt ended.
func (f *storeFill) sendFile(ctx context.Context, file storage.File) (err error) {
	offset := int64(0)
	if file.Size > minResumeSize {
		if offset, err = f.agent.GetReceived(ctx, file.SHA256); err != nil {
			return err
		}
		if offset > file.Size {
			offset = 0
		}
	}
	content, err := f.syncs.Store.Open(ctx, file.ID)
	if err != nil {
		return fmt.Errorf("open %s in the store: %w", file.Path, err)
	}
	defer content.Close()
	if _, err := content.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("read %s in the store: %w", file.Path, err)
	}
	counted := &countingReader{Reader: content, bytes: &f.bytes}
	counted.add(offset)
	to := siteagent.File{Path: file.Path, Size: file.Size, SHA256: file.SHA256}
	if f.transfers != nil && offset < file.Size {
		err = f.transfers.Send(to, offset, counted)
		offset = file.Size
	}
	if err == nil {
		err = f.agent.Put(ctx, to, offset, counted)
	}
	if err != nil {
		counted.add(-counted.n)
	}
	return err
}

// countingReader counts the bytes that are read.
type countingReader struct {
	io.Reader
	bytes *atomic.Int64
	n     int64
}

func (c *countingReader) add(n int64) {
	c.n += n
	c.bytes.Add(n)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}
