package testkit

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestKilledTestsLeaveNothingInMemory(t *testing.T) {
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skip("this system has no /dev/shm, a file system in memory: ", err)
	}
	folder := func(age time.Duration) string {
		dir, err := os.MkdirTemp(memoryFolder, folderPrefix)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		began := time.Now().Add(-age)
		if err := os.Chtimes(dir, began, began); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	left, used, begun := folder(2*orphanAge), folder(2*orphanAge), folder(0)
	locked, err := lock(used)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(locked) })
	removeOrphans()
	for dir, want := range map[string]bool{left: false, used: true, begun: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: got the folder %t, want %t", dir, err == nil, want)
		}
	}
}
