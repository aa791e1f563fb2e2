package image

import (
	"bufio"
	"cmp"
	"errors"
	"io"
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
	nameHead                                                       = 38      // bytes before the variable parts of an entry
	maxNameSize                                                    = 1 << 17 // bytes of the longest entry: two lengths of 16 and 8 bits
	maxFileExtents                                                 = 10_000

	hole = -1 // the offset of an extent that was never written

	metadataMap, metadataMapSize, maxMaps = "*UDF Metadata Partition", 64, 8
)

// volume is a UDF volume, with its partitions by their references.
type volume struct {
	*image
	partitions []partition
	metadata   *metadata // nil: the volume has no metadata partition
}

// partition holds the extents of the image that contain a partition's blocks, in order. ends are their end offsets
// within the partition.
type partition struct {
	extents []Extent
	ends    []int64
}

// newPartition returns a partition that consists of these extents.
func newPartition(extents []Extent) (p partition) {
	end := int64(0)
	for _, e := range extents {
		end += e.Size
		p.extents, p.ends = append(p.extents, e), append(p.ends, end)
	}
	return p
}

// metadata is a partition whose blocks are the content of a file. The volume has a mirror of the file (UDF 2.50,
// 2.2.10).
type metadata struct {
	reference    int
	in           int // the partition with the file
	file, mirror int64
}

// blockAddress is the address of a block in a partition.
type blockAddress struct {
	reference int
	block     int64
}

// locate returns the extents of size bytes that begin at a block.
func (v *volume) locate(p blockAddress, size int64) (found []Extent, err error) {
	if p.reference >= len(v.partitions) || p.block < 0 || size < 0 {
		return nil, errTruncated
	}
	in, at := v.partitions[p.reference], p.block*sectorSize
	n, _ := slices.BinarySearch(in.ends, at+1)
	for ; n < len(in.extents) && len(found) < maxFileExtents; n++ {
		e := in.extents[n]
		if e.At == hole {
			return nil, errTruncated
		}
		skip := at - (in.ends[n] - e.Size)
		piece := Extent{e.At + skip, min(e.Size-skip, size)}
		found, size, at = append(found, piece), size-piece.Size, in.ends[n]
		if size == 0 {
			return found, nil
		}
	}
	return nil, errTruncated
}

// block returns the offset of a block in the image.
func (v *volume) block(p blockAddress) (int64, error) {
	found, err := v.locate(p, sectorSize)
	if err != nil {
		return 0, err
	}
	return found[0].At, nil // an extent consists of whole blocks
}

