package image

import (
	"fmt"
	"strings"
	"unicode/utf16"
)

// Parts of a volume descriptor (ECMA-119, 8).
const (
	firstDescriptor    = 16
	maxDescriptors     = 64
	primary, secondary = 1, 2
	lastDescriptor     = 255
	volumeBlocks       = 80 // the offset of the number of blocks
	blockLength        = 128
	rootRecord         = 156
)

// Flags of a directory record (ECMA-119, 9.1.6).
const (
	flagFolder = 2
	flagMore   = 0x80 // another record continues the file
)

// tree reads one of the folder trees of an image.
type tree struct {
	*image
	ucs2      bool // Joliet
	rockRidge bool
	skip      int // bytes before the Rock Ridge entries
}

// record is a directory record.
type record struct {
	at, size int64
	flags    byte
	name     []byte
	system   []byte // the system use area: Rock Ridge
}

// checkVolumeSize returns an error if the image is smaller than its ISO 9660 volume. Images with UDF have such a volume,
// too.
func (i *image) checkVolumeSize() error {
	d, err := i.read(firstDescriptor*sectorSize, sectorSize)
	if err != nil || d[0] != primary || string(d[1:6]) != "CD001" {
		return nil //nolint:nilerr // not ISO 9660: the reader of the files reports that
	}
	return i.checkSize(int64(little.Uint32(d[volumeBlocks:])) * int64(little.Uint16(d[blockLength:])))
}

// readISO9660 reads all files of an ISO 9660 volume. It prefers the names of Rock Ridge, then those of Joliet.
func (i *image) readISO9660() error {
	var main, joliet []byte
	for n := range int64(maxDescriptors) {
		d, err := i.read((firstDescriptor+n)*sectorSize, sectorSize)
		if err != nil || string(d[1:6]) != "CD001" {
			break
		}
		escape := string(d[88:91])
		switch {
		case d[0] == primary && main == nil:
			main = d
		case d[0] == secondary && (escape == "%/@" || escape == "%/C" || escape == "%/E"):
			joliet = d
		}
		if d[0] == lastDescriptor {
			break
		}
	}
	if main == nil {
		return ErrNotISO
	}
	t := &tree{image: i}
	root, err := parseRecord(main[rootRecord : rootRecord+34])
	if err != nil {
		return err
	}
	if err := t.findRockRidge(root); err != nil {
		return err
	}
	if !t.rockRidge && joliet != nil {
		t.ucs2 = true
		if root, err = parseRecord(joliet[rootRecord : rootRecord+34]); err != nil {
			return err
		}
	}
	return readFolders(root, t.readFolder)
}

// parseRecord parses a directory record.
func parseRecord(text []byte) (record, error) {
	if len(text) < 34 || int(text[32])+33 > len(text) {
		return record{}, errTruncated
	}
	end := 33 + int(text[32])
	r := record{
		at:    (int64(little.Uint32(text[2:])) + int64(text[1])) * sectorSize,
		size:  int64(little.Uint32(text[10:])),
		flags: text[25],
		name:  text[33:end],
	}
	if end += end % 2; end < len(text) {
		r.system = text[end:]
	}
	return r, nil
}

// findRockRidge checks whether the first record of the root announces Rock Ridge.
func (t *tree) findRockRidge(root record) error {
	text, err := t.read(root.at, sectorSize)
	if err != nil {
		return err
	}
	if length := int(text[0]); length >= 34 {
		self, err := parseRecord(text[:length])
		if err != nil {
			return err
		}
		if s := self.system; len(s) >= 7 && string(s[:2]) == "SP" && s[4] == 0xbe && s[5] == 0xef {
			t.rockRidge, t.skip = true, int(s[6])
		}
	}
	return nil
}

