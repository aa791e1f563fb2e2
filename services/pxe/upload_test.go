package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/media"
)

// tus sends a request of the protocol tus.
func tus(c *testkit.Client, method, path string, body any, headers ...string) *testkit.Response {
	return c.Do(
		method,
		path,
		body,
		append([]string{"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream"}, headers...)...)
}

// offset returns how many bytes of an upload have arrived.
func offset(t *testing.T, c *testkit.Client, path string) int {
	t.Helper()
	response := tus(c, "GET", path, nil).Want(204)
	n, err := strconv.Atoi(response.Header.Get("Upload-Offset"))
	if err != nil || response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Tus-Resumable") != "1.0.0" {
		t.Fatalf("got the headers %v, want an Upload-Offset, no-store and tus 1.0.0", response.Header)
	}
	return n
}

// A file is uploaded in several requests, and one of them breaks off. Then a driver is created from it.
func TestDriverUpload(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	content := bytes.Repeat([]byte("driver\x00\xff"), 100_000)
	begun := tus(
		c,
		"POST",
		"/pxe/driver-upload",
		nil,
		"Upload-Length",
		strconv.Itoa(len(content)),
		"Upload-Metadata",
		"filename dmlydGlvLnppcA==,is_public",
	).Want(201)
	at := begun.Header.Get("Location")
	expires, err := http.ParseTime(begun.Header.Get("Upload-Expires"))
	if !strings.HasPrefix(at, "/pxe/driver-upload/") || err != nil || time.Until(expires) < 23*time.Hour {
		t.Fatalf("got the headers %v, want a Location below /pxe/driver-upload/ and an Upload-Expires in about a day", begun.Header)
	}
	if n := offset(t, c, at); n != 0 {
		t.Errorf("got offset %d of a new upload, want 0", n)
	}
	if response := tus(
		c,
		"GET",
		at,
		nil,
	); response.Header.Get("Upload-Length") != strconv.Itoa(len(content)) ||
		response.Header.Get("Upload-Metadata") != "filename dmlydGlvLnppcA==,is_public" {
		t.Errorf("got the headers %v, want length %d and the metadata of the upload", response.Header, len(content))
	}
	c.Do("POST", "/pxe/driver", map[string]any{"name": "virtio", "upload": at}).WantErrors("/upload", "incomplete")

	// A request breaks off in the middle.
	in, out := io.Pipe()
	go func() {
		_, _ = out.Write(content[:300_000])
		out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	_, _ = c.Try("PATCH", at, in, "Tus-Resumable", "1.0.0", "Upload-Offset", "0", "Content-Type", "application/offset+octet-stream")
	arrived := 0
	testkit.Eventually(t, "a part has arrived", func() bool {
		arrived = offset(t, c, at)
		return arrived > 0
	})
	if arrived > 300_000 {
		t.Fatalf("got offset %d after the connection broke, want at most 300000", arrived)
	}
	tus(
		c,
		"PATCH",
		at,
		"x",
		"Upload-Offset",
		"0",
	).WantDetail(problem.Conflict, fmt.Sprintf("Upload-Offset is 0, but must be %d: that many bytes have arrived.", arrived))
	half := (arrived + len(content)) / 2
	if response := tus(
		c,
		"PATCH",
		at,
		string(content[arrived:half]),
		"Upload-Offset",
		strconv.Itoa(arrived),
	).Want(204); response.Header.Get(
		"Upload-Offset",
	) != strconv.Itoa(
		half,
	) {
		t.Errorf("got the headers %v after a part, want offset %d", response.Header, half)
	}
	tus(c, "PATCH", at, string(content[half:])+"x", "Upload-Offset", strconv.Itoa(half)).Want(413)
	tus(c, "PATCH", at, string(content[half:]), "Upload-Offset", strconv.Itoa(half)).Want(204)
	tus(c, "PATCH", at, "x", "Upload-Offset", strconv.Itoa(len(content))).Want(413)
	tus(c, "PATCH", at, "", "Upload-Offset", strconv.Itoa(len(content))).Want(204)

	files := func() (n int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM stored_file").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := files()
	c.Do("POST", "/pxe/driver", map[string]any{"name": "virtio", "upload": at, "driver": "aXk="}).WantErrors("/upload", "invalid")
	c.Do("POST", "/pxe/driver", strings.NewReader("--x\r\nContent-Disposition: form-data; "+
		"name=driver\r\n\r\naXk=\r\n--x\r\nContent-Disposition: form-data; name=upload\r\n\r\n"+at+"\r\n--x--\r\n"),
		"Content-Type", "multipart/form-data; boundary=x").
		WantErrors("/upload", "invalid")
	if left := files() - before; left != 0 {
		t.Errorf("got %d new files after a refused body, want 0", left)
	}
	c.Do("POST", "/pxe/driver", map[string]any{"name": "virtio", "upload": "nothing"}).WantErrors("/upload", "not_found")
	c.Do("POST", "/pxe/driver", map[string]any{"name": "virtio", "upload": 7}).Want(422)
	body := map[string]any{"name": "virtio", "upload": c.URL + at}
	created := c.Do("POST", "/pxe/driver", body, "Idempotency-Key", "one").Want(200)
	driver := testkit.Decode[media.PXEDriver](created)
	if driver.SHA256 != fmt.Sprintf("%x", sha256.Sum256(content)) || driver.Size != int64(len(content)) {
		t.Errorf("got %s, want the size %d and the SHA-256 of the upload", created.Text, len(content))
	}
	if repeated := c.Do("POST", "/pxe/driver", body, "Idempotency-Key", "one").Want(200); repeated.Text != created.Text {
		t.Errorf("got %s for the repeated request, want %s", repeated.Text, created.Text)
	}
	if text := c.Do("GET", fmt.Sprintf("/pxe/driver/%d/content", driver.ID), nil).Want(200).Text; text != string(content) {
		t.Errorf("got %d bytes that differ, want the %d bytes of the upload", len(text), len(content))
	}
	// A driver's file is replaced in the same way, and outlives its upload.
	next := tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201).Header.Get("Location")
	tus(c, "PATCH", next, "new", "Upload-Offset", "0").Want(204)
	c.Do("PATCH", fmt.Sprintf("/pxe/driver/%d", driver.ID), map[string]any{"upload": next, "driver": ""}).Want(200)
	tus(c, "DELETE", next, nil).Want(204)
	tus(c, "GET", next, nil).Want(404)
	if text := c.Do("GET", fmt.Sprintf("/pxe/driver/%d/content", driver.ID), nil).Want(200).Text; text != "new" {
		t.Errorf("got the content %q, want new", text)
	}
	// A deleted upload leaves nothing in the store.
	ended := tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201).Header.Get("Location")
	tus(c, "PATCH", ended, "ne", "Upload-Offset", "0").Want(204)
	tus(c, "DELETE", ended, nil).Want(204)
	var left int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM stored_file WHERE hash IS NOT NULL").Scan(&left); err != nil || left > 0 {
		t.Errorf("got %d stored files (%v), want 0", left, err)
	}
}

