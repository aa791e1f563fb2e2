package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"

	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// getManifest responds with all files. It writes an empty object every keepAliveInterval while it hashes files.
func (a *Agent) getManifest(w http.ResponseWriter, r *http.Request) error {
	type outcome struct {
		files []siteagent.File
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		files, err := a.manifest(r.Context())
		done <- outcome{files, err}
	}()
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	for started := false; ; started = true {
		select {
		case <-tick.C:
			w.Header().Set("Content-Type", "application/jsonl")
			_, _ = io.WriteString(w, "{}\n") // the context ends if the caller is gone
			_ = http.NewResponseController(w).Flush()
		case result := <-done:
			if result.err != nil && started {
				a.log.Error("list files failed", "error", result.err)
				panic(http.ErrAbortHandler)
			}
			if result.err != nil {
				return result.err
			}
			w.Header().Set("Content-Type", "application/jsonl")
			_ = siteagent.WriteManifest(w, result.files) // the caller may be gone
			return nil
		}
	}
}

// getFile responds with a file, whose ETag is its SHA-256, or with a range of it.
func (a *Agent) getFile(w http.ResponseWriter, r *http.Request) error {
	file, f, err := a.tree.OpenHashed(r.Context(), r.PathValue("path"))
	if err != nil {
		return fileError(err)
	}
	defer file.Close()
	w.Header().Set("ETag", `"`+f.SHA256+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, file)
	return nil
}

// postFiles responds with several small files, and leaves out those that cannot be read or are too large.
func (a *Agent) postFiles(w http.ResponseWriter, r *http.Request) error {
	var request siteagent.BundleRequest
	if err := readJSON(w, r, maxBundleBodySize, &request); err != nil {
		return err
	}
	if len(request.Paths) > siteagent.MaxBundledFiles {
		return problem.New(problem.Invalid, "A request may name at most %d files.", siteagent.MaxBundledFiles)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := bufio.NewWriterSize(w, siteagent.MaxBundledSize)
	headers := json.NewEncoder(out)
	content := make([]byte, siteagent.MaxBundledSize)
	for _, name := range request.Paths {
		n, err := a.readSmall(name, content)
		if headers.Encode(siteagent.BundleHeader{Size: int64(n), LeftOut: err != nil}) != nil {
			return nil // the caller is gone
		}
		_, _ = out.Write(content[:n])
	}
	_ = out.Flush() // the caller may be gone
	return nil
}

// readSmall reads a file that fits into the buffer, and returns its size.
func (a *Agent) readSmall(name string, buffer []byte) (int, error) {
	file, info, err := a.tree.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if info.Size() > int64(len(buffer)) {
		return 0, errors.New("the file is too large for a bundle")
	}
	if _, err := io.ReadFull(file, buffer[:info.Size()]); err != nil {
		return 0, err
	}
	return int(info.Size()), nil
}

// getContent responds with how many bytes of a content the agent has.
func (a *Agent) getContent(w http.ResponseWriter, r *http.Request) error {
	sum := r.PathValue("sha256")
	if err := siteagent.CheckSHA256(sum); err != nil {
		return problem.New(problem.BadRequest, "The path is invalid: %s.", err)
	}
	offset, err := a.tree.Received(sum)
	if err != nil {
		return err
	}
	return writeJSON(w, siteagent.Received{Offset: offset})
}

// putFile stores a file. The body continues the content at the parameter offset.
func (a *Agent) putFile(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	f := siteagent.File{Path: r.PathValue("path"), SHA256: query.Get("sha256")}
	var offset int64
	for name, value := range map[string]*int64{"size": &f.Size, "offset": &offset} {
		n, err := strconv.ParseInt(query.Get(name), 10, 64)
		if err != nil {
			return problem.New(problem.BadRequest, "The parameter %s must be a number of bytes.", name)
		}
		*value = n
	}
	if err := f.Check(); err != nil {
		return problem.New(problem.Invalid, "The file cannot be stored: %s.", err)
	}
	if offset < 0 || r.ContentLength < 0 || offset > f.Size || r.ContentLength > f.Size-offset {
		return problem.New(problem.Invalid, "The request needs a Content-Length of at most size minus offset.")
	}
	body := &deadlineReader{r.Body, http.NewResponseController(w)}
	switch err := a.tree.Receive(r.Context(), f, offset, body); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return problem.New(problem.BadRequest, "The upload is incomplete. Ask /v1/content for the offset, and continue from there.")
	case err != nil && r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case err != nil:
		return fileError(fmt.Errorf("receive %s: %w", f.Path, err))
	}
	return writeJSON(w, f)
}

// deleteFile deletes a file. It succeeds if the file is missing.
func (a *Agent) deleteFile(w http.ResponseWriter, r *http.Request) error {
	if err := a.tree.Delete(r.PathValue("path")); err != nil {
		return fileError(err)
	}
	return writeJSON(w, struct{}{})
}
