package tree

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// indexLine is a line of the index.
type indexLine struct {
	Path string `json:"path"`
	indexEntry
}

// load reads the index. It stops at a broken line, as a full disk may leave one; the other files are hashed again.
func (t *Tree) load() error {
	file, err := t.root.Open(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := json.NewDecoder(bufio.NewReader(file)); ; {
		var line indexLine
		if lines.Decode(&line) != nil {
			return nil
		}
		t.index[line.Path], t.bySum[line.SHA256] = line.indexEntry, line.Path
	}
}

// Save writes the index if it has changed.
func (t *Tree) Save() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.unsaved {
		return nil
	}
	const next = indexFile + ".next"
	file, err := t.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	writer := bufio.NewWriter(file)
	lines := json.NewEncoder(writer)
	for name, k := range t.index {
		err = errors.Join(err, lines.Encode(indexLine{name, k}))
	}
	if err = errors.Join(err, writer.Flush(), file.Close()); err != nil {
		return err
	}
	if err := t.root.Rename(next, indexFile); err != nil {
		return err
	}
	t.unsaved = false
	return nil
}
