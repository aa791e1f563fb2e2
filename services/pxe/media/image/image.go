// Package image finds the files in ISOs: ISO 9660 with Rock Ridge or Joliet, and UDF, which Microsoft uses. It also
// reads the editions of Windows in a WIM. The images are untrusted, so all sizes and counts are bounded and checked.
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
	sectorSize    = 2048
	maxFiles      = 200_000
	maxDepth      = 64       // nested folders
	maxReadSize   = 1 << 20  // bytes of one read, which are in memory at a time
	maxFolderSize = 16 << 20 // bytes of one folder
	maxFolderSum  = 64 << 20 // bytes of all folders together
	maxBytesRead  = 1 << 30  // bytes read altogether
	maxPathLength = 1024     // bytes of a path
	maxPathSum    = 32 << 20 // bytes of all paths together

	maxTotalExtents = 1_000_000 // of all files together
)

// File is a file in an image.
type File struct {
	Path    string
	Extents []Extent // in the order of the file's bytes
}

// Extent is a range of the image's bytes.
type Extent struct{ At, Size int64 }

// Size returns the size of the file in bytes.
func (f File) Size() (n int64) {
	for _, e := range f.Extents {
		n += e.Size
	}
	return n
}

// ErrNotISO says that an image has no supported file system.
var ErrNotISO = errors.New("the file is not an ISO: it has neither an ISO 9660 nor a UDF file system")

// ReadFiles returns the files of an image of this size, sorted by path. Links are left out.
func ReadFiles(from io.ReaderAt, size int64) ([]File, error) {
	i := &image{from: from, size: size, budget: maxBytesRead}
	i.reset()
	read := i.readISO9660
	if i.hasUDF() {
		read = i.readUDF
	}
	if err := i.checkVolumeSize(); err != nil {
		return nil, err
	}
	if err := read(); err != nil {
		return nil, err
	}
	slices.SortFunc(i.files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	for n, f := range i.files[min(1, len(i.files)):] {
		if before := i.files[n].Path; f.Path == before || strings.HasPrefix(f.Path, before+"/") {
			return nil, fmt.Errorf("the ISO has two entries with the path %.100q", before)
		}
	}
	return i.files, nil
}

// image is an image that is being read.
type image struct {
	from    io.ReaderAt
	size    int64
	files   []File
	budget  int64 // bytes that may still be read
	extents int   // of all files so far
	paths   int   // bytes of all paths so far

	folders map[int64]bool // the offsets of the folders so far
	sectors map[int64]bool // the sectors of the folders' contents so far
}

// reset forgets all files, to read them again in another way.
func (i *image) reset() {
	i.files, i.extents, i.paths = nil, 0, 0
	i.folders, i.sectors = map[int64]bool{}, map[int64]bool{}
}

var little, big = binary.LittleEndian, binary.BigEndian

var errTruncated = errors.New("the ISO is truncated or damaged")

// checkSize returns an error if the image is smaller than its file system says.
func (i *image) checkSize(bytes int64) error {
	if bytes > i.size {
		return fmt.Errorf("the ISO is truncated: it has %d of %d bytes", i.size, bytes)
	}
	return nil
}

// read reads n bytes at an offset.
func (i *image) read(at, n int64) ([]byte, error) {
	if at < 0 || n < 0 || n > maxReadSize || at > i.size-n {
		return nil, errTruncated
	}
	if i.budget -= n; i.budget < 0 {
		return nil, tooManyFilesError()
	}
	text := make([]byte, n)
	if _, err := i.from.ReadAt(text, at); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return text, nil
}

// visitFolder remembers a folder by the offset of its description. It refuses one that contains itself.
func (i *image) visitFolder(at int64, path string, depth int) error {
	switch {
	case i.folders[at]:
		return errors.New("a folder of the ISO contains itself or has two parents")
	case depth > maxDepth:
		return fmt.Errorf("the folders of the ISO are nested more than %d deep", maxDepth)
	case len(i.folders) >= maxFiles:
		return tooManyFilesError()
	}
	i.folders[at] = true
	return i.addPath(path)
}

// claimFolder reserves the sectors of a folder's content. It refuses folders that overlap: these would take little space
// in the image and much memory.
func (i *image) claimFolder(extents []Extent) error {
	size := int64(0)
	for _, e := range extents {
		if size += e.Size; e.At < 0 || e.Size < 0 || e.At > i.size-e.Size || size > maxFolderSize {
			return errTruncated
		}
		for sector := e.At / sectorSize; sector*sectorSize < e.At+e.Size; sector++ {
			if i.sectors[sector] {
				return errors.New("two folders of the ISO overlap")
			}
			if i.sectors[sector] = true; len(i.sectors) > maxFolderSum/sectorSize {
				return fmt.Errorf("the folders of the ISO have more than %d MiB", maxFolderSum>>20)
			}
		}
	}
	return nil
}

// addPath counts the bytes of a path.
func (i *image) addPath(path string) error {
	if i.paths += len(path); i.paths > maxPathSum {
		return fmt.Errorf("the paths of the ISO's files have more than %d MiB together", maxPathSum>>20)
	}
	return nil
}

func tooManyFilesError() error { return fmt.Errorf("the ISO has more than %d files", maxFiles) }

// add adds a file.
func (i *image) add(path string, extents []Extent) error {
	if len(i.files) >= maxFiles {
		return tooManyFilesError()
	}
	if i.extents += len(extents); i.extents > maxTotalExtents {
		return fmt.Errorf("the files of the ISO have more than %d extents", maxTotalExtents)
	}
	for _, e := range extents {
		if e.At < 0 || e.Size < 0 || e.At > i.size-e.Size {
			return errTruncated
		}
	}
	if err := i.addPath(path); err != nil {
		return err
	}
	i.files = append(i.files, File{path, slices.DeleteFunc(extents, func(e Extent) bool { return e.Size == 0 })})
	return nil
}

// joinPath appends a name to the path of its folder. It refuses names that file servers cannot hold.
func joinPath(folder, name string) (string, error) {
	bad := func(r rune) bool { return r == '/' || unicode.IsControl(r) }
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) ||
		len(folder)+len(name) >= maxPathLength {
		return "", fmt.Errorf("the ISO has a file with the name %.100q, which is not allowed", name)
	}
	if folder == "" {
		return name, nil
	}
	return folder + "/" + name, nil
}

// folder is a folder that is still to be read, at the place A of its file system.
type folder[A any] struct {
	path  string
	at    A
	depth int
}

// readFolders reads a folder and all below it, one at a time. read adds the files of a folder, and returns the folders in it.
func readFolders[A any](root A, read func(folder[A]) ([]folder[A], error)) error {
	pending := []folder[A]{{at: root}}
	for len(pending) > 0 {
		next := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		below, err := read(next)
		if err != nil {
			return err
		}
		if pending = append(pending, below...); len(pending) > maxFiles {
			return tooManyFilesError()
		}
	}
	return nil
}
