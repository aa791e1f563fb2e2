package siteagent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// GetManifest returns all files of the agent, sorted by path. It fails as ReadManifest does, and if the paths have more
// than maxPathSum bytes together.
func (c *Client) GetManifest(ctx context.Context) (files []File, err error) {
	paths := 0
	err = c.ReadManifest(ctx, func(f File) error {
		if paths += len(f.Path); paths > maxPathSum {
			return fmt.Errorf("the paths of the manifest have more than %d MiB together", maxPathSum>>20)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

// ReadManifest calls use with each file of the agent, sorted by path, and keeps none of them in memory. It fails if the
// list is cut off, out of order or invalid, or if use fails. Only a nil error means that the list was complete.
func (c *Client) ReadManifest(ctx context.Context, use func(File) error) error {
	ctx, cancel := context.WithTimeout(ctx, manifestTimeout)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, "/v1/manifest", nil)
	if err != nil {
		return err
	}
	response, err := c.do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(io.LimitReader(response.Body, maxManifestSize))
	lines.Buffer(nil, maxLineLength)
	count, last := 0, ""
	for lines.Scan() {
		var line manifestLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("read the manifest: %w", err)
		}
		switch {
		case line.End && line.Files != count:
			return fmt.Errorf("got %d files in the manifest, want %d", count, line.Files)
		case line.End:
			return nil
		case line.Path == "": // a sign of life while the agent hashes files
			continue
		}
		if err := line.Check(); err != nil {
			return fmt.Errorf("read %.100q in the manifest: %w", line.Path, err)
		}
		if last >= line.Path {
			return fmt.Errorf("the manifest is not sorted at %.100q", line.Path)
		}
		if count == MaxFiles {
			return fmt.Errorf("the manifest has more than %d files", MaxFiles)
		}
		if err := use(line.File); err != nil {
			return err
		}
		count, last = count+1, line.Path
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	return errors.New("the manifest is incomplete")
}

// WriteManifest writes files in the form that GetManifest reads.
func WriteManifest(w io.Writer, files []File) error {
	lines := json.NewEncoder(w)
	for _, f := range files {
		if err := lines.Encode(f); err != nil {
			return err
		}
	}
	return lines.Encode(manifestLine{End: true, Files: len(files)})
}
