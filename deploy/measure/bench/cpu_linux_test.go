package main

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestCPUTime(t *testing.T) {
	measured := func(work func()) time.Duration {
		t.Helper()
		before, err := cpuTime()
		if err != nil {
			t.Fatal(err)
		}
		work()
		after, err := cpuTime()
		if err != nil {
			t.Fatal(err)
		}
		return after - before
	}
	for name, work := range map[string]func(){
		"of its own": func() {
			for range 100 {
				sha256.Sum256(make([]byte, 4<<20))
			}
		},
		"of a child": func() {
			if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").Run(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if measured(work) < 2*clockTick {
			t.Errorf("%s: got less than %v of busy work, want that or more", name, 2*clockTick)
		}
	}
}

func TestParseStat(t *testing.T) {
	pid, parent, ticks, err := parseStat("12 (a) b (c) S 7 1 1 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0")
	if pid != 12 || parent != 7 || ticks != 4330 || err != nil {
		t.Errorf("got %d %d %d %v, want 12 7 4330", pid, parent, ticks, err)
	}
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if pid, parent, _, err := parseStat(string(own)); pid != os.Getpid() || parent != os.Getppid() || err != nil {
		t.Errorf("got %d %d %v, want %d %d of %s", pid, parent, err, os.Getpid(), os.Getppid(), own)
	}
	if _, _, _, err := parseStat("12 (a) S"); err == nil {
		t.Error("got a short line parsed, want an error")
	}
}
