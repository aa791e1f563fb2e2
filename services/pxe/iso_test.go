package pxe_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/names"
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

// Of one's own hosts ISOs may be loaded from one, and not from another one.
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

// imported makes an ISO and waits until its import has ended.
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
			t.Fatalf("it is %s", testkit.JSON(is))
		}
	}
}

// held are the files that file servers are to hold below a folder, with what is in them.
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
			t.Errorf("%s is not what %+v says", f.Path, f)
		}
		all[f.Path] = string(text)
	}
	return all
}

func TestISO(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	door := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	})
	is := s.imported(t, "win", door.URL+"/?token=s3cr3t", "")
	if is.Status != "ready" || is.Progress != 100 || is.Error != nil || is.SHA256 == nil || *is.SHA256 != sum ||
		*is.Size != int64(len(image)) {
		t.Fatalf("it is %s", testkit.JSON(is))
	}
	at := path("/pxe/iso/%d", is.ID)
	files := s.held(t, "win")
	if len(files) != 4 || files["win.iso"] != string(image) || files["win/boot/BCD"] != "bcd\n" ||
		!strings.HasPrefix(files["win/setup.exe"], "1\n2\n") ||
		!strings.HasPrefix(files["win/sources/install.wim"], "MSWIM") {
		t.Errorf("%d files are held", len(files))
	}

	// Its editions.
	var editions []media.ISOEdition
	read := func() {
		editions = testkit.Decode[[]media.ISOEdition](s.Do("GET", at+"/edition?sort=number", nil).Want(200))
	}
	read()
	if len(editions) != 2 || editions[0].Name != "Windows Server 2022 SERVERSTANDARD" || editions[0].IsEnabled || editions[1].Number != 2 {
		t.Fatalf("the editions are %s", testkit.JSON(editions))
	}
	one := at + path("/edition/%d", editions[0].ID)
	for body, wrong := range map[string]string{`{"license_key": "ABCDE"}`: "invalid", `{"license_key": "*****-*****-*****-*****-ABCDE"}`: "invalid", `{"license_key": 5}`: "invalid"} {
		s.Do("PATCH", one, body).WantErrors("/license_key", wrong)
	}
	enabled := func() []media.ISOEdition {
		t.Helper()
		return testkit.Decode[[]media.ISOEdition](s.Do("GET", at+"/edition?is_enabled=true", nil).Want(200))
	}
	if found := enabled(); len(found) > 0 {
		t.Errorf("enabled are %s", testkit.JSON(found))
	}
	shown := testkit.Decode[media.ISOEdition](
		s.Do("PATCH", one, `{"is_enabled": "1", "license_key": "abcde-FGHIJ-KLMNO-PQRST-UVWXY"}`).Want(200),
	)
	if !shown.IsEnabled || shown.Key == nil || *shown.Key != "*****-*****-*****-*****-UVWXY" {
		t.Errorf("the edition is %s", testkit.JSON(shown))
	}
	if found := enabled(); len(found) != 1 || found[0].ID != editions[0].ID {
		t.Errorf("enabled are %s", testkit.JSON(found))
	}
	if found := testkit.Decode[[]media.ISOEdition](
		s.Do("GET", at+"/edition?is_enabled=false", nil).Want(200),
	); len(found) != 1 ||
		found[0].ID != editions[1].ID {
		t.Errorf("not enabled are %s", testkit.JSON(found))
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
		t.Error("what key shows does not mean the key that there is")
	}
	s.Do("POST", at+"/edition", `{"name": "x"}`).Want(405)
	s.Do("GET", "/pxe/iso/999/edition", nil).Want(404)
	s.Do("GET", "/pxe/iso/999"+path("/edition/%d", editions[0].ID), nil).Want(404)

	// A profile, and what it keeps there.
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
		t.Errorf("the profile is %s", profile.Text)
	}
	atProfile := path("/pxe/profile/%d", profile.ID())
	if back := s.Do("PATCH", atProfile, profile.Text).Want(200); back.Header.Get("ETag") != profile.Header.Get("ETag") {
		t.Errorf("sent back it is %s", back.Text)
	}
	for body, wrong := range map[string][]string{
		`{"iso": {"edition": "Windows Server 2022 SERVERDATACENTER"}}`:     {"/iso/edition", "not_found"}, // not enabled
		`{"iso": {"id": 999, "edition": null}}`:                            {"/iso/id", "not_found"},
		`{"iso": {"id": null, "edition": "x"}}`:                            {"/iso/id", "required"},
		fmt.Sprintf(`{"iso": {"id": %d, "edition": "Windows 95"}}`, is.ID): {"/iso/edition", "not_found"},
	} {
		s.Do("PATCH", atProfile, body).WantErrors(wrong...)
	}
	used := fmt.Sprintf("is used by profile %d (Windows).", profile.ID())
	s.Do("DELETE", at, nil).WantDetail(problem.Conflict, fmt.Sprintf("ISO %d %s", is.ID, used))
	s.Do("PATCH", one, `{"is_enabled": false}`).WantErrors("/is_enabled", "in_use")

	// A client sees the enabled editions of what its profiles name, and no keys.
	client := s.As(&principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: 1}, KeyID: 1})
	if text := client.Do("GET", at+"/edition", nil).
		Want(200).
		Text; strings.Count(text, `"id"`) != 1 || strings.Contains(text, "UVWXY") ||
		strings.Contains(text, "key") {
		t.Errorf("a client sees %s", text)
	}
	if text := client.Do("GET", one, nil).Want(200).Text; strings.Contains(text, "UVWXY") {
		t.Errorf("a client sees %s", text)
	}
	client.Do("GET", at+path("/edition/%d", editions[1].ID), nil).Want(404)
	client.Do("PATCH", one, `{"is_enabled": true}`).Want(403)
	client.Do("GET", at, nil).Want(403)
	s.Do("PATCH", atProfile, `{"access_client": false}`).Want(200)
	client.Do("GET", at+"/edition", nil).Want(404)
	client.Do("GET", one, nil).Want(404)

	// Another folder, and another import, which keeps how editions are set up.
	seen := s.Do("GET", at, nil).Want(200).Header.Get("ETag")
	s.Do("PATCH", at, `{"folder": "windows-2022", "url": ""}`).Want(200)
	if files := s.held(t, "windows-2022"); len(files) != 4 || len(s.held(t, "win.")) != 0 {
		t.Errorf("%d files are held elsewhere", len(files))
	}
	s.Do("PATCH", at, map[string]any{"url": door.URL}, "If-Match", seen).Want(412)
	s.Do("PATCH", at, map[string]any{"url": door.URL, "sha256": strings.ToUpper(sum)}).Want(200)
	if again := s.ended(t, is.ID); again.Status != "ready" || len(s.held(t, "windows-2022")) != 4 {
		t.Errorf("it is %s", testkit.JSON(again))
	}
	if before := editions; true {
		if read(); len(editions) != 2 || editions[0].ID != before[0].ID || !editions[0].IsEnabled || editions[0].Key == nil {
			t.Errorf("the editions are %s", testkit.JSON(editions))
		}
	}
	for body, wrong := range map[string][]string{
		`{}`: {"/folder", "required", "/name", "required", "/url", "required"},
		`{"name": "x", "folder": "../x", "url": "https://x.example.com"}`:             {"/folder", "invalid"},
		`{"name": "x", "folder": "drivers", "url": "ftp://x.example.com"}`:            {"/folder", "invalid", "/url", "invalid"},
		`{"name": "x", "folder": "x.iso", "url": "https://x.example.com"}`:            {"/folder", "invalid"},
		`{"name": "x", "folder": "windows-2022", "url": "https://x.example.com"}`:     {"/folder", "taken"},
		`{"name": "x", "folder": "x", "url": "https://x.example.com", "sha256": "x"}`: {"/sha256", "invalid"},
	} {
		s.Do("POST", "/pxe/iso", body).WantErrors(wrong...)
	}
	s.Do("DELETE", atProfile, nil).Want(200)
	s.Do("DELETE", at, nil).Want(200)
	if files := s.held(t, ""); len(files) > 0 {
		t.Errorf("%d files are left", len(files))
	}
	if err := s.store.Sweep(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// Whatever a server does, an import ends with what it has, or with the reason.
func TestISOServers(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(image))
	whole := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(image))
	}
	for name, c := range map[string]struct {
		serve func(tries int64, w http.ResponseWriter, r *http.Request)
		more  string
		fails string // nothing: it is ready
	}{
		"cuts": {serve: func(_ int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			whole(&cutting{w, len(image)/3 + 1}, r)
		}},
		"cuts-without-ranges": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			if tries < 3 {
				w = &cutting{w, len(image) / 2}
			}
			whole(w, r)
		}},
		"changes": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, tries))
			if tries == 1 {
				http.ServeContent(&cutting{w, 1000}, r, "", time.Time{}, bytes.NewReader(make([]byte, 5000)))
				return
			}
			whole(w, r)
		}},
		"fails-at-first": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			if tries == 1 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			whole(w, r)
		}},
		"redirects":        {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { redirectOnce(w, r, whole) }},
		"without-length":   {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); _, _ = w.Write(image) }},
		"is-what-is-known": {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { whole(w, r) }, more: `, "sha256": "` + sum + `"`},
		"is-another":       {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { whole(w, r) }, more: `, "sha256": "` + strings.Repeat("0", 64) + `"`, fails: "its SHA-256 is " + sum},
		"is-none":          {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, fails: "it is no ISO"},
		"is-empty":         {serve: func(int64, http.ResponseWriter, *http.Request) {}, fails: "it is no ISO"},
		"is-damaged":       {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image[:len(image)/4]) }, fails: "it is cut off"},
		"stops-early": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			_, _ = w.Write(image[:len(image)-1])
		}, fails: "it is cut off"},
		"lies-shorter": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(image)-1))
			_, _ = w.Write(image[:len(image)-1]) // of what comes behind that nothing is read
		}, fails: "it is cut off"},
		"lies-longer": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if tries == 1 {
				w.Header().Set("Content-Length", fmt.Sprint(len(image)+1000))
				w = &cutting{w, len(image)}
			}
			whole(w, r)
		}},
		"is-gone": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, fails: "it answered 404"},
		"is-too-large": {serve: func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(17)<<30))
		}, fails: "it is larger than 16 GiB"},
		"lies-of-ranges": {serve: func(tries int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if tries > 1 {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", len(image)))
				w.WriteHeader(http.StatusPartialContent)
				return
			}
			whole(&cutting{w, 1000}, r)
		}, fails: "it answers another part"},
		"leads-inside":        {serve: leadsTo("http://127.0.0.1/"), fails: "network of one's own"},
		"leads-inside-by-v6":  {serve: leadsTo("http://[::ffff:127.0.0.1]/"), fails: "network of one's own"},
		"leads-to-metadata":   {serve: leadsTo("http://169.254.169.254/latest/meta-data"), fails: "network of one's own"},
		"leads-inside-mapped": {serve: leadsTo("http://[::ffff:169.254.169.254]/"), fails: "network of one's own"},
		"leads-out-plainly":   {serve: leadsTo("http://192.88.99.1/"), fails: "http://"},
		"leads-round":         {serve: func(_ int64, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, fails: "redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int64
			door := serveISO(t, func(w http.ResponseWriter, r *http.Request) { c.serve(tries.Add(1), w, r) })
			is := s.imported(t, name, door.URL, c.more)
			switch {
			case c.fails != "" && (is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, c.fails)):
				t.Errorf("it is %s", testkit.JSON(is))
			case c.fails == "" && (is.Status != "ready" || *is.SHA256 != sum || len(s.held(t, name+"/")) != 3):
				t.Errorf("it is %s", testkit.JSON(is))
			case c.fails != "" && len(s.held(t, name)) > 0:
				t.Error("something of it is held")
			}
		})
	}
}

