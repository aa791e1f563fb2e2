package image

import (
	"errors"
	"fmt"
)

// readNode is a file or a folder.
type node struct {
	kind    byte
	extents []Extent
}

// readNode reads the entry of a file or a folder.
func (v *volume) readNode(of blockAddress) (n node, err error) {
	at, err := v.block(of)
	if err != nil {
		return n, err
	}
	d, tag, err := v.readDescriptor(at, sectorSize, tagFile, tagExtended)
	if err != nil {
		return n, err
	}
	head := int64(176)
	if tag == tagExtended {
		head = 216
	}
	attributes, length := int64(little.Uint32(d[head-8:])), int64(little.Uint32(d[head-4:]))
	left := int64(little.Uint64(d[56:])) // the file's size
	if n.kind = d[27]; head+attributes+length > sectorSize || left < 0 {
		return n, errTruncated
	}
	kind, list := little.Uint16(d[34:])&7, d[head+attributes:head+attributes+length]
	if kind == 3 { // the content is in the entry itself
		if left > length {
			return n, errTruncated
		}
		n.extents = []Extent{{at + head + attributes, left}}
		return n, nil
	}
	if kind > 1 {
		return n, fmt.Errorf("the UDF allocation type %d of the ISO is not supported", kind)
	}
	err = v.readExtents(&n, of, kind, list, left)
	return n, err
}

// readExtents reads the list of a file's extents, which have left bytes altogether. kind is 0 for short descriptors and
// 1 for long ones.
func (v *volume) readExtents(n *node, of blockAddress, kind uint16, list []byte, left int64) error {
	size, continued := 8+8*int(kind), 0
	for len(list) >= size && left > 0 {
		span := little.Uint32(list)
		to := blockAddress{of.reference, int64(little.Uint32(list[4:]))} // a short descriptor refers to the partition of its entry
		if kind == 1 {
			to = parseLongDescriptor(list)
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
		case span>>30 == 3: // the list continues in another block
			if continued++; continued > maxDescriptors {
				return errTruncated
			}
			at, err := v.block(to)
			if err != nil {
				return err
			}
			more, _, err := v.readDescriptor(at, sectorSize, tagContinued)
			if err != nil {
				return err
			}
			list = more[24:min(24+int64(little.Uint32(more[20:])), sectorSize)]
		case n.kind == kindMetadata || n.kind == kindMirror: // blocks that were never written
			n.extents = append(n.extents, Extent{hole, min(bytes, left)})
			left -= min(bytes, left)
		default:
			return errors.New("the ISO has a sparse file, which is not supported")
		}
		if len(n.extents) > maxFileExtents {
			return errTruncated
		}
	}
	if left > 0 {
		return errTruncated
	}
	return nil
}
