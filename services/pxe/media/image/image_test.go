package image_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/media/image"
)

// unpacked returns an image of testdata. xorriso and genisoimage made the images from a folder.
func unpacked(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Gunzip(t, filepath.Join("testdata", name+".iso.gz"))
}

func filesOf(t testing.TB, text []byte) map[string]string {
	t.Helper()
	files, err := image.ReadFiles(bytes.NewReader(text), int64(len(text)))
	testkit.Must(t, err)
	all := map[string]string{}
	for _, f := range files {
		content := ""
		for _, e := range f.Extents {
			content += string(text[e.At : e.At+e.Size])
		}
		all[f.Path] = content
	}
	return all
}

func lines(n int) (text string) {
	for i := range n {
		text += fmt.Sprintln(i + 1)
	}
	return text
}

func TestFiles(t *testing.T) {
	t.Parallel()
	linux := map[string]string{
		"a file with a long name of many characters.text": "hello\n",
		"EFI/boot/BootX64.efi":                            lines(2000),
		"EFI/boot/file-number-300-of-many":                "300\n",
		"deep/1/2/3/4/5/6/7/8/9/file":                     "deep\n",
		"empty":                                           "",
		"with blanks/ü ñ.txt":                             "ü\n",
	}
	for name, want := range map[string]map[string]string{
		"rockridge": linux, "joliet": linux,
		"windows": {"boot/BCD": "bcd\n", "setup.exe": lines(5000)},
	} {
		got := filesOf(t, unpacked(t, name))
		for path, content := range want {
			if got[path] != content {
				t.Errorf("%s: got %.100q in %s, want %.100q", name, got[path], path, content)
			}
		}
		if _, exists := got["link"]; exists {
			t.Errorf("%s: got a link as a file, want it left out", name)
		}
		if n := map[string]int{"windows": 3}[name]; len(got) != max(n, 305) && n == 0 || n > 0 && len(got) != n {
			t.Errorf("%s: got %d files, want 3 for windows and 305 for the others", name, len(got))
		}
	}
}

func TestEditions(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]image.Edition{
		"rockridge": nil,
		"windows":   {{Number: 1, Name: "Windows Server 2022 SERVERSTANDARD"}, {Number: 2, Name: "Windows Server 2022 SERVERDATACENTER"}},
		"esd":       {{Number: 1, Name: "Windows Server 2022 SERVERSTANDARD"}},
	} {
		text := unpacked(t, name)
		files, err := image.ReadFiles(bytes.NewReader(text), int64(len(text)))
		testkit.Must(t, err)
		if got, err := image.ReadEditions(bytes.NewReader(text), files); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v (%v), want %v", name, got, err, want)
		}
	}
	text := unpacked(t, "windows")
	broken := bytes.Replace(text, []byte("MSWIM"), []byte("OTHER"), 1)
	files, err := image.ReadFiles(bytes.NewReader(broken), int64(len(broken)))
	testkit.Must(t, err)
	if _, err := image.ReadEditions(bytes.NewReader(broken), files); !errors.Is(err, image.ErrNoEditions) {
		t.Errorf("got %v of what is no WIM, want %v", err, image.ErrNoEditions)
	}
}

// The editions are read from every WIM that wimlib can make: solid, with any compression, for pipes, or split.
func TestEditionsOfWimlib(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("wimlib-imagex"); err != nil {
		t.Skip("wimlib-imagex is not installed; Debian's package wimtools has it")
	}
	folder := t.TempDir()
	run := func(arguments ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "wimlib-imagex", arguments...)
		cmd.Dir = folder
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("run %v: %v: %s", arguments, err, output)
		}
	}
	want := []image.Edition{{Number: 1, Name: "Windows Server 2022 SERVERSTANDARD"}, {Number: 2, Name: "Windows Server 2022 SERVERDATACENTER"}}
	for n, edition := range want {
		of := fmt.Sprint("of", n)
		testkit.Must(t, os.Mkdir(filepath.Join(folder, of), 0o700))
		content := make([]byte, 1<<20)
		_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(content)
		testkit.Must(t, os.WriteFile(filepath.Join(folder, of, "file"), content, 0o600))
		run([]string{"capture", "append"}[n], of, "made.wim", edition.Name, "--no-acls")
	}
	run("export", "made.wim", "all", "solid.esd", "--solid")
	run("export", "made.wim", "all", "lzms.wim", "--compress=LZMS")
	run("export", "made.wim", "all", "none.wim", "--compress=none")
	run("export", "made.wim", "all", "piped.wim", "--pipable")
	run("split", "none.wim", "split.swm", "1")
	if parts, err := filepath.Glob(filepath.Join(folder, "split*.swm")); err != nil || len(parts) < 2 {
		t.Errorf("got the parts %v (%v), want at least 2", parts, err)
	}
	for file, name := range map[string]string{"made.wim": "install.wim", "solid.esd": "install.esd", "lzms.wim": "install.wim",
		"none.wim":  "install.wim",
		"piped.wim": "install.wim", "split.swm": "install.swm"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		testkit.Must(t, err)
		editions := func(text []byte) ([]image.Edition, error) {
			return image.ReadEditions(
				bytes.NewReader(text),
				[]image.File{{Path: "sources/" + name, Extents: []image.Extent{{Size: int64(len(text))}}}},
			)
		}
		if got, err := editions(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v (%v), want %v", file, got, err, want)
		}
		if got, err := editions(text[:len(text)-100]); !errors.Is(err, image.ErrNoEditions) {
			t.Errorf("%s cut off: got %v (%v), want %v", file, got, err, image.ErrNoEditions)
		}
	}
}

