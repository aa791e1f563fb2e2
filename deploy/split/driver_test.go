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
	largestDriver = 512 << 20
	// mostOfDriver is what a driver may add to the memory of a process on its way.
	mostOfDriver = 64 << 20
)

// random is a file of some bytes that is the same each time.
func random(bytes int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{1}), bytes)
}

// However large a driver is, it takes little memory of the gateway and of the service, on its way up and on its way down.
func TestDriverTakesLittleMemory(t *testing.T) {
	needsProc(t)
	if !*full {
		t.Skip("it takes minutes: make scale")
	}
	r := start(t)
	sum := sha256.New()
	if _, err := io.Copy(sum, random(largestDriver)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%x", sum.Sum(nil))
	var made media.PXEDriver
	r.takesLittle("the upload", func() {
		in, out := io.Pipe()
		form := multipart.NewWriter(out)
		go func() {
			err := form.WriteField("name", "large")
			part, err2 := form.CreateFormFile("driver", "driver.bin")
			if err == nil && err2 == nil {
				_, err = io.Copy(part, random(largestDriver))
			}
			if err == nil {
				err = form.Close()
			}
			out.CloseWithError(err)
		}()
		made = testkit.Decode[media.PXEDriver](
			r.client.Do("POST", "/pxe/driver", in, "Content-Type", form.FormDataContentType()).Want(http.StatusOK),
		)
	})
	if made.Size != largestDriver || made.SHA256 != want {
		t.Errorf("got %d bytes with the SHA-256 %s, want %d with %s", made.Size, made.SHA256, largestDriver, want)
	}
	r.takesLittle("the download", func() {
		request, err := http.NewRequestWithContext(
			t.Context(),
			http.MethodGet,
			fmt.Sprintf("%s/pxe/driver/%d/content", r.client.URL, made.ID),
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
		if n, err := io.Copy(sum, response.Body); err != nil || n != largestDriver || fmt.Sprintf("%x", sum.Sum(nil)) != want {
			t.Errorf("got %d bytes with the SHA-256 %x (%v), want %d with %s", n, sum.Sum(nil), err, largestDriver, want)
		}
	})
}

// takesLittle fails the test where something takes much more memory of the gateway or of the pxe service than they have before.
func (r *running) takesLittle(what string, do func()) {
	r.t.Helper()
	pids, before := r.children(), map[string]int{}
	for _, name := range []string{principal.Gateway, pxe.Name} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pids[name]), []byte("5"), 0o200); err != nil { // the peak begins anew
			r.t.Fatal(err)
		}
		before[name] = memory(r.t, pids[name], "VmRSS")
	}
	do()
	for name, resident := range before {
		extra := memory(r.t, pids[name], "VmHWM") - resident
		r.t.Logf("%s took %d KiB more of the %s, which had %d", what, extra>>10, name, resident>>10)
		if extra > mostOfDriver {
			r.t.Errorf("%s: got %d KiB more memory in the %s, want at most %d", what, extra>>10, name, mostOfDriver>>10)
		}
	}
}

// An upload by tus whose service is killed in the middle goes on behind what has arrived.
func testUploadGoesOnAfterAKill(t *testing.T, f *fleet, c *testkit.Client) {
	const piece, size = 64 << 20, 72 << 20 // of what a crash costs at most, and of the driver
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
		_, _ = c.Try("PATCH", at, in, append(tus, "Upload-Offset", "0")...) // it breaks off
	}()
	go func() { _, _ = out.Write(content[:piece+1<<20]) }() // and then nothing comes
	offset := func() string {
		answer := c.Do("GET", at, nil, tus...)
		return answer.Header.Get("Upload-Offset")
	}
	until := func(what, want string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return offset() == want }, func() string { return offset() + " bytes have arrived" })
	}
	until("a piece is there", strconv.Itoa(piece))
	kill(t, f.processes[pxe.Name])
	if err := f.startService(t.Context(), pxe.Name); err != nil {
		t.Fatal(err)
	}
	_ = out.CloseWithError(io.ErrUnexpectedEOF)
	<-cut
	until("it is there after the kill", strconv.Itoa(piece))
	c.Do("PATCH", at, bytes.NewReader(content[piece:]), append(tus, "Upload-Offset", strconv.Itoa(piece))...).Want(http.StatusNoContent)
	made := testkit.Decode[media.PXEDriver](c.Do("POST", "/pxe/driver", map[string]any{"name": "resumed", "upload": at}).Want(http.StatusOK))
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); made.SHA256 != want || made.Size != size {
		t.Errorf("got %s, want %d bytes with the SHA-256 %s", testkit.JSON(made), size, want)
	}
	if text := c.Do("GET", fmt.Sprintf("/pxe/driver/%d/content", made.ID), nil, "Range", "bytes=67108860-67108867").
		Want(http.StatusPartialContent).
		Text; !strings.Contains(string(content[piece-4:piece+4]), text) ||
		len(text) != 8 {
		t.Errorf("got %q around the cut, want %q", text, content[piece-4:piece+4])
	}
}
