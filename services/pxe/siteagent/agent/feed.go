package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const (
	mostEntries = 1000
	mostAnswer  = 100 // entries
)

// feed is what the agent has to say, numbered, the newest of it, in a file.
type feed struct {
	file string

	mu   sync.Mutex
	kept struct {
		History string            `json:"history"`
		Entries []siteagent.Entry `json:"entries"`
	}
}

func openFeed(file string) (*feed, error) {
	f := &feed{file: file}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &f.kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s, which can be deleted: %w", file, err)
	}
	if f.kept.History == "" {
		f.kept.History = newID()
	}
	return f, nil
}

// say adds an entry, and has it on the disk.
func (f *feed) say(kind, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.kept
	kept.Entries = append(kept.Entries[:len(kept.Entries):len(kept.Entries)], siteagent.Entry{Number: f.last() + 1, At: time.Now().UTC(), Kind: kind, Text: text})
	if over := len(kept.Entries) - mostEntries; over > 0 {
		kept.Entries = kept.Entries[over:]
	}
	content, err := json.Marshal(kept)
	if err == nil {
		err = replaceFile(f.file, content)
	}
	if err != nil {
		return fmt.Errorf("keep what there is to say: %w", err)
	}
	f.kept = kept
	return nil
}

func (f *feed) last() int64 {
	if n := len(f.kept.Entries); n > 0 {
		return f.kept.Entries[n-1].Number
	}
	return 0
}

// after are the entries behind a number.
func (f *feed) after(number int64) siteagent.Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := siteagent.Feed{History: f.kept.History, Last: f.last(), Entries: []siteagent.Entry{}}
	for _, e := range f.kept.Entries {
		if e.Number > number && len(found.Entries) < mostAnswer {
			found.Entries = append(found.Entries, e)
		}
	}
	return found
}

// replaceFile writes a file so that there is the old one or the new one, whatever happens.
func replaceFile(name string, content []byte) (err error) {
	next, err := os.CreateTemp(filepath.Dir(name), ".next-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(content)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), name)
}
