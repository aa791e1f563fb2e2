package image

import (
	"errors"
	"fmt"
)

// node is a file or a folder.
type node struct {
	kind    byte
	extents []Extent
}

// node reads a file entry.
func (v *volume) node(of place) (n node, err error) {
	at, err := v.block(of)
	if err != nil {
		return n, err
	}
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
	err = v.extents(&n, of, kind, list, left)
	return n, err
}

// extents reads the list of a file's extents, of left bytes altogether. kind 0 has short descriptors, and 1 long ones.
func (v *volume) extents(n *node, of place, kind uint16, list []byte, left int64) error {
	size, continued := 8+8*int(kind), 0
	for len(list) >= size && left > 0 {
		span := little.Uint32(list)
		to := place{of.reference, int64(little.Uint32(list[4:]))} // a short one is in the partition of its entry
		if kind == 1 {
			to = long(list)
		}
		list = list[size:]
		bytes := int64(span & (1<<30 - 1))
		switch {
		case bytes == 0:
			list = nil
			continue
		case span>>30 == 0:
			found, err := v.locate(to, min(bytes, left))
			if err != nil {
				return err
			}
			n.extents = append(n.extents, found...)
			left -= min(bytes, left)
		case span>>30 == 3: // more of them stand elsewhere
			if continued++; continued > mostDescriptors {
				return errCut
			}
			at, err := v.block(to)
			if err != nil {
				return err
			}
			more, _, err := v.descriptor(at, sector, tagContinued)
			if err != nil {
				return err
			}
			list = more[24:min(24+int64(little.Uint32(more[20:])), sector)]
		case n.kind == kindMetadata || n.kind == kindMirror: // blocks that nothing is in
			n.extents = append(n.extents, Extent{hole, min(bytes, left)})
			left -= min(bytes, left)
		default:
			return errors.New("it has a file with holes")
		}
		if len(n.extents) > mostExtents {
			return errCut
		}
	}
	if left > 0 {
		return errCut
	}
	return nil
}
