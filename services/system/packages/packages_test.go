package packages

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

func newInstalled(t *testing.T, files map[string]string) *Installed {
	t.Helper()
	i := &Installed{Folder: filepath.Join(t.TempDir(), "packages")}
	for name, content := range files {
		put(t, i, name, content)
	}
	return i
}

func put(t *testing.T, i *Installed, name, content string) {
	t.Helper()
	name = filepath.Join(i.Folder, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, i *Installed, to, name string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(i.Folder, name)); err != nil {
		t.Fatal(err)
	}
}

// Only a package's assets are listed and served, even with links to other files.
func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, map[string]string{
		"shop/manifest.json":     `{"name": "Shop"}`,
		"shop/secret.js":         "secret",
		"shop/assets/main.js":    "main",
		"shop/assets/deep/a.css": "a",
		"shop/assets/.hidden.js": "x",
		"shop/assets/.git/x.js":  "x",
		"shop/assets/page.html":  "page",
		"whole/manifest.json":    `{"name": "Whole"}`,
		"whole/secret.js":        "secret",
		"other/manifest.json":    `{"name": "Other"}`,
		"../outside.js":          "secret",
		"nothing/x":              "",
		"broken/manifest.json":   "{",
		".hidden/manifest.json":  `{"name": "Hidden"}`,
	})
	link(t, i, "../secret.js", "shop/assets/up.js")
	link(t, i, "../../../outside.js", "shop/assets/out.js")
	link(t, i, filepath.Join(i.Folder, "../outside.js"), "shop/assets/absolute.js")
	link(t, i, "..", "shop/assets/folder")
	link(t, i, "main.js", "shop/assets/alias.js")
	link(t, i, ".", "whole/assets")
	link(t, i, "../shop/assets", "other/assets")
	link(t, i, "shop", "linked")
	if err := syscall.Mkfifo(filepath.Join(i.Folder, "shop/assets/pipe.js"), 0o644); err != nil {
		t.Fatal(err)
	}
	folders, err := i.Folders()
	if want := []string{"broken", "nothing", "other", "shop", "whole"}; err != nil || !slices.Equal(folders, want) {
		t.Errorf("got %q, %v, want %q", folders, err, want)
	}
	m, assets, err := i.Read("shop")
	var names []string
	for _, a := range assets {
		names = append(names, a.Path)
	}
	if want := []string{"alias.js", "deep/a.css", "main.js"}; err != nil || m.Name != "Shop" || !slices.Equal(names, want) {
		t.Errorf("got %q of %+v, %v, want %q of Shop", names, m, err, want)
	}
	for _, name := range []string{"whole", "other"} {
		if _, assets, err := i.Read(name); err != nil || len(assets) > 0 {
			t.Errorf("%s: got %v, %v, want no assets", name, assets, err)
		}
	}
	for _, name := range []string{"nothing", "linked", "none", "..", ""} {
		if _, _, err := i.Read(name); err == nil {
			t.Errorf("got %q accepted as a package, want an error", name)
		}
	}
	if _, _, err := i.Read("broken"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a broken manifest, want an error other than that it is missing", err)
	}
	for _, name := range []string{"main.js", "deep/a.css", "alias.js", "page.html"} {
		file, found, _, err := i.Open("shop", name)
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
			continue
		}
		if found.Hash == "" || name == "page.html" && found.Type() != "application/octet-stream" {
			t.Errorf("%s: got %+v, %s, want a hash, and a page as octet-stream", name, found, found.Type())
		}
		_ = file.Close()
	}
	for _, name := range []string{
		"up.js", "out.js", "absolute.js", "folder", "folder/secret.js", "folder/manifest.json", "pipe.js", ".hidden.js", ".git/x.js", "deep",
		"none.js", "", ".", "..", "../secret.js", "deep/../main.js", "/main.js", "deep//a.css", "main.js/", "..\\secret.js", "main.js\x00",
	} {
		if file, _, _, err := i.Open("shop", name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %v, %v, want %v", name, file, err, fs.ErrNotExist)
		}
	}
	for _, folder := range []string{"whole", "other"} {
		for _, name := range []string{"secret.js", "manifest.json", "main.js", "assets/secret.js"} {
			if _, _, _, err := i.Open(folder, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %s: got %v, want %v", name, folder, err, fs.ErrNotExist)
			}
		}
	}
}

// Replacing a folder by a link while it is served does not expose other files.
func TestLinksInBetween(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, map[string]string{"shop/manifest.json": `{"name": "Shop"}`, "shop/real/x.js": "asset", "shop/other/x.js": "secret"})
	assets := filepath.Join(i.Folder, "shop/assets")
	done := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Rename(filepath.Join(i.Folder, "shop/real"), assets)
			_ = os.Rename(assets, filepath.Join(i.Folder, "shop/real"))
			_ = os.Symlink("other", assets)
			_ = os.Remove(assets)
		}
	})
	served, refused := 0, 0
	for deadline := time.Now().Add(2 * time.Minute); served < 200 || refused < 200; {
		if time.Now().After(deadline) {
			t.Fatalf("got %d files served and %d refused in two minutes, want 200 each", served, refused)
		}
		file, _, _, err := i.Open("shop", "x.js")
		if err != nil {
			refused++
			continue
		}
		served++
		if text, err := io.ReadAll(file); err != nil || string(text) != "asset" {
			t.Fatalf("got %q, %v, want asset", text, err)
		}
		_ = file.Close()
	}
	close(done)
	swapping.Wait()
}

// A changed file has another hash.
func TestHash(t *testing.T) {
	t.Parallel()
	i := newInstalled(t, map[string]string{"shop/manifest.json": `{"name": "Shop"}`, "shop/assets/main.js": "one"})
	_, before, err := i.Read("shop")
	if err != nil || len(before) != 1 {
		t.Fatalf("got %v, %v, want one asset", before, err)
	}
	_, unchanged, _ := i.Read("shop")
	put(t, i, "shop/assets/main.js", "three")
	_, after, _ := i.Read("shop")
	if unchanged[0] != before[0] || after[0] == before[0] {
		t.Errorf("got %v, then %v, and after a change %v, want only the last one different", before, unchanged, after)
	}
}
