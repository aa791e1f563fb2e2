package image

import (
	"errors"
	"fmt"
)

// The descriptors of UDF (ECMA-167, 3/7.2.1 and 4/7.2.1).
const (
	tagAnchor, tagPartition, tagVolume, tagEnd                     = 2, 5, 6, 8
	tagFileSet, tagName, tagContinued, tagFile, tagExtended uint16 = 256, 257, 258, 261, 266
	anchorSector                                                   = 256
	kindFolder, kindFile                                           = 4, 5
	nameFolder, nameDeleted, nameParent                            = 2, 4, 8
	mostExtents                                                    = 10_000
)

// volume is where the parts of a UDF volume begin, in bytes, by their references.
type volume struct {
	*image
	partitions []int64
}

// hasUDF looks for its mark among the volume descriptors.
func (i *image) hasUDF() bool {
	for n := range int64(mostDescriptors) {
		d, err := i.read((firstDescriptor+n)*sector, 8)
		if err != nil {
			return false
		}
		switch string(d[1:6]) {
		case "NSR02", "NSR03":
			return true
		case "CD001", "BEA01", "BOOT2", "CDW02":
		default:
			return false
		}
	}
	return false
}

// descriptor reads what has this tag.
func (i *image) descriptor(at, size int64, tags ...uint16) ([]byte, uint16, error) {
	d, err := i.read(at, size)
	if err != nil {
		return nil, 0, err
	}
	sum := byte(0)
	for n, b := range d[:16] {
		if n != 4 {
			sum += b
		}
	}
	tag := little.Uint16(d)
	for _, one := range tags {
		if tag == one && sum == d[4] {
			return d, tag, nil
		}
	}
	if len(tags) == 0 && sum == d[4] {
		return d, tag, nil
	}
	return nil, 0, errCut
}

func (i *image) udf() error {
	anchor, _, err := i.descriptor(anchorSector*sector, sector, tagAnchor)
	if err != nil {
		return err
	}
	v := &volume{image: i}
	starts := map[uint16]int64{}
	var logical []byte
	at := int64(little.Uint32(anchor[20:])) * sector
	for range mostDescriptors {
		d, tag, err := i.descriptor(at, sector)
		if err != nil || tag == tagEnd {
			break
		}
		switch tag {
		case tagPartition:
			start, length := int64(little.Uint32(d[188:]))*sector, int64(little.Uint32(d[192:]))*sector
			if err := i.spans(start + length); err != nil {
				return err
			}
			starts[little.Uint16(d[22:])] = start
		case tagVolume:
			logical = d
		}
		at += sector
	}
	if logical == nil {
		return errCut
	}
	if little.Uint32(logical[212:]) != sector {
		return errors.New("its UDF has blocks of an unusual size")
	}
	maps := logical[440:]
	for range min(little.Uint32(logical[268:]), 8) {
		if len(maps) < 6 || maps[0] != 1 || maps[1] != 6 {
			return errors.New("its UDF has partitions of a kind that cannot be read")
		}
		start, ok := starts[little.Uint16(maps[4:])]
		if !ok {
			return errCut
		}
		v.partitions, maps = append(v.partitions, start), maps[6:]
	}
	set, err := v.at(logical[248:])
	if err != nil {
		return err
	}
	d, _, err := i.descriptor(set, sector, tagFileSet)
	if err != nil {
		return err
	}
	root, err := v.at(d[400:])
	if err != nil {
		return err
	}
	return v.folder("", root, 0)
}

// at is where a long allocation descriptor leads to.
func (v *volume) at(text []byte) (int64, error) {
	part := int(little.Uint16(text[8:]))
	if part >= len(v.partitions) {
		return 0, errCut
	}
	return v.partitions[part] + int64(little.Uint32(text[4:]))*sector, nil
}

// node is a file or a folder.
type node struct {
	kind    byte
	extents []Extent
}

// node reads a file entry.
func (v *volume) node(at int64) (n node, err error) {
	d, tag, err := v.descriptor(at, sector, tagFile, tagExtended)
	if err != nil {
		return n, err
	}
	head := int64(176)
	if tag == tagExtended {
		head = 216
	}
	attributes, length := int64(little.Uint32(d[head-8:])), int64(little.Uint32(d[head-4:]))
	left := int64(little.Uint64(d[56:])) // of the file's bytes
	if n.kind = d[27]; head+attributes+length > sector || left < 0 {
		return n, errCut
	}
	kind, list := little.Uint16(d[34:])&7, d[head+attributes:head+attributes+length]
	if kind == 3 { // they are here
		if left > length {
			return n, errCut
		}
		n.extents = []Extent{{at + head + attributes, left}}
		return n, nil
	}
	if kind > 1 {
		return n, fmt.Errorf("its UDF describes a file in a way that cannot be read (%d)", kind)
	}
	own := v.partitions[0]
	for _, start := range v.partitions { // a short one is in the partition of its entry
		if start <= at && start > own {
			own = start
		}
	}
	size, continued := 8+8*int(kind), 0
	for len(list) >= size && left > 0 {
		span := little.Uint32(list)
		to := own + int64(little.Uint32(list[4:]))*sector
		if kind == 1 {
			if to, err = v.at(list); err != nil {
				return n, err
			}
		}
		list = list[size:]
		bytes := int64(span & (1<<30 - 1))
		switch {
		case bytes == 0:
			list = nil
			continue
		case span>>30 == 0:
			n.extents = append(n.extents, Extent{to, min(bytes, left)})
			left -= min(bytes, left)
		case span>>30 == 3: // more of them stand elsewhere
			if continued++; continued > mostDescriptors {
				return n, errCut
			}
			more, _, err := v.descriptor(to, sector, tagContinued)
			if err != nil {
				return n, err
			}
			list = more[24:min(24+int64(little.Uint32(more[20:])), sector)]
		default:
			return n, errors.New("it has a file with holes")
		}
		if len(n.extents) > mostExtents {
			return n, errCut
		}
	}
	if left > 0 {
		return n, errCut
	}
	return n, nil
}

// folder reads what is in a folder.
func (v *volume) folder(path string, at int64, depth int) error {
	if err := v.enter(at, depth); err != nil {
		return err
	}
	of, err := v.node(at)
	if err != nil {
		return err
	}
	if of.kind != kindFolder {
		return errCut
	}
	text, err := v.readAll(of.extents)
	if err != nil {
		return err
	}
	for len(text) >= 38 {
		if little.Uint16(text) != tagName {
			return errCut
		}
		flags, length := text[18], int(text[19])
		begin := 38 + int(little.Uint16(text[36:]))
		end := begin + length
		if end > len(text) {
			return errCut
		}
		below, err := v.at(text[20:])
		if err != nil {
			return err
		}
		name := text[begin:end]
		text = text[min((end+3)/4*4, len(text)):]
		if flags&(nameDeleted|nameParent) != 0 {
			continue
		}
		if err := v.named(path, name, below, flags&nameFolder != 0, depth); err != nil {
			return err
		}
	}
	return nil
}

func (v *volume) named(folder string, name []byte, at int64, isFolder bool, depth int) error {
	if len(name) < 2 {
		return errCut
	}
	text := latin1(name[1:])
	if name[0] == 16 {
		text = ucs2(name[1:])
	}
	path, err := join(folder, text)
	if err != nil {
		return err
	}
	if isFolder {
		return v.folder(path, at, depth+1)
	}
	n, err := v.node(at)
	if err != nil || n.kind != kindFile {
		return err
	}
	return v.add(path, n.extents)
}