// readFolder adds the files of a folder, and returns the folders in it. It reads sector by sector: records do not cross
// the end of a sector.
func (t *tree) readFolder(f folder[record]) (below []folder[record], err error) {
	if err := t.visitFolder(f.at.at, f.path, f.depth); err != nil {
		return nil, err
	}
	if err := t.claimFolder([]Extent{{f.at.at, f.at.size}}); err != nil {
		return nil, err
	}
	var parts []Extent // of a file with several records
	for at := int64(0); at < f.at.size; at += sectorSize {
		text, err := t.read(f.at.at+at, min(sectorSize, f.at.size-at))
		if err != nil {
			return nil, err
		}
		for len(text) > 0 && text[0] > 0 {
			length := int(text[0])
			if length > len(text) {
				return nil, errTruncated
			}
			r, err := parseRecord(text[:length])
			if err != nil {
				return nil, err
			}
			text = text[length:]
			if len(r.name) == 1 && r.name[0] <= 1 { // the folder itself and its parent
				continue
			}
			parts = append(parts, Extent{r.at, r.size})
			if r.flags&flagMore != 0 {
				if len(parts) > maxFileExtents {
					return nil, errTruncated
				}
				continue
			}
			found, err := t.readEntry(f, r, parts)
			if err != nil {
				return nil, err
			}
			parts, below = nil, append(below, found...)
		}
	}
	return below, nil
}

// readEntry adds the file that a record describes, or returns the folder.
func (t *tree) readEntry(in folder[record], r record, extents []Extent) ([]folder[record], error) {
	e, err := t.parseEntry(r)
	if err != nil || e.leftOut {
		return nil, err
	}
	path, err := joinPath(in.path, e.name)
	if err != nil {
		return nil, err
	}
	switch {
	case e.moved >= 0: // a folder that was relocated because it is nested too deep
		self, err := t.read(e.moved, 34)
		if err != nil {
			return nil, err
		}
		if r, err = parseRecord(self); err != nil {
			return nil, err
		}
		return []folder[record]{{path, r, in.depth + 1}}, nil
	case r.flags&flagFolder != 0:
		return []folder[record]{{path, r, in.depth + 1}}, nil
	default:
		return nil, t.add(path, extents)
	}
}

// entry is what a directory record and its Rock Ridge entries describe.
type entry struct {
	name    string
	leftOut bool  // a link, or the relocated copy of a folder
	moved   int64 // the offset of a relocated folder; -1: not relocated
}

// parseEntry returns the name and the Rock Ridge properties of a directory record.
func (t *tree) parseEntry(r record) (e entry, err error) {
	e.moved = -1
	switch {
	case t.ucs2:
		e.name = decodeUCS2(r.name)
	default:
		e.name = string(r.name)
	}
	if !t.rockRidge || r.flags&flagFolder == 0 {
		e.name, _, _ = strings.Cut(e.name, ";") // the version
	}
	if !t.rockRidge {
		e.name = strings.TrimSuffix(e.name, ".")
		return e, nil
	}
	named, name := false, []byte(nil)
	for area, n := r.system[min(t.skip, len(r.system)):], 0; area != nil; n++ {
		if n > maxDescriptors {
			return e, errTruncated
		}
		var next []byte
		for len(area) >= 4 && int(area[2]) >= 4 && int(area[2]) <= len(area) {
			kind, data := string(area[:2]), area[4:area[2]]
			area = area[area[2]:]
			switch {
			case kind == "NM" && len(data) >= 1:
				named, name = true, append(name, data[1:]...)
				if len(name) > maxPathLength {
					return e, fmt.Errorf("the ISO has a file name of more than %d characters", maxPathLength)
				}
			case kind == "PX" && len(data) >= 4:
				mode := little.Uint32(data) & 0o170000
				e.leftOut = e.leftOut || mode != 0o100000 && mode != 0o040000
			case kind == "SL", kind == "RE":
				e.leftOut = true
			case kind == "CL" && len(data) >= 4:
				e.moved = int64(little.Uint32(data)) * sectorSize
			case kind == "CE" && len(data) >= 24:
				if little.Uint32(data[16:]) > sectorSize { // continuations do not cross the end of a sector
					return e, errTruncated
				}
				if next, err = t.read(
					int64(little.Uint32(data))*sectorSize+int64(little.Uint32(data[8:])),
					int64(little.Uint32(data[16:])),
				); err != nil {
					return e, err
				}
			case kind == "ST":
				area = nil
			}
		}
		area = next
	}
	if named {
		e.name = string(name)
	}
	return e, nil
}

// decodeUCS2 decodes a Joliet name.
func decodeUCS2(text []byte) string {
	units := make([]uint16, len(text)/2)
	for n := range units {
		units[n] = big.Uint16(text[2*n:])
	}
	return string(utf16.Decode(units))
}

// decodeLatin1 decodes a name with one byte per character.
func decodeLatin1(text []byte) string {
	runes := make([]rune, len(text))
	for n, b := range text {
		runes[n] = rune(b)
	}
	return string(runes)
}