// Invalid and oversized uploads are refused, callers do not see the uploads of others, and expired uploads are deleted.
func TestDriverUploadRefused(t *testing.T) {
	t.Parallel()
	c, db, box := newClient(t)
	for _, headers := range [][]string{{"Upload-Length", "-1"}, {"Upload-Length", "x"}, {}, {"Upload-Length", "0"},
		{"Upload-Length", "1", "Upload-Metadata", "name ?"}, {"Upload-Length", "1", "Upload-Metadata", "a,"},
		{"Upload-Length", "1", "Upload-Metadata", "name " + strings.Repeat("aaaa", 2000)}} {
		tus(c, "POST", "/pxe/driver-upload", nil, headers...).Want(400)
	}
	tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", strconv.Itoa(16<<30+1)).Want(413)
	for _, version := range []string{"", "0.2.2"} {
		if response := c.Do("POST", "/pxe/driver-upload", nil, "Upload-Length", "1", "Tus-Resumable", version).
			Want(412); response.Header.Get("Tus-Version") != "1.0.0" ||
			response.Header.Get("Tus-Max-Size") != strconv.Itoa(16<<30) {
			t.Errorf("got the headers %v, want tus 1.0.0 with at most %d bytes", response.Header, 16<<30)
		}
	}
	at := tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201).Header.Get("Location")
	tus(c, "PATCH", at, "new").Want(400)
	c.Do("PATCH", at, "new", "Tus-Resumable", "1.0.0", "Upload-Offset", "0", "Content-Type", "application/octet-stream").Want(415)
	other := testkit.AdminWith(principal.All)
	other.Owner.ID, other.KeyID = 2, 2
	otherClient := testkit.NewClient(t, testkit.As(handler(t, db, box), other))
	tus(otherClient, "GET", at, nil).Want(404)
	tus(otherClient, "PATCH", at, "new", "Upload-Offset", "0").Want(404)
	tus(otherClient, "DELETE", at, nil).Want(404)
	tus(c, "PATCH", at, "new", "Upload-Offset", "0").Want(204)
	otherClient.Do("POST", "/pxe/driver", map[string]any{"name": "theirs", "upload": at}).WantErrors("/upload", "not_found")
	large := tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", strconv.Itoa(512<<20+1)).Want(201).Header.Get("Location")
	testkit.Execute(t, db, "UPDATE stored_file SET size = 512 * 1024 * 1024 + 1 WHERE id = (SELECT max(id) FROM stored_file)")
	c.Do("POST", "/pxe/driver", map[string]any{"name": "large", "upload": large}).WantErrors("/upload", "too_large")
	for range 18 {
		tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201)
	}
	tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(409)
	tus(otherClient, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201)
	c.Do("POST", "/pxe/driver", map[string]any{"name": "new", "upload": at}).Want(200)
	expiring := tus(c, "POST", "/pxe/driver-upload", nil, "Upload-Length", "3").Want(201).Header.Get("Location")

	// An expired upload is deleted with its file.
	tus(c, "PATCH", expiring, "ne", "Upload-Offset", "0").Want(204)
	testkit.Execute(t, db, "UPDATE driver_upload SET expires_at = now()")
	testkit.Execute(t, db, "UPDATE stored_file SET expires_at = now() WHERE path IS NULL")
	tus(c, "GET", expiring, nil).Want(404)
	if err := newService(t, db, box).Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var uploads, files int
	if err := db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM driver_upload), (SELECT count(*) FROM stored_file)").
		Scan(&uploads, &files); err != nil || uploads > 0 ||
		files != 1 {
		t.Errorf("got %d uploads and %d files (%v), want 0 uploads and 1 file", uploads, files, err)
	}
}
