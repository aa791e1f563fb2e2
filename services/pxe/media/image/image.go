// Package image finds the files in ISOs: ISO 9660 with Rock Ridge or Joliet, and UDF, which Microsoft's have; and the editions
// of Windows in a WIM. It reads what strangers have made: everything is bounded, and nothing is believed.
package image

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	sector    = 2048
	mostFiles = 200_000
	deepest   = 64       // folders in each other
	largest   = 16 << 20 // of a folder's own bytes
	mostRead  = 1 << 30  // of all that says where files are
	longest   = 1024     // of a path

	mostStretches = 1_000_000 // of the image that all files have
)

// File is a file in an image.
type File struct {
	Path    string
	Extents []Extent // one behind the other
}

// Extent is a stretch of the image's bytes.
type Extent struct{ At, Size int64 }

// Size is how long the file is.
func (f File) Size() (n int64) {
	for _, e := range f.Extents {
		n += e.Size
	}
	return n
}

// ErrNone says that an image has no file system that can be read.
var ErrNone = errors.New("it is no ISO: it has neither ISO 9660 nor UDF")

// Files are the files of an image of this size, in the order of their paths. Links are left out.
func Files(from io.ReaderAt, size int64) ([]File, error) {
	i := &image{from: from, size: size, left: mostRead, seen: map[int64]bool{}}
	read := i.iso9660
	if i.hasUDF() {
		read = i.udf
	}
	if err := i.wholeVolume(); err != nil {
		return nil, err
	}
	if err := read(); err != nil {
		return nil, err
	}
	slices.SortFunc(i.files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for n, f := range i.files[min(1, len(i.files)):] {
		if before := i.files[n].Path; f.Path == before || strings.HasPrefix(f.Path, before+"/") {
			return nil, fmt.Errorf("it has two things of the name %.100q", before)
		}
	}
	return i.files, nil
}

// image is one that is being read.
type image struct {
	from  io.ReaderAt
	size  int64
	files []File
	left  int64          // may still be read
	parts int            // stretches that files have
	seen  map[int64]bool // folders, by where they are
}

var little, big = binary.LittleEndian, binary.BigEndian

var errCut = errors.New("it is cut off, or damaged")

// spans fails where something is missing of so many bytes, which a file system says that it has.
func (i *image) spans(bytes int64) error {
	if bytes > i.size {
		return fmt.Errorf("it is cut off: it has %d of %d bytes", i.size, bytes)
	}
	return nil
}

// read reads a stretch.
func (i *image) read(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || n > largest || at > i.size-n {
		return nil, errCut
	}
	if i.left -= n; i.left < 0 {
		return nil, errMany()
	}
	text := make([]byte, n)
	if _, err := i.from.ReadAt(text, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return text, nil
}

// extents reads what is in a few stretches.
func (i *image) readAll(extents []Extent) (text []byte, err error) {
	for _, e := range extents {
		if int64(len(text))+e.Size > largest {
			return nil, errCut
		}
		piece, err := i.read(e.At, e.Size)
		if err != nil {
			return nil, err
		}
		text = append(text, piece...)
	}
	return text, nil
}

// enter notes a folder, which is not in itself.
func (i *image) enter(at int64, depth int) error {
	switch {
	case i.seen[at]:
		return errors.New("a folder of it is in itself, or twice there")
	case depth > deepest:
		return fmt.Errorf("its folders are more than %d deep", deepest)
	case len(i.seen) >= mostFiles:
		return errMany()
	}
	i.seen[at] = true
	return nil
}

func errMany() error { return fmt.Errorf("it has more than %d files", mostFiles) }

// add notes a file.
func (i *image) add(path string, extents []Extent) error {
	if len(i.files) >= mostFiles {
		return errMany()
	}
	if i.parts += len(extents); i.parts > mostStretches {
		return fmt.Errorf("its files are in more than %d pieces", mostStretches)
	}
	for _, e := range extents {
		if e.At < 0 || e.Size < 0 || e.At > i.size-e.Size {
			return errCut
		}
	}
	i.files = append(i.files, File{path, slices.DeleteFunc(extents, func(e Extent) bool { return e.Size == 0 })})
	return nil
}

// join puts a name behind the path of its folder.
func join(folder, name string) (string, error) {
	bad := func(r rune) bool { return r == '/' || unicode.IsControl(r) }
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) ||
		len(folder)+len(name) >= longest {
		return "", fmt.Errorf("it has a file of the name %.100q, which file servers cannot have", name)
	}
	if folder == "" {
		return name, nil
	}
	return folder + "/" + name, nil
}
