package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestBackup backs up an installation that runs, restores the archive on a machine without data, and compares what callers see.
func TestBackup(t *testing.T) {
	t.Parallel()
	needsTools(t, "pg_dump", "pg_restore")
	events := make(chan *http.Request, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		events <- r
	}))
	t.Cleanup(receiver.Close)
	folder := t.TempDir()
	environment := map[string]string{
		"IRONPLANE_DATA":             filepath.Join(folder, "data"),
		"IRONPLANE_ALLOWED_NETWORKS": "127.0.0.0/8",
		"IRONPLANE_BACKUP_SETTINGS":  filepath.Join(folder, "settings"),
	}
	write(t, filepath.Join(folder, "settings", "standalone.env"), "IRONPLANE_LISTEN=127.0.0.1:8080\n")
	first := start(t, environment)
	key := first.key()
	c := first.client(key)
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	c.Do("POST", "/client", `{"email": "ben@example.com", "first": "Ben", "last": "Miller"}`).Want(200)
	driver := c.Do("POST", "/pxe/driver", `{"driver": "YSBkcml2ZXI=", "name": "virtio"}`).Want(200).ID()
	hook := testkit.Decode[struct {
		ID     int64
		Secret string
	}](c.Do("POST", "/webhook", map[string]any{"url": receiver.URL, "types": []string{"group.created"}}).Want(200))
	paths := []string{"/group", "/client", "/pxe/driver", fmt.Sprintf("/pxe/driver/%d/content", driver), "/webhook", "/admin"}
	want := read(c, paths)

	archive := filepath.Join(folder, "ironplane.backup")
	if output := runTo(t, environment, true, "backup", archive); !strings.Contains(output, "It has the master key") {
		t.Errorf("backup: got %s, want a warning about the master key", output)
	}
	if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got the archive %v, %v, want the mode 0600", info, err)
	}
	if output := runTo(t, environment, false, "backup", archive); !strings.Contains(output, "exists") {
		t.Errorf("a second backup: got %s, want the archive left alone", output)
	}
	if output := runTo(t, environment, false, "restore", archive); !strings.Contains(output, "stop it") {
		t.Errorf("restore while it runs: got %s, want an error", output)
	}
	c.Do("POST", "/group", `{"name": "created after the backup"}`).Want(200)
	first.stop()
	if output := runTo(t, environment, false, "restore", archive); !strings.Contains(output, "IRONPLANE_RESTORE_REPLACE") {
		t.Errorf("restore over data: got %s, want an error that names the variable", output)
	}

	elsewhere := maps.Clone(environment)
	elsewhere["IRONPLANE_DATA"], elsewhere["IRONPLANE_BACKUP_SETTINGS"] = filepath.Join(folder, "machine 2"), filepath.Join(folder, "none")
	checkDamage(t, archive, elsewhere)
	for _, test := range []map[string]string{elsewhere, environment} { // a new machine; and the old one, whose data is replaced
		if test["IRONPLANE_DATA"] == environment["IRONPLANE_DATA"] {
			test["IRONPLANE_RESTORE_REPLACE"] = "true"
		}
		output := runTo(t, test, true, "restore", archive)
		if !strings.Contains(output, "are complete and unaltered") || strings.Count(output, "is reconciled") != 5 {
			t.Errorf("restore: got\n%s\nwant five reconciled schemas and a verified log", output)
		}
		restored := start(t, test)
		c := restored.client(key)
		if got := read(c, paths); !maps.Equal(got, want) {
			t.Errorf("restored: got\n%v\nwant\n%v", got, want)
		}
		c.Do("POST", fmt.Sprintf("/webhook/%d/test", hook.ID), nil).Want(200)
		select { // the webhook's secret is sealed with the master key
		case r := <-events:
			body, err := io.ReadAll(r.Body)
			if err == nil {
				_, err = client.ReadEvent(hook.Secret, r.Header, body)
			}
			if err != nil {
				t.Errorf("got %v for the event's signature, want the secret from before the backup", err)
			}
		case <-time.After(testTimeout):
			t.Error("got no event, want one")
		}
		restored.stop()
	}
	if got, err := os.ReadFile(filepath.Join(archive+".settings", "standalone.env")); err != nil ||
		string(got) != "IRONPLANE_LISTEN=127.0.0.1:8080\n" {
		t.Errorf("got the settings %q, %v, want those of the backup", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*.partial-*")); err != nil || len(left) > 0 {
		t.Errorf("got %q, %v, want no unfinished archive", left, err)
	}
}

