package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/media"
)

const (
	driverSize = 512 << 20
	// maxDriverMemory bounds the memory that a process needs to pass on a driver.
	maxDriverMemory = 64 << 20
)

// random returns a reader of pseudorandom bytes, the same ones each time.
func random(bytes int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), bytes)
}

// TestMemoryOfDriver tests that the upload and the download of a large driver take little memory of the gateway and
// the service.
func TestMemoryOfDriver(t *testing.T) {
	requireProc(t)
	if !*full {
		t.Skip("the driver of 512 MiB takes minutes: run make scale")
	}
	r := start(t)
	sum := sha256.New()
	if _, err := io.Copy(sum, random(driverSize)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	var created media.PXEDriver
	r.wantLittleMemory("the upload", func() {
		in, out := io.Pipe()
		form := multipart.NewWriter(out)
		go func() {
			err := form.WriteField("name", "large")
			part, err2 := form.CreateFormFile("driver", "driver.bin")
			if err == nil && err2 == nil {
				_, err = io.Copy(part, random(driverSize))
			}
			if err == nil {
				err = form.Close()
			}
			out.CloseWithError(err)
		}()
		created = testkit.Decode[media.PXEDriver](
			r.client.Do("POST", "/pxe/driver", in, "Content-Type", form.FormDataContentType()).Want(http.StatusOK),
		)
	})
	if created.Size != driverSize || created.SHA256 != want {
		t.Errorf("got %d bytes with the SHA-256 %s, want %d with %s", created.Size, created.SHA256, driverSize, want)
	}
	r.wantLittleMemory("the download", func() {
		request, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodGet,
			fmt.Sprintf("%s/pxe/driver/%d/content", r.client.URL, created.ID),
			nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+r.client.Key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		sum.Reset()
		if n, err := io.Copy(sum, response.Body); err != nil || n != driverSize || fmt.Sprintf("%x", sum.Sum(nil)) != want {
			t.Errorf("got %d bytes with the SHA-256 %x (%v), want %d with %s", n, sum.Sum(nil), err, driverSize, want)
		}
	})
}

// wantLittleMemory fails the test if do makes the memory of the gateway or of the pxe service grow by more than
// maxDriverMemory.
func (r *running) wantLittleMemory(condition string, do func()) {
	r.t.Helper()
	pids, before := r.children(), map[string]int{}
	for _, name := range []string{principal.Gateway, pxe.Name} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pids[name]), []byte("5"), 0o200); err != nil { // resets VmHWM
			r.t.Fatal(err)
		}
		before[name] = memory(r.t, pids[name], "VmRSS")
	}
	do()
	for name, resident := range before {
		extra := memory(r.t, pids[name], "VmHWM") - resident
		r.t.Logf("%s: %d KiB more memory in the %s, which had %d KiB", condition, extra>>10, name, resident>>10)
		if extra > maxDriverMemory {
			r.t.Errorf("%s: got %d KiB more memory in the %s, want at most %d", condition, extra>>10, name, maxDriverMemory>>10)
		}
	}
}

// testUploadGoesOnAfterAKill kills the service in the middle of a tus upload, and resumes the upload at the last
// stored piece.
func testUploadGoesOnAfterAKill(t *testing.T, f *fleet, c *testkit.Client) {
	const piece, size = 64 << 20, 72 << 20 // piece is stored at once, so a crash costs at most one
	content, err := io.ReadAll(random(size))
	if err != nil {
		t.Fatal(err)
	}
	tus := []string{"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream"}
	at := c.Do("POST", "/pxe/driver-upload", nil, append(tus, "Upload-Length", strconv.Itoa(size))...).
		Want(http.StatusCreated).
		Header.Get(
		"Location",
	)
	in, out := io.Pipe()
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _ = c.Try("PATCH", at, in, append(tus, "Upload-Offset", "0")...) // the request is cut off
	}()
	go func() { _, _ = out.Write(content[:piece+1<<20]) }() // the rest of the body never arrives
	offset := func() string {
		response := c.Do("GET", at, nil, tus...)
		return response.Header.Get("Upload-Offset")
	}
	awaitOffset := func(condition, want string) {
		t.Helper()
		testkit.Await(t, condition, offset, func(got string) bool { return got == want })
	}
	awaitOffset("the first piece is stored", strconv.Itoa(piece))
	kill(t, f.processes[pxe.Name])
	if err := f.startService(t.Context(), pxe.Name); err != nil {
		t.Fatal(err)
	}
	_ = out.CloseWithError(io.ErrUnexpectedEOF)
	<-cut
	awaitOffset("the first piece is still stored after the kill", strconv.Itoa(piece))
	c.Do("PATCH", at, bytes.NewReader(content[piece:]), append(tus, "Upload-Offset", strconv.Itoa(piece))...).Want(http.StatusNoContent)
	created := testkit.Decode[media.PXEDriver](
		c.Do("POST", "/pxe/driver", map[string]any{"name": "resumed", "upload": at}).Want(http.StatusOK),
	)
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); created.SHA256 != want || created.Size != size {
		t.Errorf("got %s, want %d bytes with the SHA-256 %s", testkit.JSON(created), size, want)
	}
	if text := c.Do("GET", fmt.Sprintf("/pxe/driver/%d/content", created.ID), nil, "Range", "bytes=67108860-67108867").
		Want(http.StatusPartialContent).
		Text; !strings.Contains(string(content[piece-4:piece+4]), text) ||
		len(text) != 8 {
		t.Errorf("got %q around the cut, want %q", text, content[piece-4:piece+4])
	}
}
