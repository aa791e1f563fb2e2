package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lsblk is the output of lsblk on a machine with two SSDs of 480 GB, a larger one, and two hard disks. Others are no disks to write to.
const lsblk = `{"blockdevices": [
	{"path": "/dev/loop0", "size": 104857600, "serial": null, "wwn": null, "type": "loop", "rota": false, "ro": false, "rm": false},
	{"path": "/dev/sdb", "size": 480103981056, "serial": "S2", "wwn": "0x5002538e40000002", "type": "disk", "rota": false},
	{"path": "/dev/sda", "size": 480103981056, "serial": "S1", "wwn": "0x5002538e40000001", "type": "disk", "rota": false},
	{"path": "/dev/nvme0n1", "size": 1920383410176, "serial": "N1 ", "wwn": "eui.01", "model": "NVMe", "type": "disk", "rota": false},
	{"path": "/dev/sdc", "size": 4000787030016, "serial": "H1", "wwn": null, "type": "disk", "rota": true, "ro": false, "rm": false},
	{"path": "/dev/sdd", "size": 250059350016, "serial": "H2", "wwn": null, "type": "disk", "rota": true, "ro": true, "rm": false},
	{"path": "/dev/sde", "size": 16008609792, "serial": "USB", "wwn": null, "type": "disk", "rota": false, "ro": false, "rm": true},
	{"path": "/dev/sr0", "size": 1073741312, "serial": null, "wwn": null, "type": "rom", "rota": true, "ro": false, "rm": true},
	{"path": "/dev/zram0", "size": 1073741312, "serial": null, "wwn": null, "type": "disk", "rota": false}]}`

// fakeMachine returns a machine with the disks of lsblk, and the commands that it ran after that.
func fakeMachine(t *testing.T) (*machine, *[]string) {
	t.Helper()
	var ran []string
	return &machine{run: func(name string, arguments ...string) ([]byte, error) {
		command := strings.Join(append([]string{name}, arguments...), " ")
		switch {
		case strings.HasPrefix(command, "lsblk --json"):
			return []byte(lsblk), nil
		case strings.HasPrefix(command, "lsblk --noheadings"):
			path := arguments[len(arguments)-1]
			return []byte(path + "\n" + path + "1\n"), nil
		}
		ran = append(ran, command)
		return nil, nil
	}}, &ran
}

// Each selector finds its disk, and never one that is kept, read-only, removable, or chosen already.
func TestChoose(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ selectors, keep, want, err string }{
		{selectors: "/dev/sdb", want: "/dev/sdb"},
		{selectors: "serial=s2", want: "/dev/sdb"},
		{selectors: "serial=N1", want: "/dev/nvme0n1"},
		{selectors: "wwn=0x5002538E40000001", want: "/dev/sda"},
		{selectors: "size=480G", want: "/dev/sda"},
		{selectors: "size=1.92T", want: "/dev/nvme0n1"},
		{selectors: "size=480GB", keep: "serial=S1", want: "/dev/sdb"},
		{selectors: "smallest", want: "/dev/sda"},
		{selectors: "largest", want: "/dev/sdc"},
		{selectors: "smallest-ssd", keep: "size=480G", want: "/dev/nvme0n1"},
		{selectors: "largest-ssd", want: "/dev/nvme0n1"},
		{selectors: "smallest-hdd", want: "/dev/sdc"},
		{selectors: "largest", keep: "largest", want: "/dev/nvme0n1"},
		{selectors: "smallest-ssd,smallest-ssd", want: mirrorPath},
		{selectors: "/dev/sda", keep: "serial=S1", err: "there is no disk /dev/sda that is neither kept, read-only nor chosen already"},
		{selectors: "/dev/sda,serial=S1", err: "there is no disk serial=S1 that is neither kept"},
		{selectors: "serial=H2", err: "there is no disk serial=H2"},
		{selectors: "serial=USB", err: "there is no disk serial=USB"},
		{selectors: "/dev/zram0", err: "there is no disk /dev/zram0"},
		{selectors: "/dev/sda", keep: "serial=S3",
			err: "there is no disk serial=S3 to keep: the machine has /dev/nvme0n1 (1.9T, serial=N1 , wwn=eui.01), /dev/sda (480.1G"},
		{selectors: "fastest", err: `"fastest" does not select a disk`},
		{selectors: "smallest-tape", err: `"smallest-tape" does not select a disk`},
		{selectors: "serial=", err: `"serial=" does not select a disk`},
		{selectors: "size=480", err: `"480" is no size`},
		{selectors: "size=-1G", err: `"-1G" is no size`},
		{selectors: "", err: "got 0 disks to write to"},
		{selectors: "smallest,smallest,smallest", err: "got 3 disks to write to"},
	} {
		m, _ := fakeMachine(t)
		var out bytes.Buffer
		err := m.do([]string{"choose", "-keep", one.keep, one.selectors}, &out)
		switch {
		case one.err != "":
			if err == nil || !strings.HasPrefix(err.Error(), one.err) {
				t.Errorf("%q, keep %q: got the disk %q and the error %v, want the error %q",
					one.selectors, one.keep, out.String(), err, one.err)
			}
		case err != nil || out.String() != one.want+"\n":
			t.Errorf("%q, keep %q: got the disk %q and the error %v, want %s", one.selectors, one.keep, out.String(), err, one.want)
		}
	}
}

