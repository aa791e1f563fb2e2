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

// GetManifest returns all files of the agent, sorted by path. It fails if the list is cut off, out of order or invalid.
func (c *Client) GetManifest(ctx context.Context) (files []File, err error) {
	ctx, cancel := context.WithTimeout(ctx, manifestTimeout)
	defer cancel()
	r, err := c.request(ctx, http.MethodGet, "/v1/manifest", nil)
	if err != nil {
		return nil, err
	}
	response, err := c.do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(io.LimitReader(response.Body, maxManifestSize))
	lines.Buffer(nil, maxLineLength)
	for lines.Scan() {
		var line manifestLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		switch {
		case line.End && line.Files != len(files):
			return nil, fmt.Errorf("got %d files in the manifest, want %d", len(files), line.Files)
		case line.End:
			return files, nil
		case line.Path == "": // a sign of life while the agent hashes files
			continue
		}
		if err := line.Check(); err != nil {
			return nil, fmt.Errorf("read %.100q in the manifest: %w", line.Path, err)
		}
		if len(files) > 0 && files[len(files)-1].Path >= line.Path {
			return nil, fmt.Errorf("the manifest is not sorted at %.100q", line.Path)
		}
		if len(files) == MaxFiles {
			return nil, fmt.Errorf("the manifest has more than %d files", MaxFiles)
		}
		files = append(files, line.File)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return nil, errors.New("the manifest is incomplete")
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
