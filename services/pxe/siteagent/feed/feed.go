// Package feed stores an agent's feed on disk: numbered entries, each durable once Append returns. It deletes the oldest of more
// than 100,000.
package feed

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/durable"
)

const (
	maxSegmentEntries = 1000
	maxSegments       = 101 // so that there are always 100,000 entries
	maxLineLength     = 64 << 10
	// maxReadEntries and maxReadBytes bound one read.
	maxReadEntries = 500
	maxReadBytes   = 512 << 10

	historyFile   = "history"
	segmentSuffix = ".jsonl"
)

// Feed is a feed on disk. Its entries are in segments: files of maxSegmentEntries lines, named for their first entry's number.
type Feed struct {
	folder  string
	history string

	mu       sync.Mutex
	segments []int64 // the numbers of their first entries
	last     int64
	current  *os.File
	size     int64 // of current, in bytes
}

// Open opens the feed in a folder, and creates the folder if it is missing. It cuts off what an interrupted write left.
func Open(folder string) (f *Feed, err error) {
	f = &Feed{folder: folder}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		digits, isSegment := strings.CutSuffix(entry.Name(), segmentSuffix)
		if first, err := strconv.ParseInt(digits, 10, 64); isSegment && err == nil {
			f.segments = append(f.segments, first)
		}
	}
	slices.Sort(f.segments)
	text, err := os.ReadFile(filepath.Join(folder, historyFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.startHistory(); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	default:
		f.history = string(text)
	}
	if len(f.segments) == 0 {
		return f, nil
	}
	return f, f.resume()
}

// startHistory deletes all entries and chooses a new history.
func (f *Feed) startHistory() error {
	for _, first := range f.segments {
		if err := os.Remove(f.path(first)); err != nil {
			return err
		}
	}
	f.segments, f.history = nil, rand.Text()
	return durable.Replace(filepath.Join(f.folder, historyFile), []byte(f.history))
}

// resume finds the last complete entry of the newest segment.
func (f *Feed) resume() (err error) {
	first := f.segments[len(f.segments)-1]
	if f.current, err = os.OpenFile(f.path(first), os.O_RDWR, 0); err != nil {
		return err
	}
	content, err := io.ReadAll(f.current)
	if err != nil {
		return errors.Join(err, f.current.Close())
	}
	f.last = first - 1
	for line := range bytes.Lines(content) {
		var e siteagent.Entry
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &e) != nil || e.Number != f.last+1 {
			break
		}
		f.last++
		f.size += int64(len(line))
	}
	if err := f.current.Truncate(f.size); err != nil {
		return errors.Join(err, f.current.Close())
	}
	return nil
}

// Close closes the feed's file.
func (f *Feed) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		return nil
	}
	return f.current.Close()
}

func (f *Feed) path(first int64) string {
	return filepath.Join(f.folder, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// Append adds an entry, and sets its number and time. The entry is on the disk when Append returns.
func (f *Feed) Append(e siteagent.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.appendEntry(e); err != nil {
		return fmt.Errorf("append to the feed: %w", err)
	}
	return nil
}

// appendEntry appends an entry. If the write fails, it cuts off what was written.
func (f *Feed) appendEntry(e siteagent.Entry) error {
	e.Number, e.At = f.last+1, time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if line = append(line, '\n'); len(line) > maxLineLength {
		return fmt.Errorf("the entry of the kind %s is too long: %d bytes", e.Kind, len(line))
	}
	if f.current == nil || f.last-f.segments[len(f.segments)-1]+1 >= maxSegmentEntries {
		if err := f.rollSegment(); err != nil {
			return err
		}
	}
	_, err = f.current.WriteAt(line, f.size)
	if err == nil {
		err = f.current.Sync()
	}
	if err != nil {
		return errors.Join(err, f.current.Truncate(f.size))
	}
	f.size += int64(len(line))
	f.last++
	return nil
}

// rollSegment starts the next segment, and deletes the oldest ones.
func (f *Feed) rollSegment() error {
	first := f.last + 1
	next, err := os.OpenFile(f.path(first), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := durable.SyncFolder(f.folder); err != nil {
		return errors.Join(err, next.Close())
	}
	previous := f.current
	f.current, f.size = next, 0
	f.segments = append(f.segments, first)
	if previous != nil {
		err = previous.Close()
	}
	for len(f.segments) > maxSegments {
		err = errors.Join(err, os.Remove(f.path(f.segments[0])))
		f.segments = f.segments[1:]
	}
	return err
}

// ReadAfter returns the entries above a number, the oldest first, up to maxReadEntries and maxReadBytes.
func (f *Feed) ReadAfter(number int64) (siteagent.Feed, error) {
	f.mu.Lock()
	segments := slices.Clone(f.segments)
	found := siteagent.Feed{History: f.history, Last: f.last, Entries: []siteagent.Entry{}}
	f.mu.Unlock()
	if number >= found.Last {
		return found, nil
	}
	from, _ := slices.BinarySearchFunc(segments, number+1, func(first, wanted int64) int { // the index after the segment that has the entry
		if first <= wanted {
			return -1
		}
		return 1
	})
	bytesLeft := maxReadBytes
	for _, first := range segments[max(from-1, 0):] {
		more, err := f.readSegment(first, number, &found, &bytesLeft)
		if err != nil {
			return found, fmt.Errorf("read the feed: %w", err)
		}
		if !more {
			break
		}
	}
	return found, nil
}

// readSegment adds a segment's entries above a number to found. more is false once found is full.
func (f *Feed) readSegment(first, number int64, found *siteagent.Feed, bytesLeft *int) (more bool, err error) {
	file, err := os.Open(f.path(first))
	if errors.Is(err, fs.ErrNotExist) { // it has just been deleted
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLineLength+1)
	for n := first; lines.Scan() && n <= found.Last; n++ {
		if n <= number {
			continue
		}
		if *bytesLeft -= len(lines.Bytes()); len(found.Entries) == maxReadEntries || *bytesLeft < 0 {
			return false, nil
		}
		var e siteagent.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return false, err
		}
		found.Entries = append(found.Entries, e)
	}
	return true, lines.Err()
}
