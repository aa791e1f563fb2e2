package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/services/pxe/site"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

const (
	// local is the folder of a file server without parent that the store leaves alone: operators put there what they like.
	local = "local/"
	// atOnce is how many files are sent to an agent at a time, and mostNamed how many that failed are named.
	atOnce, mostNamed = 4, 5
	// askedFor is how large a file is for which it is asked first how much the agent has of it.
	askedFor  = 256 << 10
	showPause = time.Second
)

// fill has a file server without parent hold what the store has.
func (s *Syncs) fill(ctx context.Context, id int64) error {
	to, err := s.Agents.Agent(ctx, site.FileServer, id)
	if err != nil {
		return err
	}
	defer to.Close()
	have, err := to.GetManifest(ctx)
	if err != nil {
		return fmt.Errorf("ask its agent for its files: %w", reason(err))
	}
	f := &filling{syncs: s, id: id, to: to}
	missing, gone, err := f.compare(ctx, have)
	if err != nil {
		return err
	}
	if to.SFTP != nil && len(missing) > 0 {
		if f.transfers, err = to.SFTP.Dial(ctx, s.Agents.Allowed.Dial, to.Key); err != nil {
			return fmt.Errorf("connect to its agent by SFTP: %w", reason(err))
		}
		defer f.transfers.Close()
	}
	showing, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { f.showNowAndThen(showing) })
	err = f.run(ctx, missing, gone)
	stop()
	shown.Wait()
	return errors.Join(err, s.show(ctx, id, f.progress()))
}

// filling is how the files are sent that are missing.
type filling struct {
	syncs *Syncs
	id    int64
	to    *site.Agent
	// transfers are by what contents are sent; nil: they are sent with the request that names the file
	transfers *siteagent.SFTPConn

	total        siteagent.Progress
	files, bytes atomic.Int64

	mu     sync.Mutex
	failed []string // files, with why
	inWay  []storage.File
	fatal  error // why no more are sent
}

func (f *filling) progress() siteagent.Progress {
	is := f.total
	is.Files, is.Bytes = f.files.Load(), f.bytes.Load()
	return is
}

func (f *filling) showNowAndThen(ctx context.Context) {
	tick := time.NewTicker(showPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = f.syncs.show(ctx, f.id, f.progress()) // the end of it is shown in any case
		}
	}
}

// compare finds what is missing, and what the store does not have.
func (f *filling) compare(ctx context.Context, have []siteagent.File) (missing []storage.File, gone []string, err error) {
	there := make(map[string]siteagent.File, len(have))
	for _, file := range have {
		if !strings.HasPrefix(file.Path, local) {
			there[file.Path] = file
		}
	}
	for file, err := range f.syncs.Store.Files(ctx) {
		if err != nil {
			return nil, nil, err
		}
		f.total.FilesTotal++
		f.total.BytesTotal += file.Size
		if same := there[file.Path]; same.Size == file.Size && same.SHA256 == file.SHA256 {
			f.files.Add(1)
			f.bytes.Add(file.Size)
		} else {
			missing = append(missing, file)
		}
		delete(there, file.Path)
	}
	for path := range there {
		gone = append(gone, path)
	}
	return missing, gone, nil
}

func (f *filling) run(ctx context.Context, missing []storage.File, gone []string) error {
	f.send(ctx, missing)
	for _, path := range gone { // also where something is missing: it makes room
		if err := f.to.Delete(ctx, path); err != nil {
			return fmt.Errorf("delete %s: %w", path, reason(err))
		}
	}
	if again := f.inWay; len(again) > 0 && f.fatal == nil { // what was in the way may be gone
		f.inWay = nil
		f.send(ctx, again)
	}
	for _, file := range f.inWay {
		f.failed = append(f.failed, file.Path+": something else is in the way")
	}
	switch n := len(f.failed); {
	case ctx.Err() != nil:
		return ctx.Err()
	case f.fatal != nil:
		return f.fatal
	case n > 0:
		return fmt.Errorf("%d of %d files: %s", n, f.total.FilesTotal, strings.Join(f.failed[:min(n, mostNamed)], "; "))
	}
	return nil
}

func (f *filling) send(ctx context.Context, files []storage.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan storage.File)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for file := range next {
				if ctx.Err() == nil && f.sent(ctx, file, f.one(ctx, file)) {
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

// sent notes what came of a file, and tells whether no others are to be sent.
func (f *filling) sent(ctx context.Context, file storage.File, err error) (end bool) {
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
		f.inWay = append(f.inWay, file)
	case siteagent.IsRefusal(err, http.StatusUnprocessableEntity):
		f.failed = append(f.failed, file.Path+": "+site.Reason(err))
	default:
		f.fatal = fmt.Errorf("send %s: %w", file.Path, reason(err))
	}
	return f.fatal != nil
}

func (f *filling) one(ctx context.Context, file storage.File) (err error) {
	offset := int64(0)
	if file.Size > askedFor {
		if offset, err = f.to.GetReceived(ctx, file.SHA256); err != nil {
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
	counted := &counting{Reader: content, bytes: &f.bytes}
	counted.add(offset)
	to := siteagent.File{Path: file.Path, Size: file.Size, SHA256: file.SHA256}
	if f.transfers != nil && offset < file.Size {
		err = f.transfers.Send(to, offset, counted)
		offset = file.Size
	}
	if err == nil {
		err = f.to.Put(ctx, to, offset, counted)
	}
	if err != nil {
		counted.add(-counted.n)
	}
	return err
}

// counting counts what is read.
type counting struct {
	io.Reader
	bytes *atomic.Int64
	n     int64
}

func (c *counting) add(n int64) {
	c.n += n
	c.bytes.Add(n)
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.add(int64(n))
	return n, err
}
