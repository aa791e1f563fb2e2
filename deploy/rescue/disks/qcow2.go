package main

import (
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// qcow2 is a disk in a file of the format that QEMU and cloud images use. The format is documented in QEMU's docs/interop/qcow2.txt.
type qcow2 struct {
	from        io.ReaderAt
	size        uint64 // of the disk
	clusterBits uint
	l1          []uint64
	// unpacker reads compressed clusters, from a new reader after each reset.
	unpacker io.Reader
	reset    func(io.Reader) error
}

// qcow2Header is the header that all versions have.
type qcow2Header struct {
	Magic, Version        uint32
	BaseOffset            uint64 // of the name of the file that this one is based on
	BaseSize              uint32
	ClusterBits           uint32
	Size                  uint64
	Encryption            uint32
	L1Size                uint32
	L1Offset              uint64
	RefcountOffset        uint64
	RefcountClusters      uint32
	Snapshots             uint32
	SnapshotsOffset       uint64
	Incompatible          uint64 // from version 3 on, as the following ones
	Compatible, AutoClear uint64
	RefcountOrder         uint32
	HeaderLength          uint32
	Compression           uint8
}

const (
	qcow2Magic = 0x514649fb // "QFI" and 0xfb
	// The incompatible features that need no support to read a file that was closed properly: the corrupt flag is not among them.
	qcow2Dirty, qcow2Compression = 1 << 0, 1 << 3
	maxClusterBits               = 21
	maxL1Size                    = 32 << 20 / 8

	offsetMask     = 0x00fffffffffffe00
	compressedFlag = 1 << 62
	zeroFlag       = 1
)

// openQCOW2 reads the header of a file. It refuses encrypted files, and those that need another file.
func openQCOW2(from io.ReaderAt) (*qcow2, error) {
	var h qcow2Header
	if err := binary.Read(io.NewSectionReader(from, 0, 105), binary.BigEndian, &h); err != nil {
		return nil, errors.New("it is too short for a qcow2 file")
	}
	if h.Version < 3 {
		h.Incompatible, h.HeaderLength = 0, 72
	}
	switch {
	case h.Magic != qcow2Magic || h.Version < 2 || h.Version > 3:
		return nil, errors.New("it is not a qcow2 file of version 2 or 3")
	case h.BaseOffset != 0:
		return nil, errors.New("it is based on another file: make one of both with qemu-img convert")
	case h.Encryption != 0:
		return nil, errors.New("it is encrypted")
	case h.Incompatible&^(qcow2Dirty|qcow2Compression) != 0:
		return nil, fmt.Errorf("it needs features that are not supported: %#x", h.Incompatible)
	case h.ClusterBits < 9 || h.ClusterBits > maxClusterBits || h.L1Size > maxL1Size:
		return nil, errors.New("its header is damaged")
	}
	q := &qcow2{from: from, size: h.Size, clusterBits: uint(h.ClusterBits), l1: make([]uint64, h.L1Size)}
	if h.Incompatible&qcow2Compression != 0 && h.HeaderLength > 104 {
		if h.Compression > 1 {
			return nil, fmt.Errorf("its clusters are compressed in a way that is not supported: %d", h.Compression)
		}
		if h.Compression == 1 {
			decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
			if err != nil {
				return nil, err
			}
			q.unpacker, q.reset = decoder, decoder.Reset
		}
	}
	if q.unpacker == nil {
		inflater := flate.NewReader(nil)
		q.unpacker, q.reset = inflater, func(r io.Reader) error { return inflater.(flate.Resetter).Reset(r, nil) }
	}
	if err := q.readTable(h.L1Offset, q.l1); err != nil {
		return nil, err
	}
	if uint64(len(q.l1))*q.perTable() < (h.Size+q.cluster()-1)/q.cluster() {
		return nil, errors.New("its table is too short for its disk")
	}
	return q, nil
}

// cluster returns the size of a cluster in bytes.
func (q *qcow2) cluster() uint64 { return 1 << q.clusterBits }

// perTable returns how many clusters a table of the second level has.
func (q *qcow2) perTable() uint64 { return q.cluster() / 8 }

// readTable reads a table of 64-bit numbers.
func (q *qcow2) readTable(offset uint64, table []uint64) error {
	err := binary.Read(io.NewSectionReader(q.from, int64(offset), int64(len(table))*8), binary.BigEndian, table)
	if err != nil {
		return fmt.Errorf("read a table at %d: %w", offset, err)
	}
	return nil
}

// writeTo writes the content of the disk.
func (q *qcow2) writeTo(out io.Writer) error {
	table, zeros := make([]uint64, q.perTable()), make([]byte, q.cluster())
	left := q.size
	for _, entry := range q.l1 {
		if left == 0 {
			break
		}
		clear(table)
		if offset := entry & offsetMask; offset != 0 {
			if err := q.readTable(offset, table); err != nil {
				return err
			}
		}
		for _, entry := range table {
			content, err := q.read(entry, zeros)
			if err != nil {
				return err
			}
			n, err := out.Write(content[:min(left, q.cluster())])
			if err != nil {
				return err
			}
			if left -= uint64(n); left == 0 {
				break
			}
		}
	}
	return nil
}

// read returns the content of a cluster by its entry in a table.
func (q *qcow2) read(entry uint64, zeros []byte) ([]byte, error) {
	if entry&compressedFlag != 0 {
		return q.decompress(entry)
	}
	offset := entry & offsetMask
	if offset == 0 || entry&zeroFlag != 0 {
		return zeros, nil
	}
	content := make([]byte, q.cluster())
	// The last cluster of the file may be cut off.
	if n, err := q.from.ReadAt(content, int64(offset)); err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("read a cluster at %d: %w", offset, err)
	}
	return content, nil
}

// decompress returns the content of a compressed cluster by its entry in a table.
func (q *qcow2) decompress(entry uint64) ([]byte, error) {
	bits := 62 - (q.clusterBits - 8) // of the offset; the others are the number of additional sectors
	offset := entry & (1<<bits - 1)
	sectors := entry&(compressedFlag-1)>>bits + 1
	if err := q.reset(io.NewSectionReader(q.from, int64(offset), int64(sectors*512-offset%512))); err != nil {
		return nil, err
	}
	content := make([]byte, q.cluster())
	if n, err := io.ReadFull(q.unpacker, content); err != nil {
		return nil, fmt.Errorf("unpack a cluster at %d: got %d of %d bytes: %w", offset, n, len(content), err)
	}
	return content, nil
}
