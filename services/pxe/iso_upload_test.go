package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// upload sends a file in two requests, and returns the path of the upload.
func (s *site) upload(file []byte) (at string) {
	s.Helper()
	at = tus(s.Client, "POST", "/pxe/driver-upload", nil, "Upload-Length", strconv.Itoa(len(file))).Want(201).Header.Get("Location")
	half := len(file) / 2
	tus(s.Client, "PATCH", at, string(file[:half]), "Upload-Offset", "0").Want(204)
	tus(s.Client, "PATCH", at, string(file[half:]), "Upload-Offset", strconv.Itoa(half)).Want(204)
	return at
}

// An ISO is made of an upload, which ends with that. Deleting the ISO deletes its file.
func TestISOUpload(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	at := s.upload(image)
	id := s.Do("POST", "/pxe/iso", map[string]any{"name": "win", "folder": "win", "upload": at, "sha256": sum}).Want(200).ID()
	if is := s.ended(t, id); is.Status != "ready" || is.SHA256 == nil || *is.SHA256 != sum || *is.Size != int64(len(image)) {
		t.Fatalf("got %s, want it ready with %d bytes and the SHA-256 %s", testkit.JSON(is), len(image), sum)
	}
	if files := s.held(t, "win"); len(files) != 4 || files["win.iso"] != string(image) {
		t.Errorf("got %d files, want win.iso and the 3 files in it", len(files))
	}
	tus(s.Client, "GET", at, nil).Want(404)
	tus(s.Client, "DELETE", at, nil).Want(404)

	// Another upload replaces it, then a URL, and then an upload again.
	iso := path("/pxe/iso/%d", id)
	s.Do("PATCH", iso, map[string]any{"upload": s.upload(append(bytes.Clone(image), 0)), "sha256": nil}).Want(200)
	if is := s.ended(t, id); is.Status != "ready" || *is.Size != int64(len(image))+1 {
		t.Errorf("got %s, want it ready with %d bytes", testkit.JSON(is), len(image)+1)
	}
	server := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	})
	s.Do("PATCH", iso, map[string]any{"url": server.URL}).Want(200)
	if is := s.ended(t, id); is.Status != "ready" || *is.Size != int64(len(image)) {
		t.Errorf("got %s, want it ready with %d bytes", testkit.JSON(is), len(image))
	}
	s.Do("PATCH", iso, map[string]any{"upload": s.upload([]byte("no image"))}).Want(200)
	if is := s.ended(t, id); is.Status != "failed" || is.Error == nil {
		t.Errorf("got %s of an upload that is no image, want it failed with a reason", testkit.JSON(is))
	}
	if files := s.held(t, "win"); files["win.iso"] != string(image) {
		t.Error("got other files after an import that failed, want those of the last one that was ready")
	}
	s.Do("DELETE", iso, nil).Want(200)
	var left int
	if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM stored_file").Scan(&left); err != nil || left > 0 {
		t.Errorf("got %d stored files (%v) after the ISO was deleted, want 0", left, err)
	}
}

func TestISOUploadRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	create := func(member string, value any) *testkit.Response {
		return s.Do("POST", "/pxe/iso", map[string]any{"name": "a", "folder": "a", member: value})
	}
	create("name", "a").WantErrors("/url", "required")
	create("upload", "nothing").WantErrors("/upload", "not_found")
	create("upload", 7).Want(422)
	at := s.upload([]byte("an image"))
	s.Do("POST", "/pxe/iso", map[string]any{"name": "a", "folder": "a", "upload": at, "url": "https://192.0.2.10/a.iso"}).
		WantErrors("/upload", "invalid")
	begun := tus(s.Client, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201).Header.Get("Location")
	create("upload", begun).WantErrors("/upload", "incomplete")
	s.Do("POST", "/pxe/driver", map[string]any{"name": "virtio", "upload": at}).Want(200)
	create("upload", at).WantErrors("/upload", "used")

	invalid := fmt.Sprintf("%064d", 0)
	id := s.Do("POST", "/pxe/iso", map[string]any{"name": "a", "folder": "a", "upload": s.upload([]byte("an image")), "sha256": invalid}).
		Want(200).ID()
	want := fmt.Sprintf("the ISO's SHA-256 is %x, not %s", sha256.Sum256([]byte("an image")), invalid)
	if is := s.ended(t, id); is.Status != "failed" || is.Error == nil || *is.Error != want {
		t.Errorf("got %s, want it failed: %s", testkit.JSON(is), want)
	}
}
