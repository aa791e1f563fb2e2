package image_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/services/pxe/media/image"
)

// udf250 writes a small volume of UDF 2.50 as ECMA-167 and OSTA's UDF 2.50 specify it. Its metadata is in a partition of
// its own, in two pieces. With a mirror, there is a copy of them.
type udf250 struct {
	text []byte
	free int64 // the next block of the partition that is free
}

const (
	udfBlock = 2048
	// udfStart is the sector where the partition begins, which has udfBlocks.
	udfStart, udfBlocks = 300, 400
	// metadataBlocks are in two halves, far from each other.
	metadataBlocks = 128
	udfMain        = 0   // the block with the metadata file
	udfMirror      = 150 // and with its mirror
	firstHalf      = 10
	secondHalf     = 80
	mirrorHalf     = 160
	firstData      = 300
)

var order = binary.LittleEndian

// tagged completes a descriptor with its tag and checksums.
func tagged(tag uint16, location int64, body []byte) []byte {
	d := make([]byte, max(len(body), 16))
	copy(d, body)
	order.PutUint16(d, tag)
	order.PutUint16(d[2:], 3)
	order.PutUint16(d[8:], crcOf(d[16:]))
	order.PutUint16(d[10:], uint16(len(d)-16))
	order.PutUint32(d[12:], uint32(location))
	d[4] = 0
	for n, b := range d[:16] {
		if n != 4 {
			d[4] += b
		}
	}
	return d
}

