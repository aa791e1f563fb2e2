// Package console serves the console: the web pages on which people use the API. The pages are the built files of web, in dist, so
// that building Ironplane needs no Node. `make console` builds them.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Path is where the console is. Below it, a page has the path of what it shows in the API: Path/client/5 shows /client/5.
const Path = "/-/console"

//go:embed dist
var dist embed.FS

// commands names the command of each operation. Forms show it beside the request. `make go-client` writes it.
//
//go:embed commands.gen.json
var commands []byte

// templates has the variables and functions of each kind of template. Editors list them. `make openapi` writes it.
//
//go:embed templates.gen.json
var templates []byte

const (
	// pageName is the file that every page begins with. It loads the rest.
	pageName = "index.html"
	// commandsName is the file with the commands.
	commandsName = "commands.json"
	// templatesName is the file with the variables and functions of templates.
	templatesName = "templates.json"
	// assetsFolder has files whose names change with their content.
	assetsFolder = "assets/"
)

// policy is the Content-Security-Policy of the pages: scripts, styles, images and requests of this origin alone. Trusted Types refuse
// to turn a text into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is a built file, as it is and compressed.
type file struct {
	content    []byte
	compressed []byte // nil if it is no smaller
	media      string
	etag       string
}

// Handler serves the console below Path.
type Handler struct{ files map[string]file }

// Built returns the handler of the built files. The first call reads and compresses them, so that a gateway that shows no page does
// not wait for it.
var Built = sync.OnceValues(func() (*Handler, error) {
	root, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	h, err := newHandler(root)
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{commandsName: commands, templatesName: templates} {
		if h.files[name], err = newFile(name, content); err != nil {
			return nil, err
		}
	}
	return h, nil
})

func newHandler(root fs.FS) (*Handler, error) {
	h := &Handler{files: map[string]file{}}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		h.files[name], err = newFile(name, content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the console's files: %w", err)
	}
	if _, ok := h.files[pageName]; !ok {
		return nil, fmt.Errorf("read the console's files: %s is missing; make console builds it", pageName)
	}
	return h, nil
}

func newFile(name string, content []byte) (file, error) {
	sum := sha256.Sum256(content)
	f := file{
		content: content,
		media:   mediaType(name),
		etag:    `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return f, err
	}
	if _, err := w.Write(content); err != nil {
		return f, err
	}
	if err := w.Close(); err != nil {
		return f, err
	}
	if compressed.Len() < len(content) {
		f.compressed = compressed.Bytes()
	}
	return f, nil
}

// mediaType returns the type of a built file. It does not ask the system, which may have other types.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json":
		return "application/json"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	if media := mime.TypeByExtension(path.Ext(name)); media != "" {
		return media
	}
	return "application/octet-stream"
}

// ServeHTTP serves a built file, and the page for every other path below Path. A missing asset is a 404, so that a page of an older
// version does not take the page for a script.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Path), "/")
	f, ok := h.files[name]
	if !ok && strings.HasPrefix(name, assetsFolder) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("The file is of another version. Load the page again.\n")) // an error means that the caller left
		return
	}
	if !ok {
		name, f = pageName, h.files[pageName]
	}
	header := w.Header()
	header.Set("Content-Type", f.media)
	header.Set("ETag", f.etag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if strings.HasPrefix(name, assetsFolder) {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	setPolicies(header)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.content
	if f.compressed != nil && AcceptsGzip(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		content = f.compressed
	}
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(content) // an error means that the caller left
	}
}

// setPolicies sets what browsers must not let a page do.
func setPolicies(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// AcceptsGzip reports whether a caller's Accept-Encoding names gzip, and not with the weight 0.
func AcceptsGzip(accepted string) bool {
	for part := range strings.SplitSeq(accepted, ",") {
		coding, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			weight = strings.ReplaceAll(weight, " ", "")
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}