// TestBackupIsCutOff kills backups and restores. No killed backup leaves its file, and a killed restore can run again.
func TestBackupIsCutOff(t *testing.T) {
	t.Parallel()
	needsTools(t, "pg_dump", "pg_restore")
	folder := t.TempDir()
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(folder, "data")}
	first := start(t, environment)
	key := first.key()
	first.client(key).Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	first.stop()
	archive := filepath.Join(folder, "ironplane.backup")
	killed := launch(t, environment, "backup", archive)
	kill(t, killed, func() bool {
		partial, err := filepath.Glob(archive + ".partial-*")
		return err == nil && len(partial) > 0
	})
	if _, err := os.Stat(archive); !os.IsNotExist(err) {
		t.Errorf("got %v for the file of a killed backup, want none", err)
	}
	runTo(t, environment, true, "backup", archive)

	elsewhere := map[string]string{"IRONPLANE_DATA": filepath.Join(folder, "machine 2")}
	marker := filepath.Join(elsewhere["IRONPLANE_DATA"], "restoring")
	killed = launch(t, elsewhere, "restore", archive)
	kill(t, killed, func() bool {
		_, err := os.Stat(marker)
		return err == nil
	})
	if _, err := os.Stat(marker); err != nil {
		t.Fatalf("got %v, want a restore that was cut off", err)
	}
	runTo(t, elsewhere, true, "restore", archive)
	if _, err := os.Stat(marker); !os.IsNotExist(err) {
		t.Errorf("got %v for the marker of a finished restore, want none", err)
	}
	restored := start(t, elsewhere)
	if got := restored.client(key).Do("GET", "/group/1", nil).Want(200).Text; !strings.Contains(got, "Berlin") {
		t.Errorf("got %s, want the group Berlin", got)
	}
	restored.stop()
	if output := runTo(t, elsewhere, false, "restore", archive); !strings.Contains(output, "IRONPLANE_RESTORE_REPLACE") {
		t.Errorf("restore after a finished one: got %s, want the data kept", output)
	}
}

// checkDamage damages each kind of part, and expects an error with its name before anything is written.
func checkDamage(t *testing.T, archive string, environment map[string]string) {
	t.Helper()
	whole, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	damaged := archive + ".damaged"
	for _, name := range []string{"database/network.dump", "master-key", "store/", "settings/standalone.env", "manifest.json"} {
		at := bytes.Index(whole, []byte(name))
		if at < 0 {
			t.Fatalf("got an archive without %s, want one with it", name)
		}
		text := bytes.Clone(whole)
		text[at-at%512+512] ^= 1 // a header has 512 bytes, and the content follows
		write(t, damaged, string(text))
		if output := runTo(t, environment, false, "restore", damaged); !strings.Contains(output, name) ||
			!strings.Contains(output, "is damaged") {
			t.Errorf("%s: got %s, want an error that names it", name, output)
		}
	}
	write(t, damaged, string(whole[:len(whole)/2]))
	if output := runTo(t, environment, false, "restore", damaged); !strings.Contains(output, "cut off") {
		t.Errorf("half an archive: got %s, want an error", output)
	}
	if _, err := os.Stat(environment["IRONPLANE_DATA"]); !os.IsNotExist(err) {
		t.Errorf("got %v for the data folder, want nothing written", err)
	}
}

// runTo runs a command of the program to its end, and returns what it prints.
func runTo(t *testing.T, environment map[string]string, succeeds bool, arguments ...string) string {
	t.Helper()
	r := launch(t, environment, arguments...)
	if err := r.exit(); (err == nil) != succeeds {
		t.Fatalf("%q: got %v and\n%s\nwant success: %t", arguments, err, r.screen, succeeds)
	}
	return r.screen.String()
}

// kill kills a program once a condition holds.
func kill(t *testing.T, r *instance, condition func() bool) {
	t.Helper()
	for !condition() {
		select {
		case err := <-r.exited:
			t.Fatalf("got the exit %v and\n%s\nwant a program to kill", err, r.screen)
		default:
		}
	}
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = r.exit()
}

func read(c *testkit.Client, paths []string) map[string]string {
	all := map[string]string{}
	for _, path := range paths {
		all[path] = c.Do("GET", path, nil).Want(200).Text
	}
	return all
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
