package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestApplyIsResumed kills the control plane and the command line at random while a file of 200 items is applied. Another run finishes
// it: no item is there twice, and none is missing.
func TestApplyIsResumed(t *testing.T) {
	t.Parallel()
	const clients, entities = 40, 159
	file := filepath.Join(t.TempDir(), "site.yaml")
	var text strings.Builder
	text.WriteString("- {kind: group, name: Frankfurt 1}\n")
	for i := range clients {
		fmt.Fprintf(&text, "- {kind: client, email: c%d@example.com, first: Client, last: \"%d\"}\n", i, i)
	}
	for i := range entities {
		fmt.Fprintf(&text, "- {kind: entity, full_ip: 10.9.0.%d, group: Frankfurt 1, owner: c%d@example.com}\n", i+1, i%clients)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	data := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")}
	r := start(t, data)
	key := r.key()
	apply := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "apply", "-f", file, "--yes")
		cmd.Env = append(os.Environ(), asCommandLine+"=yes", "IRONPLANE_URL="+r.URL, "IRONPLANE_KEY="+key)
		return cmd
	}
	kills := []struct{ commandLine, controlPlane bool }{{true, false}, {false, true}, {true, true}, {true, false}, {false, true}}
	cutOff := 0
	for n, kill := range kills {
		cmd := apply()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		part := (clients + entities) / (len(kills) + 1) // the last kill leaves a part for the run to the end
		until := part*n + rand.IntN(part)
		c := r.client(key)
		testkit.Eventually(t, fmt.Sprintf("%d items exist", until), func() bool {
			created := 0
			for _, path := range []string{"/client", "/entity"} {
				created += len(testkit.Decode[[]struct{ ID int64 }](c.Do("GET", path, nil).Want(200)))
			}
			return created >= until
		})
		if kill.commandLine {
			_ = cmd.Process.Kill() // it may have ended
		}
		if kill.controlPlane {
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = r.exit()
			r = start(t, data)
		}
		if cmd.Wait() != nil {
			cutOff++
		}
	}
	if cutOff == 0 {
		t.Error("got no run that was cut off, want some")
	}
	for _, want := range []string{"", "0 created, 0 updated, 200 unchanged\n"} {
		output, err := apply().CombinedOutput()
		if err != nil || want != "" && string(output) != want {
			t.Fatalf("got %v and %s, want a run to the end", err, output)
		}
	}
	c := r.client(key)
	if groups := testkit.Decode[[]struct{ Name string }](c.Do("GET", "/group", nil).Want(200)); len(groups) != 1 {
		t.Errorf("got the groups %v, want one", groups)
	}
	emails, addresses := map[string]bool{}, map[string]bool{}
	for _, item := range testkit.Decode[[]struct{ Email string }](c.Do("GET", "/client", nil).Want(200)) {
		emails[item.Email] = true
	}
	all := testkit.Decode[[]struct {
		FullIP string `json:"full_ip"`
		Owner  struct{ Name string }
	}](c.Do("GET", "/entity", nil).Want(200))
	for _, item := range all {
		addresses[item.FullIP] = true
		if item.Owner.Name == "" {
			t.Errorf("got %s without an owner, want one", item.FullIP)
		}
	}
	if len(emails) != clients || len(addresses) != entities || len(all) != entities {
		t.Errorf("got %d clients and %d entities with %d addresses, want %d and %d", len(emails), len(all), len(addresses), clients, entities)
	}
}
