package image_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/media/image"
)

// maxHeapGrowth is how much memory an image may cost to read: two imports and a site's agents fit 512 MB together.
const maxHeapGrowth = 96 << 20

// isoImage returns an ISO 9660 image of this many sectors whose root folder is the extent.
func isoImage(sectors int, rootAt, rootSize uint32) []byte {
	text := make([]byte, sectors*2048)
	d := text[16*2048:]
	copy(d, "\x01CD001\x01")
	binary.LittleEndian.PutUint32(d[80:], uint32(sectors))
	binary.LittleEndian.PutUint16(d[128:], 2048)
	copy(d[156:], isoRecord("\x00", true, rootAt, rootSize))
	copy(text[17*2048:], "\xffCD001\x01")
	return text
}

// isoRecord returns a directory record.
func isoRecord(name string, isFolder bool, at, size uint32) []byte {
	r := make([]byte, (33+len(name)+1)/2*2)
	r[0] = byte(len(r))
	binary.LittleEndian.PutUint32(r[2:], at)
	binary.LittleEndian.PutUint32(r[10:], size)
	if isFolder {
		r[25] = 2
	}
	r[32] = byte(len(name))
	copy(r[33:], name)
	return r
}

// An image of 17 MB cannot make the reader keep overlapping folders of 16 MB each.
func TestOverlappingFolders(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const folderSectors = 8000
	text := isoImage(folderSectors+100, 20, folderSectors*2048)
	for n := range 60 { // each folder begins one sector after its parent, and reaches to the same end
		at := 20 + n
		copy(text[at*2048:], isoRecord(fmt.Sprintf("FOLDER%d", n), true, uint32(at+1), uint32(folderSectors-n-1)*2048))
	}
	var err error
	growth := testkit.HeapGrowth(func() { _, err = image.ReadFiles(bytes.NewReader(text), int64(len(text))) })
	if err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("got %v, want an error that folders overlap", err)
	}
	if growth > maxHeapGrowth {
		t.Errorf("got %d MB more memory, want at most %d MB", growth>>20, maxHeapGrowth>>20)
	}
}

// The paths of an image's files are bounded together: many long names in deep folders do not fill the memory.
func TestManyLongPaths(t *testing.T) { //nolint:paralleltest // measures the heap of the process
	const depth, sectors = 38, 8000
	text := isoImage(sectors, 20, 2048)
	name := strings.Repeat("N", 24)
	for n := range depth {
		to, size := uint32(21+n), uint32(2048)
		if n == depth-1 {
			size = (sectors - 100) * 2048
		}
		copy(text[(20+n)*2048:], isoRecord(name, true, to, size))
	}
	for at := (20 + depth) * 2048; at < (sectors-60)*2048; at += 2048 {
		for n, record := 0, 0; n+60 < 2048; record++ {
			n += copy(text[at+n:], isoRecord(fmt.Sprintf("%d-%d", at, record), false, 18, 1))
		}
	}
	var err error
	growth := testkit.HeapGrowth(func() { _, err = image.ReadFiles(bytes.NewReader(text), int64(len(text))) })
	if err == nil || !strings.Contains(err.Error(), "paths") {
		t.Errorf("got %v, want an error about the length of all paths", err)
	}
	if growth > maxHeapGrowth {
		t.Errorf("got %d MB more memory (%v), want at most %d MB", growth>>20, err, maxHeapGrowth>>20)
	}
}
