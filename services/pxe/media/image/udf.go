package image

import (
	"errors"
	"slices"
	"strings"
)

// The descriptors of UDF (ECMA-167, 3/7.2.1 and 4/7.2.1).
const (
	tagAnchor, tagPartition, tagVolume, tagEnd                     = 2, 5, 6, 8
	tagFileSet, tagName, tagContinued, tagFile, tagExtended uint16 = 256, 257, 258, 261, 266
	anchorSector                                                   = 256
	kindFolder, kindFile, kindMetadata, kindMirror                 = 4, 5, 250, 251
	nameFolder, nameDeleted, nameParent                            = 2, 4, 8
	mostExtents                                                    = 10_000

	hole = -1 // where an extent is of which there is nothing

	metadataMap, metadataMapSize, mostMaps = "*UDF Metadata Partition", 64, 8
)

// volume is a UDF volume, with its partitions by their references.
type volume struct {
	*image
	partitions []partition
	metadata   *metadata // nil: all that says where files are is in a partition as it lies there
}

// partition are the stretches of the image, one behind the other, that have a partition's blocks, with where in it each ends.
type partition struct {
	stretches []Extent
	ends      []int64
}

func newPartition(stretches []Extent) (p partition) {
	end := int64(0)
	for _, e := range stretches {
		end += e.Size
		p.stretches, p.ends = append(p.stretches, e), append(p.ends, end)
	}
	return p
}

// metadata is a partition whose blocks are those of a file, of which there is a mirror (UDF 2.50, 2.2.10).
type metadata struct {
	reference    int
	in           int // the partition that has the file
	file, mirror int64
}

// place is a block of a partition.
type place struct {
	reference int
	block     int64
}

// locate finds where so many bytes from a block on are.
func (v *volume) locate(p place, size int64) (found []Extent, err error) {
	if p.reference >= len(v.partitions) || p.block < 0 || size < 0 {
		return nil, errCut
	}
	in, at := v.partitions[p.reference], p.block*sector
	n, _ := slices.BinarySearch(in.ends, at+1)
	for ; n < len(in.stretches) && len(found) < mostExtents; n++ {
		e := in.stretches[n]
		if e.At == hole {
			return nil, errCut
		}
		skip := at - (in.ends[n] - e.Size)
		piece := Extent{e.At + skip, min(e.Size-skip, size)}
		found, size, at = append(found, piece), size-piece.Size, in.ends[n]
		if size == 0 {
			return found, nil
		}
	}
	return nil, errCut
}

// block finds where a block is.
func (v *volume) block(p place) (int64, error) {
	found, err := v.locate(p, sector)
	if err != nil {
		return 0, err
	}
	return found[0].At, nil // a stretch has whole blocks
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
	v := &volume{image: i}
	if err := v.readMaps(logical, starts); err != nil {
		return err
	}
	if v.metadata == nil {
		return v.tree(logical)
	}
	err = v.treeOf(v.metadata.file, logical)
	if err == nil || v.metadata.mirror == v.metadata.file {
		return err
	}
	i.files, i.parts, i.seen = nil, 0, map[int64]bool{}
	if v.treeOf(v.metadata.mirror, logical) != nil {
		return err
	}
	return nil
}

// readMaps reads which partitions there are.
func (v *volume) readMaps(logical []byte, starts map[uint16]int64) error {
	references := map[uint16]int{} // by the partition's number
	maps, in := logical[440:], uint16(0)
	for range min(little.Uint32(logical[268:]), mostMaps) {
		switch {
		case len(maps) >= 6 && maps[0] == 1 && maps[1] == 6:
			number := little.Uint16(maps[4:])
			start, ok := starts[number]
			if !ok {
				return errCut
			}
			references[number] = len(v.partitions)
			v.partitions, maps = append(v.partitions, newPartition([]Extent{{start, v.size - start}})), maps[6:]
		case len(maps) >= metadataMapSize && maps[0] == 2 && maps[1] == metadataMapSize && strings.HasPrefix(
			string(maps[5:]), metadataMap,
		) && v.metadata == nil:
			in = little.Uint16(maps[38:])
			v.metadata = &metadata{reference: len(v.partitions), file: int64(little.Uint32(maps[40:])), mirror: int64(little.Uint32(maps[44:]))}
			v.partitions, maps = append(v.partitions, partition{}), maps[metadataMapSize:]
		default:
			return errors.New("its UDF has partitions of a kind that cannot be read")
		}
	}
	if v.metadata == nil {
		return nil
	}
	var ok bool
	if v.metadata.in, ok = references[in]; !ok {
		return errCut
	}
	return nil
}

// treeOf reads all files by what the metadata file in this block says.
func (v *volume) treeOf(block int64, logical []byte) error {
	n, err := v.node(place{v.metadata.in, block})
	if err != nil {
		return err
	}
	if n.kind != kindMetadata && n.kind != kindMirror {
		return errCut
	}
	for at := range n.extents {
		n.extents[at].Size -= n.extents[at].Size % sector
	}
	v.partitions[v.metadata.reference] = newPartition(n.extents)
	return v.tree(logical)
}

// tree reads all files.
func (v *volume) tree(logical []byte) error {
	set, err := v.block(long(logical[248:]))
	if err != nil {
		return err
	}
	d, _, err := v.descriptor(set, sector, tagFileSet)
	if err != nil {
		return err
	}
	return v.folder("", long(d[400:]), 0)
}

// long is where a long allocation descriptor leads to.
func long(text []byte) place {
	return place{int(little.Uint16(text[8:])), int64(little.Uint32(text[4:]))}
}

// folder reads what is in a folder.
func (v *volume) folder(path string, in place, depth int) error {
	at, err := v.block(in)
	if err != nil {
		return err
	}
	if err := v.enter(at, depth); err != nil {
		return err
	}
	of, err := v.node(in)
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
		below := long(text[20:])
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

func (v *volume) named(folder string, name []byte, at place, isFolder bool, depth int) error {
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
