package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/media"
)

// sendDriver sends a driver as multipart/form-data, like a browser.
func sendDriver(t *testing.T, c *testkit.Client, method, path, name string, content []byte, headers ...string) *testkit.Response {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if name != "" {
		if err := form.WriteField("name", name); err != nil {
			t.Fatal(err)
		}
	}
	if content != nil {
		part, err := form.CreateFormFile("driver", "driver.bin")
		if err == nil {
			_, err = part.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return c.Do(method, path, body.String(), append(headers, "Content-Type", form.FormDataContentType())...)
}

func TestDriver(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	content := bytes.Repeat([]byte("driver\x00\xff"), 100_000)
	sum := sha256.Sum256(content)
	driver := testkit.Decode[media.PXEDriver](sendDriver(t, c, "POST", "/pxe/driver", "virtio für \"Windows\"", content).Want(200))
	if driver.Size != int64(len(content)) || driver.SHA256 != fmt.Sprintf("%x", sum) {
		t.Errorf("got %+v, want size %d and SHA-256 %x", driver, len(content), sum)
	}
	at := fmt.Sprintf("/pxe/driver/%d", driver.ID)
	whole := c.Do("GET", at+"/content", nil).Want(200)
	if whole.Text != string(content) || whole.Header.Get("ETag") != `"`+driver.SHA256+`"` ||
		whole.Header.Get("Repr-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":" {
		t.Errorf("got %d bytes and %v, want %d bytes with their ETag and digest", len(whole.Text), whole.Header, len(content))
	}
	if part := c.Do("GET", at+"/content", nil, "Range", "bytes=100-199").Want(206).Text; part != string(content[100:200]) {
		t.Errorf("got the range %q, want %q", part, content[100:200])
	}
	c.Do("GET", at+"/content", nil, "Range", "bytes=99999999-").Want(416)
	c.Do("GET", at+"/content", nil, "If-None-Match", whole.Header.Get("ETag")).Want(304)
	c.Do("GET", "/pxe/driver/999/content", nil).Want(404)

	// The same content is no change, other content is.
	seen := c.Do("GET", at, nil).Want(200).Header.Get("ETag")
	if repeated := sendDriver(t, c, "PATCH", at, "", content).Want(200); repeated.Header.Get("ETag") != seen {
		t.Errorf("got the ETag %s after the same file was sent again, want %s", repeated.Header.Get("ETag"), seen)
	}
	c.Do("PATCH", at, `{"driver": "`+base64.StdEncoding.EncodeToString([]byte("new"))+`"}`, "If-Match", seen).Want(200)
	if text := c.Do("GET", at+"/content", nil).Want(200).Text; text != "new" {
		t.Errorf("got the content %q, want new", text)
	}
	c.Do("PATCH", at, `{"name": "virtio"}`, "If-Match", seen).Want(412)
	c.Do("PATCH", at, `{"name": "virtio"}`).Want(200)

	second := c.Do("POST", "/pxe/driver", `{"driver": "aXk=", "name": "second"}`).Want(200).ID()
	for body, want := range map[string][]string{
		`{}`:                                   {"/driver", "required", "/name", "required"},
		`{"name": "x", "driver": ""}`:          {"/driver", "required"},
		`{"name": "x", "driver": 7}`:           {"/driver", "type"},
		`{"name": "x", "driver": null}`:        {"/driver", "required"},
		`{"name": "x", "driver": "?"}`:         {"/driver", "invalid"},
		`{"name": "second", "driver": "aQ=="}`: {"/name", "taken"},
	} {
		c.Do("POST", "/pxe/driver", body).WantErrors(want...)
	}
	sendDriver(t, c, "POST", "/pxe/driver", "", []byte("x")).WantErrors("/name", "required")
	sendDriver(t, c, "POST", "/pxe/driver", "x", []byte{}).WantErrors("/driver", "required")
	c.Do("PATCH", at, `{"driver": null}`).WantErrors("/driver", "required")
	if n := len(testkit.Decode[[]media.PXEDriver](c.Do("GET", "/pxe/driver?sort=name", nil).Want(200))); n != 2 {
		t.Errorf("got %d drivers, want 2", n)
	}

	// A driver that a profile uses cannot be deleted.
	boot := createItem(t, c, "/pxe/boot-script", `{"name": "boot"}`)
	profile := c.Do("POST", "/pxe/profile", fmt.Sprintf(`{"name": "Windows", "boot_script": %d, "drivers": [{"id": %d}, "%d"]}`, boot, second, driver.ID)).
		Want(200)
	if want := fmt.Sprintf(
		`"drivers":[{"id":%d,"name":"virtio"},{"id":%d,"name":"second"}]`,
		driver.ID,
		second,
	); !strings.Contains(
		profile.Text,
		want,
	) {
		t.Errorf("got the profile %s, want it with %s", profile.Text, want)
	}
	if copied := c.Do("POST", fmt.Sprintf("/pxe/profile/%d/copy", profile.ID()), `{"name": "Copy"}`).
		Want(200); !strings.Contains(
		copied.Text,
		`"name":"virtio"`,
	) {
		t.Errorf("got the copy %s, want it with the driver virtio", copied.Text)
	} else {
		c.Do("DELETE", fmt.Sprintf("/pxe/profile/%d", copied.ID()), nil).Want(200)
	}
	c.Do("PATCH", fmt.Sprintf("/pxe/profile/%d", profile.ID()), `{"drivers": [999]}`).WantErrors("/drivers", "not_found")
	c.Do("DELETE", at, nil).WantDetail(problem.Conflict, fmt.Sprintf("Driver %d is used by profile %d (Windows).", driver.ID, profile.ID()))
	c.Do("PATCH", fmt.Sprintf("/pxe/profile/%d", profile.ID()), `{"drivers": []}`).Want(200)
	c.Do("DELETE", fmt.Sprintf("%s,%d", at, second), nil).Want(200)
	var kept int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM stored_file WHERE path IS NOT NULL").Scan(&kept); err != nil || kept > 0 {
		t.Errorf("got %d stored files (%v), want 0", kept, err)
	}
}

// An upload that breaks off leaves nothing in the store.
func TestDriverCutOff(t *testing.T) {
	t.Parallel()
	c, db, _ := newClient(t)
	files := func() (n int) {
		testkit.Must(t, db.QueryRow(t.Context(), "SELECT count(*) FROM stored_file").Scan(&n))
		return n
	}
	for media, begin := range map[string]string{
		"multipart/form-data; boundary=x": "--x\r\nContent-Disposition: form-data; name=driver\r\n\r\n",
		"application/json":                `{"driver": "`,
	} {
		in, out := io.Pipe()
		var sending sync.WaitGroup
		sending.Go(func() { _, _ = c.Try("POST", "/pxe/driver", in, "Content-Type", media) })
		_, _ = io.WriteString(out, begin+strings.Repeat("aXk0", 100_000))
		testkit.Eventually(t, "the file is being stored", func() bool { return files() > 0 })
		out.CloseWithError(io.ErrUnexpectedEOF)
		sending.Wait()
		testkit.Eventually(t, "the file is deleted", func() bool { return files() == 0 })
	}
}