// cutting cuts the connection once so much was sent.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

func redirectOnce(w http.ResponseWriter, r *http.Request, then http.HandlerFunc) {
	if r.URL.Path == "/" {
		http.Redirect(w, r, "/there", http.StatusFound)
		return
	}
	then(w, r)
}

func leadsTo(url string) func(int64, http.ResponseWriter, *http.Request) {
	return func(_ int64, w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
}

// A name that leads to an allowed address when it is looked at, and to another one when it is used, is asked at none that is not allowed.
func TestISOOfAChangingName(t *testing.T) {
	t.Parallel()
	s, image := newSite(t), windows(t)
	door := serveISO(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(&cutting{w, len(image) / 3}, r, "", time.Time{}, bytes.NewReader(image))
	})
	_, port, _ := net.SplitHostPort(door.Listener.Addr().String())
	var inside atomic.Int64
	forbidden, err := net.Listen("tcp", forbiddenHost+":"+port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }),
		ReadHeaderTimeout: time.Minute,
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(forbidden) }()
	var asked atomic.Int64
	host := names.Add(t, func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr(allowedHost)
		}
		return netip.MustParseAddr(forbiddenHost)
	})
	is := s.imported(t, "rebound", "http://"+host+":"+port, "")
	if is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, "network of one's own") || inside.Load() > 0 ||
		asked.Load() < 2 {
		t.Errorf("it is %s after %d questions, and the forbidden address was asked %d times", testkit.JSON(is), asked.Load(), inside.Load())
	}
	// One that has always led there is refused at once.
	is = s.imported(t, "inside", "http://"+names.Add(t, func() netip.Addr { return netip.MustParseAddr(forbiddenHost) })+":"+port, "")
	if is.Status != "failed" || is.Error == nil || !strings.Contains(*is.Error, "network of one's own") || inside.Load() > 0 {
		t.Errorf("it is %s", testkit.JSON(is))
	}
}