// The disks to keep, with their partitions, are read-only before anything is written.
func TestProtect(t *testing.T) {
	t.Parallel()
	m, ran := fakeMachine(t)
	if err := m.do([]string{"choose", "-keep", "serial=N1, largest-hdd", "smallest-ssd,size=480G"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"blockdev --setro /dev/nvme0n1", "blockdev --setro /dev/nvme0n11", "blockdev --setro /dev/sdc", "blockdev --setro /dev/sdc1",
		"mdadm --zero-superblock /dev/sda", "mdadm --zero-superblock /dev/sdb",
		"mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.0 --homehost=any --name=system /dev/sda /dev/sdb",
		"udevadm settle",
	}
	if !slices.Equal(*ran, want) {
		t.Errorf("got the commands\n%s\nwant\n%s", strings.Join(*ran, "\n"), strings.Join(want, "\n"))
	}
	m.run = func(string, ...string) ([]byte, error) { return nil, errors.New("no such device") }
	if err := m.protect([]disk{{Path: "/dev/sda"}}); err == nil {
		t.Error("got no error, want that the disk cannot be protected")
	}
}

// wipeMachine is a machine with two disks, each of them a file with data. discard does what blkdiscard does.
func wipeMachine(t *testing.T, discard func(path string) error) (m *machine, paths []string) {
	t.Helper()
	folder := t.TempDir()
	const size = 3*sampleSize + 512
	var devices []map[string]any
	for n := range 2 {
		path := filepath.Join(folder, fmt.Sprint("disk", n))
		if err := os.WriteFile(path, bytes.Repeat([]byte("data"), size/4), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		devices = append(devices, map[string]any{"path": path, "size": size, "serial": fmt.Sprint("S", n), "model": "File", "type": "disk"})
	}
	return &machine{run: func(name string, arguments ...string) ([]byte, error) {
		switch path := arguments[len(arguments)-1]; {
		case name == "lsblk" && arguments[0] == "--json":
			return json.Marshal(map[string]any{"blockdevices": devices})
		case name == "lsblk":
			return []byte(path), nil
		case name == "blkdiscard":
			return nil, discard(path)
		}
		return nil, nil
	}}, paths
}

// A disk reads as zeros after it was wiped, and the report says how. A disk that reads as data after it was discarded is overwritten. A
// disk to keep has its data.
func TestWipe(t *testing.T) {
	t.Parallel()
	for method, discard := range map[string]func(string) error{
		methodDiscard: func(path string) error { return os.WriteFile(path, make([]byte, 3*sampleSize+512), 0o600) },
		methodZeros:   func(string) error { return nil },
		"":            func(string) error { return errors.New("the disk cannot discard") },
	} {
		m, paths := wipeMachine(t, discard)
		before, err := os.ReadFile(paths[1])
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := m.do([]string{"wipe", "-keep", "serial=S1"}, &out); err != nil {
			t.Fatal(err)
		}
		reports := make([]report, 1)
		if err := json.Unmarshal(out.Bytes(), &reports[0]); err != nil { // exactly one line
			t.Fatal(err)
		}
		if method == "" {
			method = methodZeros
		}
		if len(reports) != 1 || reports[0].Serial != "S0" || reports[0].Model != "File" || reports[0].Method != method ||
			len(reports[0].Samples) != randomSamples+2 || reports[0].FinishedAt.Before(reports[0].StartedAt) {
			t.Errorf("got the reports %s, want one on S0 by the method %s with %d samples", out.String(), method, randomSamples+2)
		}
		if content, err := os.ReadFile(paths[0]); err != nil || len(bytes.Trim(content, "\x00")) > 0 || len(content) != 3*sampleSize+512 {
			t.Errorf("got %d bytes (%v) on the wiped disk, want zeros of its size", len(content), err)
		}
		if content, err := os.ReadFile(paths[1]); err != nil || !bytes.Equal(content, before) {
			t.Errorf("got other content of the disk to keep (%v)", err)
		}
	}
}

// A read-only disk cannot be wiped, and is not left out of the report in silence.
func TestWipeReadOnly(t *testing.T) {
	t.Parallel()
	m, _ := fakeMachine(t)
	want := "/dev/sdd (250.1G, serial=H2) cannot be wiped because it is read-only"
	if err := m.do([]string{"wipe", "-keep", "smallest-ssd,size=480G,serial=N1,serial=H1"}, io.Discard); err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %q", err, want)
	}
}

// A disk that does not read as zeros is never reported as wiped.
func TestReadBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	content := make([]byte, 2*sampleSize)
	content[len(content)-1] = 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBack(disk{Path: path, Size: int64(len(content))}); err == nil || !strings.Contains(err.Error(), "are not zeros") {
		t.Errorf("got the error %v, want that a piece is not zeros", err)
	}
}