// hasUDF reports whether the volume descriptors announce UDF.
func (i *image) hasUDF() bool {
	for n := range int64(maxDescriptors) {
		d, err := i.read((firstDescriptor+n)*sectorSize, 8)
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

// readDescriptor reads a descriptor, and returns an error if its checksum is invalid or its tag is not one of tags.
func (i *image) readDescriptor(at, size int64, tags ...uint16) ([]byte, uint16, error) {
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
	return nil, 0, errTruncated
}

// readUDF reads all files of a UDF volume. If the metadata file is damaged, it uses the mirror.
func (i *image) readUDF() error {
	anchor, _, err := i.readDescriptor(anchorSector*sectorSize, sectorSize, tagAnchor)
	if err != nil {
		return err
	}
	starts := map[uint16]int64{}
	var logical []byte
	at := int64(little.Uint32(anchor[20:])) * sectorSize
	for range maxDescriptors {
		d, tag, err := i.readDescriptor(at, sectorSize)
		if err != nil || tag == tagEnd {
			break
		}
		switch tag {
		case tagPartition:
			start, length := int64(little.Uint32(d[188:]))*sectorSize, int64(little.Uint32(d[192:]))*sectorSize
			if err := i.checkSize(start + length); err != nil {
				return err
			}
			starts[little.Uint16(d[22:])] = start
		case tagVolume:
			logical = d
		}
		at += sectorSize
	}
	if logical == nil {
		return errTruncated
	}
	if little.Uint32(logical[212:]) != sectorSize {
		return errors.New("the UDF block size of the ISO is not supported")
	}
	v := &volume{image: i}
	if err := v.readMaps(logical, starts); err != nil {
		return err
	}
	if v.metadata == nil {
		return v.readTree(logical)
	}
	err = v.readMetadataTree(v.metadata.file, logical)
	if err == nil || v.metadata.mirror == v.metadata.file {
		return err
	}
	i.reset()
	if v.readMetadataTree(v.metadata.mirror, logical) != nil {
		return err
	}
	return nil
}

// readMaps reads the partitions of the volume.
func (v *volume) readMaps(logical []byte, starts map[uint16]int64) error {
	references := map[uint16]int{} // by the partition's number
	maps, in := logical[440:], uint16(0)
	for range min(little.Uint32(logical[268:]), maxMaps) {
		switch {
		case len(maps) >= 6 && maps[0] == 1 && maps[1] == 6:
			number := little.Uint16(maps[4:])
			start, ok := starts[number]
			if !ok {
				return errTruncated
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
			return errors.New("a UDF partition type of the ISO is not supported")
		}
	}
	if v.metadata == nil {
		return nil
	}
	var ok bool
	if v.metadata.in, ok = references[in]; !ok {
		return errTruncated
	}
	return nil
}

// readMetadataTree reads all files through the metadata file in this block.
func (v *volume) readMetadataTree(block int64, logical []byte) error {
	n, err := v.readNode(blockAddress{v.metadata.in, block})
	if err != nil {
		return err
	}
	if n.kind != kindMetadata && n.kind != kindMirror {
		return errTruncated
	}
	for at := range n.extents {
		n.extents[at].Size -= n.extents[at].Size % sectorSize
	}
	v.partitions[v.metadata.reference] = newPartition(n.extents)
	return v.readTree(logical)
}

// readTree reads all files.
func (v *volume) readTree(logical []byte) error {
	set, err := v.block(parseLongDescriptor(logical[248:]))
	if err != nil {
		return err
	}
	d, _, err := v.readDescriptor(set, sectorSize, tagFileSet)
	if err != nil {
		return err
	}
	return readFolders(parseLongDescriptor(d[400:]), v.readFolder)
}

// parseLongDescriptor returns the address in a long allocation descriptor.
func parseLongDescriptor(text []byte) blockAddress {
	return blockAddress{int(little.Uint16(text[8:])), int64(little.Uint32(text[4:]))}
}

// readFolder adds the files of a folder, and returns the folders in it.
func (v *volume) readFolder(f folder[blockAddress]) (below []folder[blockAddress], err error) {
	at, err := v.block(f.at)
	if err != nil {
		return nil, err
	}
	if err := v.visitFolder(at, f.path, f.depth); err != nil {
		return nil, err
	}
	n, err := v.readNode(f.at)
	if err != nil {
		return nil, err
	}
	if n.kind != kindFolder {
		return nil, errTruncated
	}
	if err := v.claimFolder(n.extents); err != nil {
		return nil, err
	}
	content := bufio.NewReaderSize(&extentReader{v.image, n.extents}, maxNameSize)
	for {
		head, err := content.Peek(nameHead)
		if errors.Is(err, io.EOF) {
			return below, nil
		}
		if err != nil {
			return nil, err
		}
		if little.Uint16(head) != tagName {
			return nil, errTruncated
		}
		flags, to := head[18], parseLongDescriptor(head[20:])
		begin := nameHead + int(little.Uint16(head[36:]))
		end := begin + int(head[19])
		text, err := content.Peek(end)
		if err != nil {
			return nil, cmp.Or(unlessEOF(err), errTruncated)
		}
		if flags&(nameDeleted|nameParent) == 0 {
			found, err := v.readEntry(f, text[begin:end], to, flags&nameFolder != 0)
			if err != nil {
				return nil, err
			}
			below = append(below, found...)
		}
		if _, err := content.Discard((end + 3) / 4 * 4); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
}

// unlessEOF returns an error, or nil for the end of the content.
func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// extentReader reads the bytes of several extents, a sector at a time.
type extentReader struct {
	*image
	extents []Extent
}

// Read implements io.Reader.
func (r *extentReader) Read(p []byte) (int, error) {
	for len(r.extents) > 0 && r.extents[0].Size == 0 {
		r.extents = r.extents[1:]
	}
	if len(r.extents) == 0 {
		return 0, io.EOF
	}
	e := &r.extents[0]
	n := min(int64(len(p)), e.Size, sectorSize)
	text, err := r.read(e.At, n)
	if err != nil {
		return 0, err
	}
	e.At, e.Size = e.At+n, e.Size-n
	return copy(p, text), nil
}

// readEntry adds the file that an entry of a folder describes, or returns the folder.
func (v *volume) readEntry(in folder[blockAddress], name []byte, at blockAddress, isFolder bool) ([]folder[blockAddress], error) {
	if len(name) < 2 {
		return nil, errTruncated
	}
	text := decodeLatin1(name[1:])
	if name[0] == 16 {
		text = decodeUCS2(name[1:])
	}
	path, err := joinPath(in.path, text)
	if err != nil {
		return nil, err
	}
	if isFolder {
		return []folder[blockAddress]{{path, at, in.depth + 1}}, nil
	}
	n, err := v.readNode(at)
	if err != nil || n.kind != kindFile {
		return nil, err
	}
	return nil, v.add(path, n.extents)
}