// An image that is truncated anywhere is an error, even if no file lacks any bytes. A file that is not an image is
// ErrNotISO.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rockridge", "joliet", "windows", "esd"} {
		whole := unpacked(t, name)
		for at := len(whole) - 1; at >= 0; at -= len(whole)/50 + 7 {
			text := whole[:at]
			if files, err := image.ReadFiles(bytes.NewReader(text), int64(len(text))); err == nil {
				t.Errorf("%s cut off after %d of %d bytes: got %d files, want an error", name, at, len(whole), len(files))
			}
		}
	}
	if _, err := image.ReadFiles(strings.NewReader("MZ"), 2); !errors.Is(err, image.ErrNotISO) {
		t.Errorf("got %v of two bytes, want %v", err, image.ErrNotISO)
	}
}

// Images of the installed xorriso are read, too.
func TestXorriso(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("xorriso"); err != nil {
		t.Skip("xorriso is not installed; Debian's package xorriso has it")
	}
	folder, to := t.TempDir(), filepath.Join(t.TempDir(), "x.iso")
	want := map[string]string{}
	for n := range 40 {
		path := strings.Repeat("folder/", n%12) + fmt.Sprintf("%s-%d.txt", strings.Repeat("long", n), n)
		want[path] = strings.Repeat(path, 100*n)
		testkit.Must(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(path)), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, path), []byte(want[path]), 0o600))
	}
	if output, err := exec.CommandContext(t.Context(), "xorriso", "-as", "mkisofs", "-quiet", "-R", "-o", to, folder).
		CombinedOutput(); err != nil {
		t.Fatalf("run xorriso: %v: %s", err, output)
	}
	text, err := os.ReadFile(to)
	testkit.Must(t, err)
	got := filesOf(t, text)
	for path, content := range want {
		if got[path] != content {
			t.Errorf("%s: got %.50q, want %.50q", path, got[path], content)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
}

// No image makes the reader panic or return an extent outside the image.
func FuzzFiles(f *testing.F) {
	images := [][]byte{
		unpacked(f, "rockridge"),
		unpacked(f, "windows"),
		writeUDF250(map[string]string{"folder/file": "content", "sources/install.wim": "MSWIM"}, false),
	}
	for n := range images {
		for _, at := range []int{16*2048 + 156, 257 * 2048, 20 * 2048, 30*2048 + 20, udfStart*2048 + 216, 34*2048 + 486} {
			f.Add(uint8(n), uint32(at), []byte{0xff, 0xff})
		}
	}
	f.Fuzz(func(t *testing.T, number uint8, at uint32, patch []byte) {
		text := slices.Clone(images[int(number)%len(images)])
		copy(text[int(at)%len(text):], patch)
		files, err := image.ReadFiles(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			return
		}
		for _, file := range files {
			for _, e := range file.Extents {
				if e.At < 0 || e.Size < 1 || e.At+e.Size > int64(len(text)) {
					t.Errorf("%s: got the extent %+v, want it within %d bytes", file.Path, e, len(text))
				}
			}
			if strings.HasPrefix(file.Path, "/") || slices.Contains(strings.Split(file.Path, "/"), "..") {
				t.Errorf("got the path %q, want a relative one without ..", file.Path)
			}
		}
		_, _ = image.ReadEditions(bytes.NewReader(text), files)
	})
}
