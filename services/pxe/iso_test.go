package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/pxe/media"
	"github.com/ironplane/ironplane/services/pxe/storage"
)

// site is the service on a store, which may load ISOs from allowedHost.
type site struct {
	*testing.T
	*testkit.RunningService
	store *storage.Store
}

func newSite(t *testing.T) *site {
	at := t.TempDir()
	s, _ := neighbours.Run(t, pxe.Definition, testkit.ServiceOptions{Settings: service.Settings{Store: at, AllowedNetworks: allowedHost}})
	return &site{t, s, storage.New(s.DB, at)}
}

// allowedHost is a host of the operator from which ISOs can be imported. Other such hosts are refused.
const allowedHost, forbiddenHost = "127.0.0.2", "127.0.0.3"

// serveISO runs a server of ISOs.
func serveISO(t *testing.T, serve http.HandlerFunc) *httptest.Server {
	t.Helper()
	d := httptest.NewUnstartedServer(serve)
	listener, err := net.Listen("tcp", allowedHost+":0")
	if err != nil {
		t.Fatal(err)
	}
	_ = d.Listener.Close()
	d.Listener = listener
	d.Start()
	t.Cleanup(d.Close)
	return d
}

// imported creates an ISO and waits until its import has ended.
func (s *site) imported(t *testing.T, name, url, more string) media.ISOManager {
	t.Helper()
	id := s.Do("POST", "/pxe/iso", fmt.Sprintf(`{"name": %q, "folder": %[1]q, "url": %q%s}`, name, url, more)).Want(200).ID()
	return s.ended(t, id)
}

func (s *site) ended(t *testing.T, id int64) (is media.ISOManager) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		is = testkit.Decode[media.ISOManager](s.Do("GET", path("/pxe/iso/%d", id), nil).Want(200))
		if is.Status == "ready" || is.Status == "failed" {
			return is
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s, want it ready or failed", testkit.JSON(is))
		}
	}
}

// held returns the files below a folder that file servers must have, with their content.
func (s *site) held(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for f, err := range s.store.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.Path, folder) {
			continue
		}
		content, err := s.store.Open(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		_ = content.Close()
		if fmt.Sprintf("%x", sha256.Sum256(text)) != f.SHA256 || int64(len(text)) != f.Size {
			t.Errorf("%s: got %d bytes that differ, want %+v", f.Path, len(text), f)
		}
		all[f.Path] = string(text)
	}
	return all
}

