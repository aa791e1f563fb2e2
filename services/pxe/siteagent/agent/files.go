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

// getManifest writes an empty object now and then, as long as files have to be read for it.
func (a *Agent) getManifest(w http.ResponseWriter, r *http.Request) error {
	type outcome struct {
		files []siteagent.File
		err   error
	}
	made := make(chan outcome, 1)
	go func() {
		files, err := a.manifest(r.Context())
		made <- outcome{files, err}
	}()
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for begun := false; ; begun = true {
		select {
		case <-tick.C:
			w.Header().Set("Content-Type", "application/jsonl")
			_, _ = io.WriteString(w, "{}\n") // who asked may be gone, and then the context ends
			_ = http.NewResponseController(w).Flush()
		case is := <-made:
			if is.err != nil && begun {
				a.log.Error("the files cannot be listed", "error", is.err)
				panic(http.ErrAbortHandler)
			}
			if is.err != nil {
				return is.err
			}
			w.Header().Set("Content-Type", "application/jsonl")
			_ = siteagent.WriteManifest(w, is.files) // who asked may be gone
			return nil
		}
	}
}

func (a *Agent) getFile(w http.ResponseWriter, r *http.Request) error {
	file, f, err := a.tree.Read(r.Context(), r.PathValue("path"))
	if err != nil {
		return refusal(err)
	}
	defer file.Close()
	w.Header().Set("ETag", `"`+f.SHA256+`"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, file)
	return nil
}

// postFiles answers several small files. One that cannot be given so is left out.
func (a *Agent) postFiles(w http.ResponseWriter, r *http.Request) error {
	var asked siteagent.Together
	if err := read(w, r, mostTogether, &asked); err != nil {
		return err
	}
	if len(asked.Paths) > siteagent.MostTogether {
		return problem.New(problem.Invalid, "At most %d files are given together.", siteagent.MostTogether)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	to := bufio.NewWriterSize(w, siteagent.SmallFile)
	lines := json.NewEncoder(to)
	content := make([]byte, siteagent.SmallFile)
	for _, name := range asked.Paths {
		n, err := a.small(name, content)
		if lines.Encode(siteagent.Bundled{Size: int64(n), LeftOut: err != nil}) != nil {
			return nil // who asked is gone
		}
		_, _ = to.Write(content[:n])
	}
	_ = to.Flush() // who asked may be gone
	return nil
}

// small reads all of a small file.
func (a *Agent) small(name string, into []byte) (int, error) {
	file, is, err := a.tree.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if is.Size() > int64(len(into)) {
		return 0, errors.New("it is too large")
	}
	if _, err := io.ReadFull(file, into[:is.Size()]); err != nil {
		return 0, err
	}
	return int(is.Size()), nil
}

func (a *Agent) getContent(w http.ResponseWriter, r *http.Request) error {
	sum := r.PathValue("sha256")
	if err := siteagent.CheckSum(sum); err != nil {
		return problem.New(problem.BadRequest, "%s.", err)
	}
	offset, err := a.tree.Received(sum)
	if err != nil {
		return err
	}
	return write(w, siteagent.Received{Offset: offset})
}

func (a *Agent) putFile(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	f := siteagent.File{Path: r.PathValue("path"), SHA256: query.Get("sha256")}
	var offset int64
	for name, into := range map[string]*int64{"size": &f.Size, "offset": &offset} {
		n, err := strconv.ParseInt(query.Get(name), 10, 64)
		if err != nil {
			return problem.New(problem.BadRequest, "%s must be a number of bytes.", name)
		}
		*into = n
	}
	if err := f.Check(); err != nil {
		return problem.New(problem.Invalid, "The file is refused: %s.", err)
	}
	if offset < 0 || r.ContentLength < 0 || offset > f.Size || r.ContentLength > f.Size-offset {
		return problem.New(problem.Invalid, "There must be Content-Length, of no more than is missing behind offset.")
	}
	switch err := a.tree.Receive(r.Context(), f, offset, r.Body); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return problem.New(problem.BadRequest, "The rest of the file is missing. What has arrived is kept: see /v1/content.")
	case err != nil && r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case err != nil:
		return refusal(fmt.Errorf("receive %s: %w", f.Path, err))
	}
	return write(w, f)
}

func (a *Agent) deleteFile(w http.ResponseWriter, r *http.Request) error {
	if err := a.tree.Delete(r.PathValue("path")); err != nil {
		return refusal(err)
	}
	return write(w, struct{}{})
}