// crcOf returns the CRC of ECMA-167, 7.2.6.
func crcOf(text []byte) (sum uint16) {
	for _, b := range text {
		sum ^= uint16(b) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}

func (u *udf250) writeSector(at int64, d []byte) { copy(u.text[at*udfBlock:], d) }

// entity returns an entity identifier.
func entity(name string, suffix ...byte) []byte {
	e := make([]byte, 32)
	copy(e[1:24], name)
	copy(e[24:], suffix)
	return e
}

func charset() []byte {
	c := make([]byte, 64)
	copy(c[1:], "OSTA Compressed Unicode")
	return c
}

func dstring(text string, size int) []byte {
	d := make([]byte, size)
	d[0] = 8
	copy(d[1:], text)
	d[size-1] = byte(len(text) + 1)
	return d
}

// entry returns an extended file entry.
func entry(location int64, kind byte, short bool, size int64, allocation []byte) []byte {
	d := make([]byte, 216+len(allocation))
	order.PutUint16(d[20:], 4) // strategy
	order.PutUint16(d[24:], 1)
	d[27] = kind
	if !short {
		order.PutUint16(d[34:], 1)
	}
	order.PutUint32(d[36:], 0xffffffff)
	order.PutUint32(d[40:], 0xffffffff)
	order.PutUint32(d[44:], 0x14a5)
	order.PutUint16(d[48:], 1)
	order.PutUint64(d[56:], uint64(size))
	order.PutUint64(d[64:], uint64(size))
	order.PutUint64(d[72:], uint64((size+udfBlock-1)/udfBlock))
	order.PutUint32(d[128:], 1) // checkpoint
	copy(d[168:], entity("*Test"))
	order.PutUint32(d[212:], uint32(len(allocation)))
	copy(d[216:], allocation)
	return tagged(266, location, d)
}

func shortAt(size, block int64) []byte {
	return order.AppendUint32(order.AppendUint32(nil, uint32(size)), uint32(block))
}

func longAt(size, block int64, reference uint16) []byte {
	return append(order.AppendUint16(shortAt(size, block), reference), make([]byte, 6)...)
}

// metadataAt returns the sector of a block of the metadata partition.
func metadataAt(block int64, mirror bool) int64 {
	switch {
	case mirror:
		return udfStart + mirrorHalf + block
	case block < metadataBlocks/2:
		return udfStart + firstHalf + block
	}
	return udfStart + secondHalf + block - metadataBlocks/2
}

// writeUDF250 writes a volume with these files. A path has at most one folder, before a slash.
func writeUDF250(files map[string]string, duplicate bool) []byte {
	const physical, metadata = 0, 1 // references
	u := &udf250{text: make([]byte, (udfStart+udfBlocks)*udfBlock), free: firstData}
	for n, mark := range []string{"BEA01", "NSR03", "TEA01"} {
		u.writeSector(16+int64(n), append([]byte{0}, mark+"\x01"...))
	}
	anchor := make([]byte, 512)
	order.PutUint32(anchor[16:], 16*udfBlock)
	order.PutUint32(anchor[20:], 32)
	order.PutUint32(anchor[24:], 16*udfBlock)
	order.PutUint32(anchor[28:], 64)
	for _, at := range []int64{256, udfStart + udfBlocks - 1} {
		u.writeSector(at, tagged(2, at, anchor))
	}
	for _, at := range []int64{32, 64} {
		main := make([]byte, 512)
		copy(main[24:], dstring("test", 32))
		order.PutUint16(main[56:], 1)
		order.PutUint16(main[58:], 1)
		order.PutUint16(main[60:], 2)
		order.PutUint16(main[62:], 3)
		order.PutUint32(main[64:], 1)
		order.PutUint32(main[68:], 1)
		copy(main[72:], dstring("test set", 128))
		copy(main[200:], charset())
		copy(main[264:], charset())
		u.writeSector(at, tagged(1, at, main))
		part := make([]byte, 512)
		order.PutUint16(part[20:], 1)
		copy(part[24:], entity("+NSR03"))
		order.PutUint32(part[184:], 1) // read only
		order.PutUint32(part[188:], udfStart)
		order.PutUint32(part[192:], udfBlocks-1)
		u.writeSector(at+1, tagged(5, at+1, part))
		logical := make([]byte, 440+6+64)
		copy(logical[20:], charset())
		copy(logical[84:], dstring("test", 128))
		order.PutUint32(logical[212:], udfBlock)
		copy(logical[216:], entity("*OSTA UDF Compliant", 0x50, 2))
		copy(logical[248:], longAt(udfBlock, 0, metadata))
		order.PutUint32(logical[264:], 6+64)
		order.PutUint32(logical[268:], 2)
		maps := logical[440:]
		copy(maps, []byte{1, 6, 1, 0, 0, 0})
		maps = maps[6:]
		copy(maps, []byte{2, 64})
		copy(maps[4:], entity("*UDF Metadata Partition", 0x50, 2))
		order.PutUint16(maps[36:], 1)
		order.PutUint32(maps[40:], udfMain)
		order.PutUint32(maps[44:], udfMirror)
		order.PutUint32(maps[48:], 0xffffffff)
		order.PutUint32(maps[52:], 1)
		order.PutUint16(maps[56:], 1)
		if duplicate {
			maps[58] = 1
		}
		u.writeSector(at+2, tagged(6, at+2, logical))
		u.writeSector(at+3, tagged(8, at+3, make([]byte, 512)))
	}
	halves := append(shortAt(metadataBlocks/2*udfBlock, firstHalf), shortAt(metadataBlocks/2*udfBlock, secondHalf)...)
	u.writeSector(udfStart+udfMain, entry(udfMain, 250, true, metadataBlocks*udfBlock, halves))
	if duplicate {
		halves = shortAt(metadataBlocks*udfBlock, mirrorHalf)
	}
	u.writeSector(udfStart+udfMirror, entry(udfMirror, 251, true, metadataBlocks*udfBlock, halves))

	put := func(block int64, d []byte) {
		u.writeSector(metadataAt(block, false), d)
		if duplicate {
			u.writeSector(metadataAt(block, true), d)
		}
	}
	set := make([]byte, 512)
	order.PutUint16(set[28:], 3)
	order.PutUint16(set[30:], 3)
	order.PutUint32(set[32:], 1)
	order.PutUint32(set[36:], 1)
	copy(set[48:], charset())
	copy(set[112:], dstring("test", 128))
	copy(set[240:], charset())
	copy(set[304:], dstring("test", 32))
	copy(set[400:], longAt(udfBlock, 1, metadata))
	copy(set[416:], entity("*OSTA UDF Compliant", 0x50, 2))
	put(0, tagged(256, 0, set))

	next := int64(2) // block of the metadata
	var folder func(name string, at, parent int64)
	folder = func(name string, at, parent int64) {
		identifier := func(text string, flags byte, to int64) []byte {
			coded := []byte(text)
			if text != "" {
				coded = append([]byte{8}, text...)
			}
			d := make([]byte, (38+len(coded)+3)/4*4)
			order.PutUint16(d[16:], 1)
			d[18], d[19] = flags, byte(len(coded))
			copy(d[20:], longAt(udfBlock, to, metadata))
			copy(d[38:], coded)
			return tagged(257, at, d)
		}
		content := identifier("", 8|2, parent)
		seen := map[string]bool{}
		for _, path := range slices.Sorted(maps.Keys(files)) {
			rest, below := strings.CutPrefix(path, name)
			first, _, deeper := strings.Cut(rest, "/")
			if !below || seen[first] {
				continue
			}
			seen[first] = true
			to := next
			next++
			if deeper {
				content = append(content, identifier(first, 2, to)...)
				folder(name+first+"/", to, at)
				continue
			}
			content = append(content, identifier(first, 0, to)...)
			text := files[path]
			put(to, entry(to, 5, false, int64(len(text)), longAt(int64(len(text)), u.free, physical)))
			u.writeSector(udfStart+u.free, []byte(text))
			u.free += int64(len(text)+udfBlock-1) / udfBlock
		}
		// The content of a folder is in the metadata, too. That of the root is in both halves.
		blocks := int64(len(content)+udfBlock-1) / udfBlock
		first := next
		if name == "" {
			first = metadataBlocks/2 - 1
		}
		for n := range blocks {
			put(first+n, content[n*udfBlock:min((n+1)*udfBlock, int64(len(content)))])
		}
		next = max(next, first+blocks)
		put(at, entry(at, 4, true, int64(len(content)), shortAt(int64(len(content)), first)))
	}
	folder("", 1, 1)
	return u.text
}

// UDF 2.50 and later, as Windows writes it, keeps the locations of files in a partition of its own, with a mirror. Each
// of the two is enough.
func TestMetadataPartition(t *testing.T) {
	t.Parallel()
	want := map[string]string{"setup.exe": lines(1000), "sources/boot.wim": lines(3000), "sources/readme": "read me"}
	for n := range 40 {
		want[strings.Repeat("a long name ", 5)+string(rune('A'+n))] = ""
	}
	for name, c := range map[string]struct {
		duplicate bool
		broken    []int64 // sectors
	}{
		"whole":                         {duplicate: true},
		"the mirror shares the content": {},
		"without the main file":         {true, []int64{udfStart + udfMain}},
		"without the list of folders":   {true, []int64{metadataAt(0, false)}},
		"without a folder":              {true, []int64{metadataAt(metadataBlocks/2, false)}},
		"without the mirror":            {true, []int64{udfStart + udfMirror, metadataAt(0, true)}},
	} {
		text := writeUDF250(want, c.duplicate)
		for _, at := range c.broken {
			clear(text[at*udfBlock:][:udfBlock])
		}
		if got := filesOf(t, text); !maps.Equal(got, want) {
			t.Errorf("%s: got %d files, want %d with their content", name, len(got), len(want))
		}
	}
	text := writeUDF250(want, true)
	clear(text[metadataAt(0, false)*udfBlock:][:udfBlock])
	clear(text[metadataAt(0, true)*udfBlock:][:udfBlock])
	if files, err := image.ReadFiles(bytes.NewReader(text), int64(len(text))); err == nil {
		t.Errorf("got %d files without both metadata files, want an error", len(files))
	}
}