func TestISO(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	server := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	})
	is := s.imported(t, "win", server.URL+"/?token=s3cr3t", "")
	if is.Status != "ready" || is.Progress != 100 || is.Error != nil || is.SHA256 == nil || *is.SHA256 != sum ||
		*is.Size != int64(len(image)) {
		t.Fatalf("got %s, want it ready with %d bytes and the SHA-256 %s", testkit.JSON(is), len(image), sum)
	}
	at := path("/pxe/iso/%d", is.ID)
	files := s.held(t, "win")
	if len(files) != 4 || files["win.iso"] != string(image) || files["win/boot/BCD"] != "bcd\n" ||
		!strings.HasPrefix(files["win/setup.exe"], "1\n2\n") ||
		!strings.HasPrefix(files["win/sources/install.wim"], "MSWIM") {
		t.Errorf("got %d files, want win.iso and the 3 files in it", len(files))
	}

	// The editions.
	var editions []media.ISOEdition
	read := func() {
		editions = testkit.Decode[[]media.ISOEdition](s.Do("GET", at+"/edition?sort=number", nil).Want(200))
	}
	read()
	if len(editions) != 2 || editions[0].Name != "Windows Server 2022 SERVERSTANDARD" || editions[0].IsEnabled || editions[1].Number != 2 {
		t.Fatalf("got the editions %s, want 2 that are not enabled, SERVERSTANDARD first", testkit.JSON(editions))
	}
	one := at + path("/edition/%d", editions[0].ID)
	for body, want := range map[string]string{`{"license_key": "ABCDE"}`: "invalid", `{"license_key": "*****-*****-*****-*****-ABCDE"}`: "invalid", `{"license_key": 5}`: "invalid"} {
		s.Do("PATCH", one, body).WantErrors("/license_key", want)
	}
	enabled := func() []media.ISOEdition {
		t.Helper()
		return testkit.Decode[[]media.ISOEdition](s.Do("GET", at+"/edition?is_enabled=true", nil).Want(200))
	}
	if found := enabled(); len(found) > 0 {
		t.Errorf("got the enabled editions %s, want none", testkit.JSON(found))
	}
	shown := testkit.Decode[media.ISOEdition](
		s.Do("PATCH", one, `{"is_enabled": "1", "license_key": "abcde-FGHIJ-KLMNO-PQRST-UVWXY"}`).Want(200),
	)
	if !shown.IsEnabled || shown.Key == nil || *shown.Key != "*****-*****-*****-*****-UVWXY" {
		t.Errorf("got the edition %s, want it enabled with all but the end of its key hidden", testkit.JSON(shown))
	}
	if found := enabled(); len(found) != 1 || found[0].ID != editions[0].ID {
		t.Errorf("got the enabled editions %s, want edition %d", testkit.JSON(found), editions[0].ID)
	}
	if found := testkit.Decode[[]media.ISOEdition](
		s.Do("GET", at+"/edition?is_enabled=false", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != editions[1].ID {
		t.Errorf("got the editions that are not enabled %s, want edition %d", testkit.JSON(found), editions[1].ID)
	}
	s.Do("GET", at+"/edition?is_enabled=perhaps", nil).Want(400)
	sealed := func() (text []byte) {
		t.Helper()
		if err := s.DB.QueryRow(t.Context(), "SELECT license_key FROM iso_edition WHERE id = $1", editions[0].ID).
			Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	kept := sealed()
	s.Do("PATCH", one, map[string]any{"license_key": *shown.Key, "is_enabled": true}).Want(200)
	if len(kept) == 0 || bytes.Contains(kept, []byte("UVWXY")) || !bytes.Equal(sealed(), kept) {
		t.Error("got another or a readable license key after the hidden form was sent back, want it sealed and unchanged")
	}
	s.Do("POST", at+"/edition", `{"name": "x"}`).Want(405)
	s.Do("GET", "/pxe/iso/999/edition", nil).Want(404)
	s.Do("GET", "/pxe/iso/999"+path("/edition/%d", editions[0].ID), nil).Want(404)

	// A profile keeps its ISO and edition from being deleted.
	boot := s.Do("POST", "/pxe/boot-script", `{"name": "boot"}`).Want(200).ID()
	profile := s.Do("POST", "/pxe/profile", fmt.Sprintf(`{"name": "Windows", "access_client": true, "boot_script": %d, "iso": {"id": "%d", "edition": {"id": %d}}}`, boot, is.ID, editions[0].ID)).
		Want(200)
	if want := fmt.Sprintf(
		`"iso":{"id":%d,"name":"win","edition":"Windows Server 2022 SERVERSTANDARD"}`,
		is.ID,
	); !strings.Contains(
		profile.Text,
		want,
	) {
		t.Errorf("got the profile %s, want it with %s", profile.Text, want)
	}
	atProfile := path("/pxe/profile/%d", profile.ID())
	if back := s.Do("PATCH", atProfile, profile.Text).Want(200); back.Header.Get("ETag") != profile.Header.Get("ETag") {
		t.Errorf("got %s after the profile was sent back, want it unchanged: %s", back.Text, profile.Text)
	}
	for body, want := range map[string][]string{
		`{"iso": {"edition": "Windows Server 2022 SERVERDATACENTER"}}`:     {"/iso/edition", "not_found"}, // not enabled
		`{"iso": {"id": 999, "edition": null}}`:                            {"/iso/id", "not_found"},
		`{"iso": {"id": null, "edition": "x"}}`:                            {"/iso/id", "required"},
		fmt.Sprintf(`{"iso": {"id": %d, "edition": "Windows 95"}}`, is.ID): {"/iso/edition", "not_found"},
	} {
		s.Do("PATCH", atProfile, body).WantErrors(want...)
	}
	used := fmt.Sprintf("is used by profile %d (Windows).", profile.ID())
	s.Do("DELETE", at, nil).WantDetail(problem.Conflict, fmt.Sprintf("ISO %d %s", is.ID, used))
	s.Do("PATCH", one, `{"is_enabled": false}`).WantErrors("/is_enabled", "in_use")

	// A client sees the enabled editions in the ISOs of its profiles, without keys.
	client := s.As(&principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: 1}, KeyID: 1})
	if text := client.Do("GET", at+"/edition", nil).
		Want(200).
		Text; strings.Count(text, `"id"`) != 1 || strings.Contains(text, "UVWXY") ||
		strings.Contains(text, "key") {
		t.Errorf("got %s for a client, want 1 edition without its key", text)
	}
	if text := client.Do("GET", one, nil).Want(200).Text; strings.Contains(text, "UVWXY") {
		t.Errorf("got %s for a client, want it without the key", text)
	}
	client.Do("GET", at+path("/edition/%d", editions[1].ID), nil).Want(404)
	client.Do("PATCH", one, `{"is_enabled": true}`).Want(403)
	client.Do("GET", at, nil).Want(403)
	s.Do("PATCH", atProfile, `{"access_client": false}`).Want(200)
	client.Do("GET", at+"/edition", nil).Want(404)
	client.Do("GET", one, nil).Want(404)

	// A new folder moves the files, and a new import keeps the settings of editions.
	seen := s.Do("GET", at, nil).Want(200).Header.Get("ETag")
	s.Do("PATCH", at, `{"folder": "windows-2022", "url": ""}`).Want(200)
	if files := s.held(t, "windows-2022"); len(files) != 4 || len(s.held(t, "win.")) != 0 {
		t.Errorf("got %d files in windows-2022 and %d in win, want 4 and 0", len(files), len(s.held(t, "win.")))
	}
	s.Do("PATCH", at, map[string]any{"url": server.URL}, "If-Match", seen).Want(412)
	s.Do("PATCH", at, map[string]any{"url": server.URL, "sha256": strings.ToUpper(sum)}).Want(200)
	if reimported := s.ended(t, is.ID); reimported.Status != "ready" || len(s.held(t, "windows-2022")) != 4 {
		t.Errorf("got %s, want it ready with 4 files in windows-2022", testkit.JSON(reimported))
	}
	if before := editions; true {
		if read(); len(editions) != 2 || editions[0].ID != before[0].ID || !editions[0].IsEnabled || editions[0].Key == nil {
			t.Errorf("got the editions %s, want the 2 of before with the first enabled and its key", testkit.JSON(editions))
		}
	}
	for body, want := range map[string][]string{
		`{}`: {"/folder", "required", "/name", "required"},
		`{"name": "x", "folder": "../x", "url": "https://x.example.com"}`:             {"/folder", "invalid"},
		`{"name": "x", "folder": "drivers", "url": "ftp://x.example.com"}`:            {"/folder", "invalid", "/url", "invalid"},
		`{"name": "x", "folder": "x.iso", "url": "https://x.example.com"}`:            {"/folder", "invalid"},
		`{"name": "x", "folder": "windows-2022", "url": "https://x.example.com"}`:     {"/folder", "taken"},
		`{"name": "x", "folder": "x", "url": "https://x.example.com", "sha256": "x"}`: {"/sha256", "invalid"},
	} {
		s.Do("POST", "/pxe/iso", body).WantErrors(want...)
	}
	s.Do("DELETE", atProfile, nil).Want(200)
	s.Do("DELETE", at, nil).Want(200)
	if files := s.held(t, ""); len(files) > 0 {
		t.Errorf("got %d files, want 0", len(files))
	}
	if err := s.store.Sweep(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
